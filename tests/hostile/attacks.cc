#include "tests/hostile/attacks.h"

namespace precis::hostile {

const std::vector<Attack>& attacks() {
  static const std::vector<Attack> all{
      {1, "port scan", scan_ports},
      {2, "foreign memory", reach_foreign_memory},
      {3, "bad memory files", share_bad_files},
      {6, "stray descriptors", pass_stray_descriptors},
      {1, "swapped memory files", swap_shared_files},
      {5, "refused layers", push_refused_layers},
      {4, "garbage", send_garbage},
      {5, "large messages", announce_large_messages},
      {5, "unread answers", read_no_answers},
      {5, "unread layers", read_no_layers},
      {6, "bulk header flood", flood_bulk_headers},
      {6, "silent connections", stay_silent},
      {6, "connect and close", connect_and_close},
      {6, "held connections", hold_connections},
      {6, "come and go", come_and_go},
      {14, "token guesses", guess_tokens},
      {14, "wrong binds", bind_wrongly},
  };
  return all;
}

}  // namespace precis::hostile

// The attacks on an earlier version, and further attacks of the same kinds. `issue_row` is the row
// of the issue's table that an attack covers.
#pragma once

#include <string>
#include <vector>

#include "tests/hostile/victim.h"

namespace precis::hostile {

struct Attack {
  unsigned issue_row;
  std::string name;
  void (*run)(Victim&, Finding&);
};
const std::vector<Attack>& attacks();

// attack_memory.cc
void scan_ports(Victim& victim, Finding& finding);
void reach_foreign_memory(Victim& victim, Finding& finding);
void share_bad_files(Victim& victim, Finding& finding);
void pass_stray_descriptors(Victim& victim, Finding& finding);
void swap_shared_files(Victim& victim, Finding& finding);
void push_refused_layers(Victim& victim, Finding& finding);
// attack_frames.cc
void send_garbage(Victim& victim, Finding& finding);
void announce_large_messages(Victim& victim, Finding& finding);
void read_no_answers(Victim& victim, Finding& finding);
void read_no_layers(Victim& victim, Finding& finding);
void flood_bulk_headers(Victim& victim, Finding& finding);
// attack_greeting.cc
void stay_silent(Victim& victim, Finding& finding);
void connect_and_close(Victim& victim, Finding& finding);
void guess_tokens(Victim& victim, Finding& finding);
void hold_connections(Victim& victim, Finding& finding);
void come_and_go(Victim& victim, Finding& finding);
void bind_wrongly(Victim& victim, Finding& finding);

}  // namespace precis::hostile

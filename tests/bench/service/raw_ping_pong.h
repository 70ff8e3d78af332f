// The ceiling of a request: its bytes, and the bytes of its answer, over one blocking socket on
// 127.0.0.1 between two processes.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "precis/status.h"

namespace precis::bench {

class RawPingPong {
 public:
  // Moves at most `bytes_max` each way. The other process runs on `core`, if given.
  static Result<std::unique_ptr<RawPingPong>> open(std::size_t bytes_max,
                                                   std::optional<unsigned> core = {});
  ~RawPingPong();
  RawPingPong(const RawPingPong&) = delete;
  RawPingPong& operator=(const RawPingPong&) = delete;

  // Returns when the last byte of the answer has arrived.
  Status exchange(std::size_t ask_bytes, std::size_t answer_bytes);

 private:
  RawPingPong() = default;
  int socket_ = -1;
  pid_t child_ = -1;
  std::vector<std::byte> buffer_;
};

}  // namespace precis::bench

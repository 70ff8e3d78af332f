// The ceiling of a request: its bytes there and its answer's bytes back over one blocking socket on
// 127.0.0.1, between two processes.
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
  // Of at most `bytes_max` each way. The other process runs on `core`, if one is given.
  static Result<std::unique_ptr<RawPingPong>> open(std::size_t bytes_max,
                                                   std::optional<unsigned> core = {});
  ~RawPingPong();
  RawPingPong(const RawPingPong&) = delete;
  RawPingPong& operator=(const RawPingPong&) = delete;

  // Until the last byte of the answer is here.
  Status exchange(std::size_t ask_bytes, std::size_t answer_bytes);

 private:
  RawPingPong() = default;
  int socket_ = -1;
  pid_t child_ = -1;
  std::vector<std::byte> buffer_;
};

}  // namespace precis::bench

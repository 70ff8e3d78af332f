// The ceiling of any transport.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "tests/bench/transport_ceilings.h"

namespace precis::bench {

class TransportCeiling {
 public:
  // The ceiling of `clients` that move `size_bytes` each. Over shm: as many copying threads, at
  // most one a core. Over tcp: as many sockets.
  static Result<TransportCeiling> open(const std::string& transport, std::size_t size_bytes,
                                       std::size_t clients);
  const std::string& name() const { return name_; }
  // GB/s of all clients together; each moves its bytes `times` times.
  Result<double> rate(std::size_t times);

 private:
  std::string name_;
  double gigabytes_ = 0;  // moved each time
  std::unique_ptr<CopyCeiling> copies_;
  std::unique_ptr<SocketCeiling> sockets_;
};

}  // namespace precis::bench

#include "tests/bench/service/transport_ceiling.h"

#include <algorithm>
#include <thread>

namespace precis::bench {

Result<TransportCeiling> TransportCeiling::open(const std::string& transport,
                                                std::size_t size_bytes, std::size_t clients) {
  TransportCeiling ceiling;
  const bool shm = transport == "shm";
  const std::size_t cores = std::max(std::thread::hardware_concurrency(), 1u);
  const std::size_t lanes = shm ? std::min(clients, cores) : clients;
  const std::string lanes_text = std::to_string(lanes);
  ceiling.gigabytes_ = static_cast<double>(size_bytes * lanes) * 1e-9;
  if (shm) {
    ceiling.name_ = "streaming copy, " + lanes_text + (lanes > 1 ? " threads" : " thread");
    ceiling.copies_ = std::make_unique<CopyCeiling>(size_bytes, lanes);
  } else {
    ceiling.name_ = "blocking socket" + (lanes > 1 ? "s, " + lanes_text : "");
    PRECIS_ASSIGN(ceiling.sockets_, SocketCeiling::open(size_bytes, lanes));
  }
  return ceiling;
}

Result<double> TransportCeiling::rate(std::size_t times) {
  double seconds = 0;
  if (copies_) {
    seconds = copies_->run(times);
  } else {
    PRECIS_ASSIGN(seconds, sockets_->run(times));
  }
  return gigabytes_ * static_cast<double>(times) / seconds;
}

}  // namespace precis::bench

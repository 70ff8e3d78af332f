// The work of a put and of a get on the processor, without a service: the same copies and
// computation, but no requests and no answers. Nothing that does the same work can be faster here.
#pragma once

#include <memory>
#include <string>

#include "tests/bench/service/copy_and_check.h"
#include "tests/bench/service/stages_alone.h"
#include "tests/bench/service/transport_ceiling.h"

namespace precis::bench {

class Bare {
 public:
  // `payload`, in memory that the client allocated, and `ceiling`, of one client of the transport,
  // must outlive the result.
  static Result<std::unique_ptr<Bare>> make(const std::string& transport, const ModelSpec& model,
                                            const Payload& payload, TransportCeiling& ceiling);

  // GB/s. Over shm: the stages of every layer, from the client's memory. Over tcp: a socket that
  // moves as many bytes, and the stages at the same time.
  Result<double> put_rate();
  // GB/s. Over shm: two threads that copy and check the copies. Over tcp: a socket, and a thread
  // that checks at the same time.
  Result<double> get_rate();

 private:
  Bare(const ModelSpec& model, const Payload& payload, TransportCeiling* socket)
      : socket_(socket), gets_(payload.bytes(), model.num_layers) {}
  // Runs the socket and `work` at the same time until both end.
  template <typename Work>
  Result<double> beside_socket(const Work& work);

  TransportCeiling* const socket_;  // null over shm
  std::unique_ptr<StagesAlone> stages_;
  CopyAndCheck gets_;
};

}  // namespace precis::bench

// What the cores do of a put and of a get without a service: what is moved and worked on, but
// nothing is asked for, and nobody is told. So nothing that does the same work is faster here.
#pragma once

#include <memory>
#include <string>

#include "tests/bench/service/copy_and_check.h"
#include "tests/bench/service/stages_alone.h"
#include "tests/bench/service/transport_ceiling.h"

namespace precis::bench {

class Bare {
 public:
  // `payload`, in memory of a client's, and `ceiling`, of one client of the transport, outlive it.
  static Result<std::unique_ptr<Bare>> make(const std::string& transport, const ModelSpec& model,
                                            const Payload& payload, TransportCeiling& ceiling);

  // GB/s. Over shm the stages of every layer, from where the client has it; over tcp a socket that
  // moves as many bytes, and the stages beside it.
  Result<double> put_rate();
  // Over shm two threads that copy, and check what they have copied; over tcp a socket, and a
  // thread that checks beside it.
  Result<double> get_rate();

 private:
  Bare(const ModelSpec& model, const Payload& payload, TransportCeiling* socket)
      : socket_(socket), gets_(payload.bytes(), model.num_layers) {}
  // The socket and `work` at once, until both have ended.
  template <typename Work>
  Result<double> beside_socket(const Work& work);

  TransportCeiling* const socket_;  // null over shm
  std::unique_ptr<StagesAlone> stages_;
  CopyAndCheck gets_;
};

}  // namespace precis::bench

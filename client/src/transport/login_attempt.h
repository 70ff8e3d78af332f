// One attempt to connect: dials, authenticates, checks the server's proof, and binds a bulk socket
// (greeting.h). Used on the loop's thread; destroying it ends the attempt.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "client/src/transport/dial.h"
#include "precis/greeting.h"

namespace precis {

class LoginAttempt {
 public:
  struct Options {
    std::string address;
    Login login;
    std::uint32_t timeout_ms = 0;
    const TlsContext* tls = nullptr;
    bool use_unix = true;  // for bulk bytes, if the server's Unix socket can be reached
  };
  struct Admitted {
    Welcome welcome;  // if it is a refusal, the sockets are null
    std::unique_ptr<Socket> control, data;
  };
  using Done = std::function<void(Result<Admitted>)>;

  LoginAttempt(EventLoop& loop, Options options, Done done);

 private:
  Task<void> run();
  Task<Result<Admitted>> log_in();
  Status check(const Welcome& welcome, const Nonce& challenge, const Hello& hello);
  Task<Result<std::unique_ptr<Socket>>> bind(std::string address, std::uint64_t connection);
  void finish(Result<Admitted> result);

  EventLoop& loop_;
  const Options options_;
  Done done_;
  std::unique_ptr<EventLoop::Timer> deadline_;
  Proof bind_key_{};
  Task<void> running_;
};

}  // namespace precis

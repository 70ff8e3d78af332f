// One attempt to connect: dials, proves who it is, checks the server's proof, and binds a bulk
// socket (greeting.h). Used on the loop's thread; ends with its object.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cachesvc/net/control_stream.h"
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
    bool use_unix = true;  // for bulk, where the server names a Unix socket that can be reached
  };
  struct Admitted {
    Welcome welcome;  // of a refusal: the rest is empty
    std::shared_ptr<ControlStream> control;
    std::unique_ptr<Socket> data;
  };
  using Done = std::function<void(Result<Admitted>)>;

  LoginAttempt(EventLoop& loop, Options options, Done done);
  ~LoginAttempt();
  LoginAttempt(const LoginAttempt&) = delete;
  LoginAttempt& operator=(const LoginAttempt&) = delete;

 private:
  void on_control(FrameKind kind, Bytes body);
  Status on_challenge(Bytes body);
  Status on_welcome(Bytes body);
  void dial_data(const std::string& address);
  void on_data(FrameKind kind, Bytes body);
  void data_failed(const Status& why);
  void finish(Result<Admitted> result);

  EventLoop& loop_;
  const Options options_;
  Done done_;
  std::unique_ptr<EventLoop::Timer> deadline_, retry_;
  std::unique_ptr<Dial> dial_;
  std::shared_ptr<ControlStream> control_, data_;
  Nonce challenge_{};
  Hello hello_;
  Admitted admitted_;
  Proof bind_key_{};
  bool over_unix_ = false;  // the data socket that is being bound
};

}  // namespace precis

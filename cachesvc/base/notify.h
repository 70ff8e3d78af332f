// The messages of a service of systemd's Type=notify: datagrams to the socket that systemd names in
// NOTIFY_SOCKET.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace precis {

class Notifier {
 public:
  // `socket`: as NOTIFY_SOCKET has it, the path of a socket or @ and an abstract name; empty where
  // nobody asked, and then nothing is sent.
  explicit Notifier(std::string socket) : socket_(std::move(socket)) {}

  // Each is sent once it is so. A message that can't be sent is lost: systemd has deadlines for
  // that.
  void ready() const { send("READY=1"); }
  void reloading() const;  // ready() says that it is over
  void stopping() const { send("STOPPING=1"); }

 private:
  void send(std::string_view text) const;
  const std::string socket_;
};

}  // namespace precis

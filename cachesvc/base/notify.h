// Status messages of a systemd service with Type=notify: datagrams to the socket in NOTIFY_SOCKET.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace precis {

class Notifier {
 public:
  // `socket`: the value of NOTIFY_SOCKET, which is a socket's path or @ and an abstract name. If it
  // is empty, nothing is sent.
  explicit Notifier(std::string socket) : socket_(std::move(socket)) {}

  // Call each when its state begins. A message that cannot be sent is lost; systemd's deadlines
  // cover that case.
  void ready() const { send("READY=1"); }
  void reloading() const;  // call ready() when the reload has ended
  void stopping() const { send("STOPPING=1"); }

 private:
  void send(std::string_view text) const;
  const std::string socket_;
};

}  // namespace precis

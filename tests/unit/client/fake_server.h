// A server that does what a test tells it to, over a loopback transport: scripts answer requests,
// and may lie.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cachesvc/base/asio_loop.h"
#include "cachesvc/base/runtime.h"
#include "cachesvc/embed/loopback.h"
#include "client/src/reconnecting_channel.h"
#include "precis/client.h"
#include "precis/messages.h"

namespace precis::testing {

class FakeServer {
 public:
  // Called on the loop's thread with every request. Unless `answer_small` is false, Ping, AbortPut
  // and Cancel don't come to it: these and a canceled get are answered as a good server would.
  using Script = std::function<void(FakeServer&, msg::Request)>;

  explicit FakeServer(Script script);
  ~FakeServer();
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  Status refusal;  // the answer to the next peer; OK: it is admitted
  bool answer_small = true;

  Result<std::shared_ptr<Client>> connect(const ConnectOptions& options);
  // A client without retries.
  Result<std::shared_ptr<Client>> connect();
  ReconnectingChannel::Dial dial();

  // To be called from a script.
  void reply(std::uint64_t id, msg::ReplyBody body);
  void refuse(std::uint64_t id, Status status);
  void send(const msg::ServerMessage& message);
  void send_raw(std::vector<std::byte> bytes);
  void push(const RemoteRegion& to, std::uint64_t offset, std::vector<std::byte> bytes,
            std::function<void(Status)> then);
  void pull(const RemoteRegion& from, std::size_t size_bytes,
            std::function<void(std::vector<std::byte>)> then);
  void drop();  // closes the connection
  // Every request so far, with probes and cancels.
  const std::vector<msg::Request>& seen() const { return seen_; }

  // From the test's thread: runs fn on the loop's thread and waits.
  void on_loop(std::function<void()> fn);

 private:
  // Shared with the clients as their keep_alive.
  struct Host {
    MachineRuntime runtime;
    AsioLoop loop;
    std::unique_ptr<Transport> transport;
    std::unique_ptr<ClientTransport> client;
    std::thread thread;
    ~Host();
  };
  void on_message(const std::vector<std::byte>& bytes);

  std::shared_ptr<Host> host_;
  Script script_;
  std::string address_;
  std::unique_ptr<Connection> connection_;
  std::vector<msg::Request> seen_;
};

}  // namespace precis::testing

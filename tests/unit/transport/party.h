// Parts of the transport's tests. A party stands for a process: a loop, its thread, a transport. A
// Pair is a connected server and client. The same cases run over every Wire.
#pragma once

#include <catch2/catch.hpp>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cachesvc/base/asio_loop.h"
#include "cachesvc/embed/loopback.h"
#include "cachesvc/transport/socket_transport.h"
#include "client/src/transport/socket_client.h"

namespace precis::test {

enum class Wire {
  kLoopback,
  kUnix,  // control over TCP, the bulk socket over the Unix socket: memory is shared
  kTcp,   // both over TCP
  kTls,   // both over TLS
};
inline constexpr Wire kWires[] = {Wire::kLoopback, Wire::kUnix, Wire::kTcp, Wire::kTls};
const char* wire_name(Wire wire);

// Longer than any operation takes on the slowest machine; only a failing test reaches it.
inline constexpr std::chrono::seconds kPatience{60};

std::vector<std::byte> random_bytes(std::mt19937_64& random, std::size_t size);
std::vector<std::byte> bytes_of(const std::string& text);
std::string text_of(const std::vector<std::byte>& bytes);

template <typename T>
T get(std::future<T> future) {
  if (future.wait_for(kPatience) != std::future_status::ready) {
    throw std::runtime_error("waited in vain");
  }
  return future.get();
}

class LoopThread {
 public:
  LoopThread() : thread_([this] { loop.run(); }) {}
  ~LoopThread() {
    loop.stop();
    thread_.join();
  }
  // Runs fn on the loop and returns its result.
  template <typename Fn>
  auto on_loop(Fn fn) -> decltype(fn()) {
    std::packaged_task<decltype(fn())()> task(std::move(fn));
    auto future = task.get_future();
    loop.post([&task] { task(); });
    return get(std::move(future));
  }

  AsioLoop loop;

 private:
  std::thread thread_;
};

// Events at one end of a connection: handlers write them on the loop, tests read on any thread.
class Inbox {
 public:
  template <typename Handlers>
  Handlers handlers() {
    return {.on_message = [this](std::vector<std::byte> message) { note(std::move(message)); },
            .on_closed = [this](Status reason) { note(std::move(reason)); }};
  }
  // Waits until `count` messages have arrived.
  std::vector<std::vector<std::byte>> wait_messages(std::size_t count);
  Status wait_closed();
  std::size_t closed_count();
  std::size_t message_count();

 private:
  void note(std::vector<std::byte> message);
  void note(Status reason);
  void wait(const std::function<bool()>& until);
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<std::byte>> messages_;
  std::vector<Status> closed_;
};

// A certificate for 127.0.0.1 that tests trust; made at the first call.
const TlsFiles& test_certificate();

// A party with one half of the transport.
template <typename Half>
struct PartyOf {
  ~PartyOf() {
    thread.on_loop([this] { transport.reset(); });
  }
  std::unique_ptr<Registration> register_memory(MutableBytes memory) {
    return transport->register_memory(memory).value();
  }
  LoopThread thread;
  std::unique_ptr<Half> transport;
};

struct Server : PartyOf<Transport> {
  explicit Server(Wire wire, std::shared_ptr<LoopbackNet> net = nullptr,
                  SocketOptions options = default_options());
  ~Server();
  static SocketOptions default_options();

 private:
  std::string folder_;  // of its Unix socket
};
struct Caller : PartyOf<ClientTransport> {
  explicit Caller(Wire wire, std::shared_ptr<LoopbackNet> net = nullptr);
};

// Listens with `acceptor` on an address that suits the wire.
std::string listen(Server& server, Wire wire, Transport::Acceptor acceptor);
// Admits every client; passes connections to `accepted`.
Transport::Acceptor open_door(std::function<void(std::unique_ptr<Connection>)> accepted);
Result<ClientTransport::Connected> connect(Caller& caller, const std::string& address,
                                           const Login& login = {},
                                           std::uint32_t timeout_ms = 30'000);

// One end of a connection: used and destroyed on its loop.
template <typename Half>
class EndOf {
 public:
  EndOf() = default;
  EndOf(LoopThread& thread, std::unique_ptr<Half> connection)
      : thread_(&thread), connection_(std::move(connection)) {}
  EndOf(EndOf&&) = default;
  EndOf& operator=(EndOf&&) = default;
  ~EndOf() { drop(); }

  void start() {
    thread_->on_loop(
        [this] { connection_->start(inbox_->template handlers<typename Half::Handlers>()); });
  }
  void send(std::vector<std::byte> message) {
    thread_->on_loop([&] { connection_->send(std::move(message)); });
  }
  void close() {
    thread_->on_loop([this] { connection_->close(); });
  }
  void drop() {
    if (connection_) thread_->on_loop([this] { connection_.reset(); });
  }
  // Transfers the connection to the caller and leaves this end empty.
  std::unique_ptr<Half> release() { return std::move(connection_); }
  void with_connection(const std::function<void(Half&)>& fn) {
    thread_->on_loop([&] { fn(*connection_); });
  }
  std::string description() {
    return thread_->on_loop([this] { return connection_->description(); });
  }
  Inbox& inbox() { return *inbox_; }

 protected:
  LoopThread* thread_ = nullptr;
  std::unique_ptr<Half> connection_;
  std::unique_ptr<Inbox> inbox_ = std::make_unique<Inbox>();
};

class ServerEnd : public EndOf<Connection> {
 public:
  using EndOf::EndOf;
  Status pull(const RemoteRegion& from, std::uint64_t offset, MutableBytes into,
              const Registration& local);
  Status push(std::vector<Bytes> from, const Registration& local, const RemoteRegion& to,
              std::uint64_t offset);
  std::future<Status> start_pull(const RemoteRegion& from, std::uint64_t offset, MutableBytes into,
                                 const Registration& local);
  std::future<Status> start_push(std::vector<Bytes> from, const Registration& local,
                                 const RemoteRegion& to, std::uint64_t offset);
};

class CallerEnd : public EndOf<ClientConnection> {
 public:
  using EndOf::EndOf;
  std::unique_ptr<Exposure> expose(Registration& registration) {
    return expose(registration, registration.bytes());
  }
  std::unique_ptr<Exposure> expose(Registration& registration, MutableBytes part) {
    return connection_->expose(registration, part).value();  // from any thread
  }
};

// Two parties and a connection between them, started on both ends.
struct Pair {
  explicit Pair(Wire wire, SocketOptions options = Server::default_options());
  // Makes another connection between the same two parties.
  std::pair<ServerEnd, CallerEnd> connect_again();
  // The next connection that the server accepts.
  std::future<std::unique_ptr<Connection>> accept_next();

  std::shared_ptr<LoopbackNet> net;
  Server server;
  Caller client;
  std::string address;
  ServerEnd at_server;
  CallerEnd at_client;

 private:
  std::mutex mutex_;
  std::promise<std::unique_ptr<Connection>> accepted_;
};

}  // namespace precis::test

template <>
struct Catch::StringMaker<precis::Status> {
  static std::string convert(const precis::Status& status) { return status.to_string(); }
};

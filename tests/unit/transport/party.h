// What the transport's tests are made of: a Party is one process in small (a loop, its thread, a
// transport); a Pair is a server and a client that have met. The same cases run over every Wire.
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

#include "cachesvc/base/event_loop.h"
#include "cachesvc/transport/loopback_transport.h"
#include "cachesvc/transport/transport.h"
#include "cachesvc/transport/ucx_transport.h"

namespace precis::test {

enum class Wire {
  kLoopback,
  kHostCopy,     // UCX over TCP, the kernel copies bulk bytes between the processes
  kTcpMessages,  // UCX over TCP, bulk bytes in active messages
  kTcpStream,    // UCX over TCP, bulk bytes over the preface's connection
  kTcpOneSided,  // UCX over TCP, which emulates get and put: for their own code only, as an
                 // emulated put checks no key and lands after its target has closed
};
inline constexpr Wire kWires[] = {Wire::kLoopback, Wire::kHostCopy, Wire::kTcpMessages,
                                  Wire::kTcpStream};
inline constexpr Wire kBulkWires[] = {Wire::kLoopback, Wire::kHostCopy, Wire::kTcpMessages,
                                      Wire::kTcpStream, Wire::kTcpOneSided};
const char* wire_name(Wire wire);

// Longer than anything takes on the slowest machine; reached only by a test that has failed.
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
  // Runs fn on the loop and returns what it returns.
  template <typename Fn>
  auto on_loop(Fn fn) -> decltype(fn()) {
    std::packaged_task<decltype(fn())()> task(std::move(fn));
    auto future = task.get_future();
    loop.post([&task] { task(); });
    return get(std::move(future));
  }

  EventLoop loop;

 private:
  std::thread thread_;
};

// What happened at one end of a connection. Handlers write it on the loop, tests read it anywhere.
class Inbox {
 public:
  Connection::Handlers handlers();
  // Waits until that many messages have arrived.
  std::vector<std::vector<std::byte>> wait_messages(std::size_t count);
  Status wait_closed();
  std::size_t closed_count();
  std::size_t message_count();

 private:
  void wait(const std::function<bool()>& until);
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<std::byte>> messages_;
  std::vector<Status> closed_;
};

UcxOptions ucx_options(Wire wire);

class Party {
 public:
  explicit Party(const UcxOptions& options);
  explicit Party(Wire wire, std::shared_ptr<LoopbackNet> net = nullptr,
                 std::chrono::milliseconds preface_timeout = kPatience);
  ~Party();

  std::unique_ptr<Registration> register_memory(MutableBytes memory);

  LoopThread thread;
  std::unique_ptr<Transport> transport;
};

// Listens with `acceptor` on an address that suits the wire.
std::string listen(Party& party, Wire wire, Transport::Acceptor acceptor);
Result<Transport::Connected> connect(Party& party, const std::string& address,
                                     std::vector<std::byte> hello = {},
                                     std::uint32_t timeout_ms = 30'000);

// One end of a connection: used and destroyed on its loop.
class End {
 public:
  End() = default;
  End(Party& party, std::unique_ptr<Connection> connection)
      : party_(&party), connection_(std::move(connection)) {}
  End(End&&) = default;
  End& operator=(End&&) = default;
  ~End() { drop(); }

  void start() {
    party_->thread.on_loop([this] { connection_->start(inbox_->handlers()); });
  }
  void send(std::vector<std::byte> message);
  Status pull(const RemoteRegion& from, std::uint64_t offset, MutableBytes into,
              const Registration& local) {
    return get(start_pull(from, offset, into, local));
  }
  Status push(std::vector<Bytes> from, const Registration& local, const RemoteRegion& to,
              std::uint64_t offset) {
    return get(start_push(std::move(from), local, to, offset));
  }
  std::future<Status> start_pull(const RemoteRegion& from, std::uint64_t offset, MutableBytes into,
                                 const Registration& local);
  std::future<Status> start_push(std::vector<Bytes> from, const Registration& local,
                                 const RemoteRegion& to, std::uint64_t offset);
  std::unique_ptr<Exposure> expose(Registration& registration);
  std::unique_ptr<Exposure> expose(Registration& registration, MutableBytes part);
  void close();
  void drop();
  // Hands the connection over; this end is empty then.
  std::unique_ptr<Connection> release() { return std::move(connection_); }
  void with_connection(const std::function<void(Connection&)>& fn) {
    party_->thread.on_loop([&] { fn(*connection_); });
  }
  std::string description();
  Inbox& inbox() { return *inbox_; }

 private:
  Party* party_ = nullptr;
  std::unique_ptr<Connection> connection_;
  std::unique_ptr<Inbox> inbox_ = std::make_unique<Inbox>();
};

// Two parties and a connection between them, started on both ends.
struct Pair {
  explicit Pair(Wire wire, std::chrono::milliseconds preface_timeout = kPatience);
  // Another connection of the same two parties.
  std::pair<End, End> connect_again();
  // The next connection that the server accepts.
  std::future<std::unique_ptr<Connection>> accept_next();

  std::shared_ptr<LoopbackNet> net;
  Party server;
  Party client;
  std::string address;
  End at_server;
  End at_client;

 private:
  std::mutex mutex_;
  std::promise<std::unique_ptr<Connection>> accepted_;
};

}  // namespace precis::test

template <>
struct Catch::StringMaker<precis::Status> {
  static std::string convert(const precis::Status& status) { return status.to_string(); }
};

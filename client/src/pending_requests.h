// The requests of a connection that wait for a reply, and when they have waited too long.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "client/src/transport/client_transport.h"
#include "precis/messages.h"

namespace precis {

// Receives the messages of one request; on the loop's thread, which it must not block.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  virtual void on_layer(msg::LayerServed) {}
  // Called exactly once, and last.
  virtual void on_reply(Result<msg::ReplyBody> reply) = 0;
};

// A kWhileAlive request waits as long as the service sends something within each timeout. A
// kOneTimeout request waits for one timeout.
enum class Patience : std::uint8_t { kOneTimeout, kWhileAlive };

// The user's memory, registered with the transport and open to the server.
struct ExposedMemory {
  std::shared_ptr<Registration> registration;  // shared with its buffer, if it belongs to one
  std::unique_ptr<Exposure> exposure;          // last, so that it is destroyed first
};

struct PendingRequest {
  std::shared_ptr<ReplySink> sink;  // null: no listener. Shared with the waiting thread.
  Patience patience = Patience::kOneTimeout;
  std::vector<ExposedMemory> memory;  // open to the server until it has answered
  // Memory that the server writes to. It is kept after the deadline, and after its other owners
  // have released it, until the server has answered or the connection is gone. A request without
  // such memory is removed at its deadline.
  std::shared_ptr<void> held;
  // The deadline of the call that the request is part of. After it the request is kTimedOut, even
  // if the service shows signs of life.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  std::chrono::steady_clock::time_point started{};
  std::string_view name;  // of the request
  // Whether the loop's own thread must be ready for the reply at once, if no other thread drives
  // the loop.
  bool hurried = true;
};

// On the loop's thread only.
class PendingRequests {
 public:
  using Clock = std::chrono::steady_clock;
  // Shared only because a posted function must be copyable; in practice the table is the only
  // owner.
  using Ptr = std::shared_ptr<PendingRequest>;

  // A request without progress is late after `timeout`.
  explicit PendingRequests(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  void add(std::uint64_t id, Ptr request);  // and starts its time
  Ptr find(std::uint64_t id) const;         // null if it is not pending
  Ptr take(std::uint64_t id);               // removes it; null if it is not pending
  std::vector<Ptr> take_all();
  bool empty() const { return rows_.empty(); }
  std::size_t size() const { return rows_.size(); }
  std::vector<std::uint64_t> holding_memory() const;  // those with `held`

  void heard() { last_heard_ = Clock::now(); }  // the service sent something
  // When to check the requests next.
  Clock::time_point next_check(Clock::time_point now) const;
  // The check that was due at `due` runs now. If it is much too late, this process was stopped or
  // got no processor time. The service's messages of that time still wait to be read, so that time
  // does not count as silence of the service. A caller's deadline is a fixed time and does not
  // move.
  void checked_late(Clock::time_point due);
  std::vector<std::uint64_t> late(Clock::time_point now) const;
  // Whether to ping the service, because it has sent nothing for long and a kWhileAlive request
  // waits.
  bool need_ping(Clock::time_point now) const;
  // Why a late request ends. `address`: of the service.
  Status too_late(const PendingRequest& request, const std::string& address) const;

 private:
  Clock::time_point since(const PendingRequest& request) const;
  Clock::duration tick() const;  // how often deadlines are checked

  const std::chrono::milliseconds timeout_;
  std::unordered_map<std::uint64_t, Ptr> rows_;
  Clock::time_point last_heard_{};
};

}  // namespace precis

// The link to the service as calls: every request gets an id and a deadline, every reply finds its
// request, and whatever ends the link answers all that is pending.
//
// Held by the client's handles (Client, Put, Prefix), by nothing that lives on the loop: so its
// destructor runs on a user's thread and may wait for the loop's.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/executor.h"
#include "client/src/buffer_pool.h"
#include "client/src/host_memory.h"
#include "client/src/interrupt.h"
#include "client/src/transport/client_transport.h"
#include "precis/client.h"
#include "precis/limits.h"
#include "precis/messages.h"

namespace precis {

class OneReply;  // what one call waits for: channel.cc

// Hears what one request brings; on the loop's thread, which it must not hold up.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  virtual void on_layer(msg::LayerServed) {}
  // Exactly once and last.
  virtual void on_reply(Result<msg::ReplyBody> reply) = 0;
};

// What is kWhileAlive waits as long as the service shows life, the rest for one timeout.
enum class Patience : std::uint8_t { kOneTimeout, kWhileAlive };

// The user's memory, known to the transport and open to the server.
struct ExposedMemory {
  std::shared_ptr<Registration> registration;  // shared with its buffer, if it is one's
  std::unique_ptr<Exposure> exposure;          // last, so that it goes first
};

struct PendingRequest {
  std::shared_ptr<ReplySink> sink;  // null: nobody listens. Shared with who waits for the reply.
  Patience patience = Patience::kOneTimeout;
  std::vector<ExposedMemory> memory;  // open to the server until it has answered
  // Memory the server writes to: it lives on, past a deadline and past its other owners, until the
  // server has answered or is gone. Without it the request is forgotten at its deadline.
  std::shared_ptr<void> held;
  // Of the call it is part of; kTimedOut past it, whatever the service does.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  std::chrono::steady_clock::time_point started{};
  const char* name = "";  // of the request
  // Whether the loop's own thread looks after it at once, where nobody else drives.
  bool hurried = true;
};

class Channel {
 public:
  // Requests that callers may have under way. What is left of the protocol's limit is for one
  // Cancel per get, one AbortPut per put and the sign of life.
  static constexpr std::uint32_t kCallsMax = limits::kRequestsInFlightPerConnectionMax -
                                             limits::kGetsPerConnectionMax -
                                             limits::kPutsPerConnectionMax - 1;

  static Result<std::shared_ptr<Channel>> open(std::shared_ptr<void> keep_alive, EventLoop& loop,
                                               ClientTransport& transport,
                                               std::shared_ptr<const HostMemory> memory,
                                               const std::string& address,
                                               const ConnectOptions& options,
                                               std::uint32_t connect_timeout_ms);
  ~Channel();
  // The connection is gone for good; another Channel is needed.
  bool lost() const { return lost_.load(); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  using Time = std::chrono::steady_clock::time_point;

  // All below: any thread but the loop's. Sends `request`, which gets its id, and waits for its
  // reply, which must be a T.
  template <typename T>
  Result<T> call(msg::Request& request, Patience patience = Patience::kOneTimeout,
                 std::vector<ExposedMemory> memory = {}, Time deadline = Time::max()) {
    return as<T>(wait_reply(request, patience, std::move(memory), deadline));
  }
  // A call in two: its request is sent, and what answers it waited for later, or not any more.
  struct Call {
    std::uint64_t id = 0;
    std::shared_ptr<OneReply> reply;  // shared with the loop, which fills it
  };
  Call begin(msg::Request& request, Patience patience, std::vector<ExposedMemory> memory,
             Time deadline);
  template <typename T>
  Result<T> finish(const Call& call) {
    return as<T>(wait_reply(call));
  }
  // `call`'s memory is closed to the server when this returns; its outcome is unknown.
  void call_off(const Call& call);
  // Sends `request`, itself where the loop is free; `pending`'s sink hears the rest. Returns the
  // request's id. `awaited`: its caller is about to drive_until() all that it brings, so nobody
  // else needs to be woken for it.
  std::uint64_t start(msg::Request& request, PendingRequest pending, bool awaited);
  // Waits for what the loop's thread does, by doing it, where the loop is free; else returns at
  // once. Also once it is time to ask whether the wait shall go on.
  void drive_until(const std::function<bool()>& done) {
    const Interrupt interrupt;
    loop_.drive([] {}, [&] { return done() || interrupt.due(); });
  }
  // Sends what needs no answer.
  void tell(msg::RequestBody body);

  Result<ExposedMemory> expose(Bytes memory);
  Result<std::unique_ptr<Exposure>> expose(Registration& registration, MutableBytes memory);
  BufferPool& buffers() { return *buffers_; }
  Executor& verifier() { return *verifier_; }

 private:
  Channel(std::shared_ptr<void> keep_alive, EventLoop& loop, ClientTransport& transport,
          std::shared_ptr<const HostMemory> memory, std::string address,
          const ConnectOptions& options);
  Status connect(const ConnectOptions& options, std::uint32_t timeout_ms);
  Result<msg::ReplyBody> wait_reply(msg::Request& request, Patience patience,
                                    std::vector<ExposedMemory> memory, Time deadline);
  Result<msg::ReplyBody> wait_reply(const Call& call);
  template <typename T>
  Result<T> as(Result<msg::ReplyBody> reply) const {
    PRECIS_TRY(reply.status());
    if (T* answer = std::get_if<T>(&*reply)) return std::move(*answer);
    return Status::internal(address_ + " answered with a reply of another kind (number " +
                            std::to_string(reply->index()) + ") than the request asks for");
  }

  // Gives `request` its id; what is returned sends it, on the loop's thread.
  std::function<void()> prepare(msg::Request& request, PendingRequest pending);
  struct Prepared {
    Call call;
    std::function<void()> send;
  };
  Prepared prepare_call(msg::Request& request, Patience patience, std::vector<ExposedMemory> memory,
                        Time deadline, bool hurried);

  // On the loop's thread.
  void submit(std::uint64_t id, std::vector<std::byte> message,
              std::shared_ptr<PendingRequest> request);
  void on_message(const std::vector<std::byte>& bytes);
  void on_closed(const Status& reason);
  void give_up(const std::string& why);
  void answer(std::uint64_t id, Result<msg::ReplyBody> reply);
  void settle(PendingRequest& request, Result<msg::ReplyBody> reply);
  void tell_sink(PendingRequest& request, Result<msg::ReplyBody> reply);
  void arm_timer();
  void forgive(std::chrono::steady_clock::duration lost);
  void check_deadlines();
  void expire(std::uint64_t id);
  void interrupt_request(std::uint64_t id, const char* why);
  void give_up(std::uint64_t id, const Status& status);
  void send_cancel(std::uint64_t id);
  void note_drained();

  void run_on_loop(std::function<void()> fn);  // and waits

  // Constant after construction.
  std::shared_ptr<void> keep_alive_;  // owns loop and transport; shared with the process around us
  EventLoop& loop_;
  ClientTransport& transport_;
  std::shared_ptr<const HostMemory> memory_;  // of the client, over all its channels
  std::string address_;
  std::chrono::milliseconds timeout_;

  // Any thread.
  std::atomic<std::uint64_t> next_id_{1};  // 0 is the id of replies to what was not understood
  std::atomic<std::uint32_t> calls_{0};
  std::atomic<bool> lost_{false};
  std::unique_ptr<BufferPool> buffers_;
  std::unique_ptr<Executor> verifier_;

  // The loop's thread alone, but that the connection is set before the first call.
  std::unique_ptr<ClientConnection> connection_;
  // Shared because a posted function must be copyable; the map is the one owner in effect.
  std::unordered_map<std::uint64_t, std::shared_ptr<PendingRequest>> pending_;
  Status closed_;  // not ok once the link is gone; lost_ says it to other threads
  std::chrono::steady_clock::time_point last_heard_{};
  std::uint64_t probe_ = 0;  // id of the sign of life asked for, 0 for none
  std::unique_ptr<EventLoop::Timer> timer_;
  Time timer_due_{};
  std::promise<void>* drained_ = nullptr;  // set while the destructor waits for held requests
};

}  // namespace precis

// The connection to the service as calls: every request gets an id and a deadline, every reply is
// matched to its request, and the end of the connection answers all pending requests.
//
// The client's handles (Client, Put, Prefix) own it, and no object on the loop does: so its
// destructor runs on a user's thread and may wait for the loop's thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/executor.h"
#include "cachesvc/base/runtime.h"
#include "client/src/buffer_pool.h"
#include "client/src/host_memory.h"
#include "client/src/interrupt.h"
#include "client/src/pending_requests.h"
#include "client/src/transport/client_transport.h"
#include "precis/client.h"
#include "precis/limits.h"
#include "precis/messages.h"

namespace precis {

template <typename T>
class OneValue;
class OneReply;  // the reply that one call waits for: one_reply.h

class Channel {
 public:
  // Requests that callers may have in flight. The rest of the protocol's limit is for one Cancel
  // per get, one AbortPut per put and the Ping.
  static constexpr std::uint32_t kCallsMax = limits::kRequestsInFlightPerConnectionMax -
                                             limits::kGetsPerConnectionMax -
                                             limits::kPutsPerConnectionMax - 1;

  static Result<std::shared_ptr<Channel>> open(std::shared_ptr<void> keep_alive, Runtime& runtime,
                                               EventLoop& loop, ClientTransport& transport,
                                               std::shared_ptr<const HostMemory> memory,
                                               const std::string& address,
                                               const ConnectOptions& options,
                                               std::uint32_t connect_timeout_ms);
  ~Channel();
  // The connection is closed for good; a new Channel is needed.
  bool lost() const { return lost_.load(); }
  const std::string& address() const { return address_; }
  // The service is in a cluster.
  bool clustered() const { return clustered_; }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  using Time = Clock::Time;

  // Any thread but the loop's may call the functions below. call() sends `request`, which gets its
  // id, and waits for its reply, which must be a T.
  template <typename T>
  Result<T> call(msg::Request& request, Patience patience = Patience::kOneTimeout,
                 std::vector<ExposedMemory> memory = {}, Time deadline = Time::max()) {
    return as<T>(wait_reply(request, patience, std::move(memory), deadline));
  }
  // A call in two steps: begin() sends the request; finish() waits for the reply, or cancel()
  // gives it up.
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
  // When this returns, the memory of `call` is closed to the server; the call's outcome is unknown.
  void cancel(const Call& call);
  // Sends `request`, on this thread if the loop is free; `pending`'s sink receives its messages.
  // Returns the request's id. `awaited`: the caller is about to drive_until() all its messages have
  // arrived, so no other thread needs to be woken for them.
  std::uint64_t start(msg::Request& request, PendingRequest pending, bool awaited);
  // Waits for the loop's thread by running the loop here, if it is free; else returns at once. Also
  // returns when the interrupt callback is due.
  void drive_until(const std::function<bool()>& done) {
    const Interrupt interrupt(clock_);
    loop_.drive([] {}, [&] { return done() || interrupt.due(); });
  }
  // Sends a request that needs no answer.
  void tell(msg::RequestBody body);

  Result<ExposedMemory> expose(Bytes memory);
  Result<std::unique_ptr<Exposure>> expose(Registration& registration, MutableBytes memory);
  BufferPool& buffers() { return *buffers_; }
  Executor& verifier() { return *verifier_; }

 private:
  Channel(std::shared_ptr<void> keep_alive, Runtime& runtime, EventLoop& loop,
          ClientTransport& transport, std::shared_ptr<const HostMemory> memory, std::string address,
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

  // Gives `request` its id; the returned function sends it, on the loop's thread.
  std::function<void()> prepare(msg::Request& request, PendingRequest pending);
  struct Prepared {
    Call call;
    std::function<void()> send;
  };
  Prepared prepare_call(msg::Request& request, Patience patience, std::vector<ExposedMemory> memory,
                        Time deadline, bool hurried);

  // On the loop's thread, all down to note_drained().
  void submit(std::uint64_t id, std::vector<std::byte> message,
              std::shared_ptr<PendingRequest> request);
  void on_message(const std::vector<std::byte>& bytes);
  void on_closed(const Status& reason);
  void give_up(const std::string& why);
  void answer(std::uint64_t id, Result<msg::ReplyBody> reply);
  void settle(PendingRequest& request, Result<msg::ReplyBody> reply);
  void tell_sink(PendingRequest& request, Result<msg::ReplyBody> reply);
  void arm_timer();
  void check_deadlines();
  void interrupt_request(std::uint64_t id, const char* why);
  void give_up(std::uint64_t id, const Status& status);
  void send_cancel(std::uint64_t id);
  void note_drained();

  void run_on_loop(std::function<void()> fn);  // and waits for it

  // Constant after construction.
  std::shared_ptr<void> keep_alive_;  // owns loop and transport; shared with attach()'s caller
  const Clock& clock_;
  EventLoop& loop_;
  ClientTransport& transport_;
  std::shared_ptr<const HostMemory> memory_;  // of the client, shared by all its channels
  std::string address_;
  std::chrono::milliseconds timeout_;
  bool clustered_ = false;

  // Any thread.
  std::atomic<std::uint64_t> next_id_{1};  // 0 marks replies to unreadable requests
  std::atomic<std::uint32_t> calls_{0};
  std::atomic<bool> lost_{false};
  std::unique_ptr<BufferPool> buffers_;
  std::unique_ptr<Executor> verifier_;

  // Used on the loop's thread only; the connection is set before the first call.
  std::unique_ptr<ClientConnection> connection_;
  PendingRequests pending_;
  Status closed_;            // not ok once the connection is gone; lost_ tells other threads
  std::uint64_t probe_ = 0;  // id of the pending Ping, 0 for none
  std::unique_ptr<EventLoop::Timer> timer_;
  Time timer_due_{};
  std::shared_ptr<OneValue<bool>> drained_;  // set while the destructor waits for held requests
};

}  // namespace precis

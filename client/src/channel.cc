#include "client/src/channel.h"

#include <algorithm>
#include <utility>

#include "cachesvc/base/executor.h"
#include "client/src/retry.h"

namespace precis {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The resolution of deadlines.
constexpr milliseconds kTickMin{1};

constexpr char kClientName[] = "precis-cpp/" PRECIS_VERSION;

// How often deadlines are checked: an eighth of the timeout, so none is late by more.
milliseconds tick_of(milliseconds timeout) {
  return std::clamp(timeout / 8, milliseconds{1}, milliseconds{1000});
}

}  // namespace

// The reply to one request, awaited by one thread.
class OneReply final : public ReplySink {
 public:
  void on_reply(Result<msg::ReplyBody> reply) override {
    promise_.set_value(std::move(reply));
    there_ = true;
  }
  bool there() const { return there_; }  // on the loop's thread
  bool ready() const {                   // any thread
    return future_.wait_for(milliseconds{0}) == std::future_status::ready;
  }
  // False if the reply has not come by then.
  bool wait_until(steady_clock::time_point time) const {
    if (time != steady_clock::time_point::max()) {
      return future_.wait_until(time) == std::future_status::ready;
    }
    future_.wait();
    return true;
  }
  Result<msg::ReplyBody> take() { return future_.get(); }

 private:
  bool there_ = false;
  std::promise<Result<msg::ReplyBody>> promise_;
  std::future<Result<msg::ReplyBody>> future_ = promise_.get_future();
};

Channel::Channel(std::shared_ptr<void> keep_alive, EventLoop& loop, ClientTransport& transport,
                 std::shared_ptr<const HostMemory> memory, std::string address,
                 const ConnectOptions& options)
    : keep_alive_(std::move(keep_alive)),
      loop_(loop),
      transport_(transport),
      memory_(std::move(memory)),
      address_(std::move(address)),
      timeout_(std::max<std::uint32_t>(options.timeout_ms, 1)),
      buffers_(std::make_unique<BufferPool>(transport)),
      verifier_(std::make_unique<Executor>("precis-verify", 1)) {}

Result<std::shared_ptr<Channel>> Channel::open(std::shared_ptr<void> keep_alive, EventLoop& loop,
                                               ClientTransport& transport,
                                               std::shared_ptr<const HostMemory> memory,
                                               const std::string& address,
                                               const ConnectOptions& options,
                                               std::uint32_t connect_timeout_ms) {
  // Shared by the Client, its Puts and its Prefixes: each keeps the channel it needs.
  std::shared_ptr<Channel> channel(
      new Channel(std::move(keep_alive), loop, transport, std::move(memory), address, options));
  PRECIS_TRY(channel->connect(options, connect_timeout_ms));
  return channel;
}

Channel::~Channel() {
  PRECIS_CHECK(!loop_.on_loop_thread());
  // A get in flight writes into memory that this object owns: cancel it first.
  std::promise<void> drained;
  run_on_loop([this, &drained] {
    drained_ = &drained;
    for (const auto& [id, request] : pending_) {
      if (request->held) send_cancel(id);
    }
    note_drained();
  });
  drained.get_future().wait_for(timeout_);
  run_on_loop([this] {
    drained_ = nullptr;
    timer_.reset();
    connection_.reset();
    pending_.clear();
  });
  verifier_.reset();
  buffers_.reset();
}

void Channel::run_on_loop(std::function<void()> fn) {
  std::promise<void> done;
  loop_.post([&] {
    fn();
    done.set_value();
  });
  done.get_future().wait();
}

Status Channel::connect(const ConnectOptions& options, std::uint32_t timeout_ms) {
  const Login login{options.client_name.empty() ? kClientName : options.client_name, options.tenant,
                    options.token};
  for (const std::string* name : {&login.client, &login.tenant}) {
    if (name->size() <= limits::kNameBytesMax) continue;
    return Status::invalid("client_name or tenant has " + std::to_string(name->size()) +
                           " B, the limit is " + std::to_string(limits::kNameBytesMax) + " B");
  }
  std::promise<Status> connected;
  auto greeted = [&](Result<ClientTransport::Connected> result) -> Status {
    if (!result.ok()) {
      const bool named = result.status().message().find(address_) != std::string::npos;
      return named ? result.status() : result.status().with_context("connect to " + address_);
    }
    PRECIS_TRY(result->welcome.status.with_context(address_ + " refused the connection"));
    connection_ = std::move(result->connection);
    connection_->start(
        {.on_message = [this](std::vector<std::byte> message) { on_message(message); },
         .on_closed = [this](Status reason) { on_closed(reason); }});
    return {};
  };
  loop_.post([&] {
    transport_.connect(address_, login, timeout_ms, [&](Result<ClientTransport::Connected> result) {
      connected.set_value(greeted(std::move(result)));
    });
  });
  return connected.get_future().get();
}

Result<ExposedMemory> Channel::expose(Bytes memory) {
  // The server only pulls from it; the transport has one kind of registration.
  MutableBytes bytes{const_cast<std::byte*>(memory.data()), memory.size()};
  ExposedMemory exposed;
  exposed.registration = memory_->find(memory);
  if (!exposed.registration) {
    PRECIS_ASSIGN(exposed.registration, transport_.register_memory(bytes));
  }
  PRECIS_ASSIGN(exposed.exposure, expose(*exposed.registration, bytes));
  return exposed;
}

Result<std::unique_ptr<Exposure>> Channel::expose(Registration& registration, MutableBytes memory) {
  return connection_->expose(registration, memory);
}

Channel::Prepared Channel::prepare_call(msg::Request& request, Patience patience,
                                        std::vector<ExposedMemory> memory, Time deadline,
                                        bool hurried) {
  auto reply = std::make_shared<OneReply>();
  PendingRequest pending;
  pending.sink = reply;
  pending.patience = patience;
  pending.memory = std::move(memory);
  pending.deadline = deadline;
  pending.hurried = hurried;
  auto send = prepare(request, std::move(pending));
  return {{request.id, std::move(reply)}, std::move(send)};
}

Result<msg::ReplyBody> Channel::wait_reply(msg::Request& request, Patience patience,
                                           std::vector<ExposedMemory> memory, Time deadline) {
  const auto [call, send] =
      prepare_call(request, patience, std::move(memory), deadline, /*hurried=*/true);
  const Interrupt interrupt;
  // Driving the loop here saves waking two threads: the loop's, and then this one.
  const auto pause = [&reply = *call.reply, &interrupt] {
    return reply.there() || interrupt.due();
  };
  if (!loop_.drive(send, pause)) loop_.post(send);
  return wait_reply(call);
}

Result<msg::ReplyBody> Channel::wait_reply(const Call& call) {
  Interrupt interrupt;
  const auto pause = [&] { return call.reply->there() || interrupt.due(); };
  while (!call.reply->ready()) {
    if (interrupt.came()) {
      loop_.post([this, id = call.id] { interrupt_request(id, "interrupted"); });
      break;
    }
    if (!loop_.drive([] {}, pause)) call.reply->wait_until(interrupt.next());
  }
  return call.reply->take();
}

Channel::Call Channel::begin(msg::Request& request, Patience patience,
                             std::vector<ExposedMemory> memory, Time deadline) {
  // Wakes no thread for the request: either this thread waits soon, or the loop's own thread looks
  // after a while and stays as long as a request is pending.
  auto [call, send] =
      prepare_call(request, patience, std::move(memory), deadline, /*hurried=*/false);
  if (!loop_.drive(send, [] { return true; })) loop_.post(std::move(send));
  return call;
}

void Channel::call_off(const Call& call) {
  loop_.post([this, id = call.id] { interrupt_request(id, "called off"); });
  call.reply->wait_until(Time::max());
}

std::uint64_t Channel::start(msg::Request& request, PendingRequest pending, bool awaited) {
  const auto send = prepare(request, std::move(pending));
  const auto send_now = [&] {
    send();
    if (awaited && pending_.size() == 1) loop_.rest();
  };
  if (!loop_.drive(send_now, [] { return true; })) loop_.post(send);
  return request.id;
}

std::function<void()> Channel::prepare(msg::Request& request, PendingRequest pending) {
  const std::uint64_t id = next_id_.fetch_add(1, std::memory_order_relaxed);
  request.id = id;
  pending.name = kind_of(request.body).call;
  auto shared = std::make_shared<PendingRequest>(std::move(pending));
  const bool counted = shared->sink != nullptr;
  Status refused;
  if (counted && calls_.fetch_add(1) >= kCallsMax) {
    refused = Status::rejected(std::to_string(kCallsMax) +
                               " requests are under way on this connection, the most there may "
                               "be: wait for one of them");
  }
  std::vector<std::byte> message = encode(request);
  if (refused.ok() && message.size() > limits::kMessageBytesMax) {
    refused =
        Status::invalid("the request makes a message of " + std::to_string(message.size()) +
                        " B, the limit is " + std::to_string(limits::kMessageBytesMax) + " B");
  }
  return [this, id, refused, shared, message = std::move(message)]() mutable {
    if (!refused.ok()) return settle(*shared, refused);
    submit(id, std::move(message), std::move(shared));
  };
}

void Channel::tell(msg::RequestBody body) {
  msg::Request request{0, std::move(body)};
  loop_.post(prepare(request, PendingRequest{}));
}

void Channel::submit(std::uint64_t id, std::vector<std::byte> message,
                     std::shared_ptr<PendingRequest> request) {
  if (!closed_.ok()) return settle(*request, closed_);
  request->started = steady_clock::now();
  const bool hurried = request->hurried;
  ask_to_yield();
  pending_.emplace(id, std::move(request));
  connection_->send(std::move(message));
  if (hurried) loop_.expect();
  arm_timer();
}

void Channel::on_message(const std::vector<std::byte>& bytes) {
  last_heard_ = steady_clock::now();
  auto message = decode_server_message(bytes);
  if (!message.ok()) {
    return give_up("it sent a message that does not decode: " + message.status().message());
  }
  if (auto* served = std::get_if<msg::LayerServed>(&*message)) {
    // An id that is not pending belongs to a request that timed out here; the server cannot know.
    const auto found = pending_.find(served->id);
    if (found != pending_.end() && found->second->sink) {
      found->second->sink->on_layer(std::move(*served));
    }
    return;
  }
  auto& reply = std::get<msg::Reply>(*message);
  if (reply.id == 0) {
    // The server could not read the request's id, so the waiting caller is unknown.
    return give_up("it did not understand a request: " + reply.status.message());
  }
  const auto* begun = std::get_if<msg::PutBegun>(&reply.body);
  if (begun != nullptr && reply.status.ok() && !pending_.contains(reply.id)) {
    // The caller no longer waits for this put, and nobody else would end it.
    connection_->send(encode(msg::Request{next_id_.fetch_add(1), msg::AbortPut{begun->put}}));
    return;
  }
  if (reply.status.ok()) {
    answer(reply.id, std::move(reply.body));
  } else {
    answer(reply.id, std::move(reply.status));
  }
}

// The two sides no longer understand each other: no further message can be trusted.
void Channel::give_up(const std::string& why) {
  on_closed(Status::unavailable(why));
  connection_->close();
}

void Channel::answer(std::uint64_t id, Result<msg::ReplyBody> reply) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;
  const std::shared_ptr<PendingRequest> request = std::move(found->second);
  pending_.erase(found);
  if (id == probe_) probe_ = 0;
  settle(*request, std::move(reply));
  note_drained();
  if (pending_.empty()) loop_.rest();
}

// Ends the request. Its memory is closed to the server before the caller gets the reply.
void Channel::settle(PendingRequest& request, Result<msg::ReplyBody> reply) {
  request.memory.clear();
  tell_sink(request, std::move(reply));
}

void Channel::tell_sink(PendingRequest& request, Result<msg::ReplyBody> reply) {
  if (!request.sink) return;
  const std::shared_ptr<ReplySink> sink = std::move(request.sink);
  calls_.fetch_sub(1);
  sink->on_reply(std::move(reply));
}

void Channel::on_closed(const Status& reason) {
  if (!closed_.ok()) return;
  closed_ = Status::unavailable("the connection to " + address_ + " is gone: " +
                                (reason.ok() ? "the service closed it" : reason.message()));
  lost_ = true;
  auto gone = std::move(pending_);
  pending_.clear();
  for (auto& [id, request] : gone) settle(*request, closed_);
  note_drained();
}

void Channel::send_cancel(std::uint64_t id) {
  connection_->send(encode(msg::Request{next_id_.fetch_add(1), msg::Cancel{id}}));
}

void Channel::note_drained() {
  if (drained_ == nullptr) return;
  const bool holding = std::any_of(pending_.begin(), pending_.end(),
                                   [](const auto& row) { return row.second->held != nullptr; });
  if (!holding) std::exchange(drained_, nullptr)->set_value();
}

void Channel::arm_timer() {
  if (pending_.empty()) return;
  const auto now = steady_clock::now();
  Time due = now + tick_of(timeout_);
  for (const auto& [id, request] : pending_) {
    if (request->sink) due = std::min(due, request->deadline);
  }
  due = std::max(due, now + kTickMin);
  if (timer_ && timer_due_ <= due) return;
  timer_due_ = due;
  timer_ = loop_.after(due - now, [this] {
    const auto fired = std::move(timer_);  // keeps the timer alive until its callback ends
    const auto late_by = steady_clock::now() - timer_due_;
    if (late_by > tick_of(timeout_)) forgive(late_by);
    check_deadlines();
    arm_timer();
  });
}

// This process did not run for so long: it was stopped or got no processor time. The service's
// messages of that time wait to be read, so its silence does not count. (A caller's deadline is a
// fixed time and stays.)
void Channel::forgive(steady_clock::duration lost) {
  last_heard_ += lost;
  for (const auto& [id, request] : pending_) request->started += lost;
}

void Channel::check_deadlines() {
  const auto now = steady_clock::now();
  std::vector<std::uint64_t> late;
  bool ask = false;
  for (const auto& [id, request] : pending_) {
    const bool patient = request->patience == Patience::kWhileAlive;
    const auto since = patient ? std::max(request->started, last_heard_) : request->started;
    const bool waited_for = request->sink || !request->held;
    const bool too_late = now - since >= timeout_ || now >= request->deadline;
    if (waited_for && too_late) late.push_back(id);
    if (patient && now - since >= timeout_ / 2) ask = true;
  }
  for (const std::uint64_t id : late) expire(id);
  if (ask && probe_ == 0) {
    probe_ = next_id_.fetch_add(1);
    submit(probe_, encode(msg::Request{probe_, msg::Ping{}}), std::make_shared<PendingRequest>());
  }
}

void Channel::expire(std::uint64_t id) {
  const std::shared_ptr<PendingRequest> request = pending_.at(id);
  const bool deadline = steady_clock::now() >= request->deadline;
  const Status status = Status::timed_out(
      std::string(request->name) + ": " +
      (deadline ? "its deadline passed, it waited for the answer of " + address_
                : address_ + " did not answer within " + std::to_string(timeout_.count()) + " ms") +
      "; the outcome is unknown");
  give_up(id, status);
}

void Channel::interrupt_request(std::uint64_t id, const char* why) {
  if (const auto found = pending_.find(id); found != pending_.end()) {
    give_up(id, Status::canceled(std::string(found->second->name) + ": " + why +
                                 "; the outcome is unknown"));
  }
}

void Channel::give_up(std::uint64_t id, const Status& status) {
  const std::shared_ptr<PendingRequest> request = pending_.at(id);
  if (!request->held) return answer(id, status);
  send_cancel(id);
  tell_sink(*request, status);
}

}  // namespace precis

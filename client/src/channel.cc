#include "client/src/channel.h"

#include <algorithm>
#include <utility>

#include "cachesvc/base/executor.h"
#include "client/src/one_reply.h"
#include "client/src/retry.h"

namespace precis {
namespace {

constexpr char kClientName[] = "precis-cpp/" PRECIS_VERSION;

}  // namespace

Channel::Channel(std::shared_ptr<void> keep_alive, Runtime& runtime, EventLoop& loop,
                 ClientTransport& transport, std::shared_ptr<const HostMemory> memory,
                 std::string address, const ConnectOptions& options)
    : keep_alive_(std::move(keep_alive)),
      clock_(runtime.clock()),
      loop_(loop),
      transport_(transport),
      memory_(std::move(memory)),
      address_(std::move(address)),
      timeout_(std::max<std::uint32_t>(options.timeout_ms, 1)),
      buffers_(std::make_unique<BufferPool>(transport)),
      verifier_(runtime.make_executor("precis-verify", 1)),
      pending_(timeout_) {}

Result<std::shared_ptr<Channel>> Channel::open(std::shared_ptr<void> keep_alive, Runtime& runtime,
                                               EventLoop& loop, ClientTransport& transport,
                                               std::shared_ptr<const HostMemory> memory,
                                               const std::string& address,
                                               const ConnectOptions& options,
                                               std::uint32_t connect_timeout_ms) {
  // Shared by the Client, its Puts and its Prefixes: each keeps the channel it needs.
  std::shared_ptr<Channel> channel(new Channel(std::move(keep_alive), runtime, loop, transport,
                                               std::move(memory), address, options));
  PRECIS_TRY(channel->connect(options, connect_timeout_ms));
  return channel;
}

Channel::~Channel() {
  PRECIS_CHECK(!loop_.on_loop_thread());
  // A get in flight writes into memory that this object owns: cancel it first.
  const auto drained = std::make_shared<OneValue<bool>>();
  run_on_loop([this, drained] {
    drained_ = drained;
    for (const std::uint64_t id : pending_.holding_memory()) send_cancel(id);
    note_drained();
  });
  drained->wait(clock_, clock_.now() + timeout_);
  run_on_loop([this] {
    drained_ = nullptr;
    timer_.reset();
    connection_.reset();
    pending_.take_all();
  });
  verifier_.reset();
  buffers_.reset();
}

void Channel::run_on_loop(std::function<void()> fn) {
  const auto done = std::make_shared<OneValue<bool>>();  // shared: the loop may leave it last
  loop_.post([&fn, done] {
    fn();
    done->set(true);
  });
  done->wait(clock_);
}

Status Channel::connect(const ConnectOptions& options, std::uint32_t timeout_ms) {
  const Login login{options.client_name.empty() ? kClientName : options.client_name, options.tenant,
                    options.token};
  for (const std::string* name : {&login.client, &login.tenant}) {
    if (name->size() <= limits::kNameBytesMax) continue;
    return Status::invalid("client_name or tenant has " + std::to_string(name->size()) +
                           " B, the limit is " + std::to_string(limits::kNameBytesMax) + " B");
  }
  const auto connected = std::make_shared<OneValue<Status>>();
  auto greeted = [&](Result<ClientTransport::Connected> result) -> Status {
    if (!result.ok()) {
      const bool named = result.status().message().find(address_) != std::string::npos;
      return named ? result.status() : result.status().with_context("connect to " + address_);
    }
    PRECIS_TRY(result->welcome.status.with_context(address_ + " refused the connection"));
    clustered_ = result->welcome.clustered;
    connection_ = std::move(result->connection);
    connection_->start(
        {.on_message = [this](std::vector<std::byte> message) { on_message(message); },
         .on_closed = [this](Status reason) { on_closed(reason); }});
    return {};
  };
  loop_.post([&, connected] {
    transport_.connect(address_, login, timeout_ms,
                       [&greeted, connected](Result<ClientTransport::Connected> result) {
                         connected->set(greeted(std::move(result)));
                       });
  });
  connected->wait(clock_);
  return connected->take();
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
  const Interrupt interrupt(clock_);
  // Driving the loop here saves waking two threads: the loop's, and then this one.
  const auto pause = [&reply = *call.reply, &interrupt] {
    return reply.ready() || interrupt.due();
  };
  if (!loop_.drive(send, pause)) loop_.post(send);
  return wait_reply(call);
}

Result<msg::ReplyBody> Channel::wait_reply(const Call& call) {
  Interrupt interrupt(clock_);
  const auto pause = [&] { return call.reply->ready() || interrupt.due(); };
  while (!call.reply->ready()) {
    if (interrupt.came()) {
      loop_.post([this, id = call.id] { interrupt_request(id, "interrupted"); });
      call.reply->wait(clock_);
      break;
    }
    if (!loop_.drive([] {}, pause)) call.reply->wait(clock_, interrupt.next());
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

void Channel::cancel(const Call& call) {
  loop_.post([this, id = call.id] { interrupt_request(id, "called off"); });
  call.reply->wait(clock_);
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
  const bool hurried = request->hurried;
  ask_to_yield();
  pending_.add(id, std::move(request));
  connection_->send(std::move(message));
  if (hurried) loop_.expect();
  arm_timer();
}

void Channel::on_message(const std::vector<std::byte>& bytes) {
  pending_.heard();
  auto message = decode_server_message(bytes);
  if (!message.ok()) {
    return give_up("it sent a message that does not decode: " + message.status().message());
  }
  if (auto* served = std::get_if<msg::LayerServed>(&*message)) {
    // An id that is not pending belongs to a request that timed out here; the server cannot know.
    const auto request = pending_.find(served->id);
    if (request && request->sink) request->sink->on_layer(std::move(*served));
    return;
  }
  auto& reply = std::get<msg::Reply>(*message);
  if (reply.id == 0) {
    // The server could not read the request's id, so the waiting caller is unknown.
    return give_up("it did not understand a request: " + reply.status.message());
  }
  const auto* begun = std::get_if<msg::PutBegun>(&reply.body);
  if (begun != nullptr && reply.status.ok() && !pending_.find(reply.id)) {
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
  const auto request = pending_.take(id);
  if (!request) return;
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
  for (const auto& request : pending_.take_all()) settle(*request, closed_);
  note_drained();
}

void Channel::send_cancel(std::uint64_t id) {
  connection_->send(encode(msg::Request{next_id_.fetch_add(1), msg::Cancel{id}}));
}

void Channel::note_drained() {
  if (drained_ == nullptr) return;
  if (pending_.holding_memory().empty()) std::exchange(drained_, nullptr)->set(true);
}

void Channel::arm_timer() {
  if (pending_.empty()) return;
  const Time now = clock_.now();
  const Time due = pending_.next_check(now);
  if (timer_ && timer_due_ <= due) return;
  timer_due_ = due;
  timer_ = loop_.after(due - now, [this] {
    const auto fired = std::move(timer_);  // keeps the timer alive until its callback ends
    pending_.checked_late(timer_due_);
    check_deadlines();
    arm_timer();
  });
}

void Channel::check_deadlines() {
  const Time now = clock_.now();
  const bool ask = pending_.need_ping(now);
  for (const std::uint64_t id : pending_.late(now)) {
    const auto request = pending_.find(id);
    if (request) give_up(id, pending_.too_late(*request, address_));
  }
  if (ask && probe_ == 0) {
    probe_ = next_id_.fetch_add(1);
    submit(probe_, encode(msg::Request{probe_, msg::Ping{}}), std::make_shared<PendingRequest>());
  }
}

void Channel::interrupt_request(std::uint64_t id, const char* why) {
  if (const auto request = pending_.find(id)) {
    give_up(id,
            Status::canceled(std::string(request->name) + ": " + why + "; the outcome is unknown"));
  }
}

void Channel::give_up(std::uint64_t id, const Status& status) {
  const auto request = pending_.find(id);
  if (!request->held) return answer(id, status);
  send_cancel(id);
  tell_sink(*request, status);
}

}  // namespace precis

#include "cachesvc/server/peer.h"

#include <optional>
#include <utility>

#include "cachesvc/base/executor.h"
#include "precis/limits.h"

namespace precis {
namespace {

// True if a request that ended with `code` was refused. kNotFound is an answer. A request that is
// rejected because of overload is counted elsewhere, and the client retries it. If the path or
// session has moved, the client asks another node. A request that timed out, or whose client or
// service went away, was not refused.
bool is_refusal(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kPermissionDenied:
    case StatusCode::kOutOfSpace:
    case StatusCode::kVersionMismatch:
    case StatusCode::kUnsupported:
    case StatusCode::kCorruption:
    case StatusCode::kInternal:
    case StatusCode::kConflict: return true;
    case StatusCode::kOk:
    case StatusCode::kNotFound:
    case StatusCode::kRejected:
    case StatusCode::kTimedOut:
    case StatusCode::kUnavailable:
    case StatusCode::kMoved:
    case StatusCode::kCanceled: return false;
  }
  return true;
}

}  // namespace

Peer::Peer(const HandlerParts& parts, Tenant tenant, std::string client,
           std::unique_ptr<Connection> connection)
    : parts_(parts),
      client_(std::move(client)),
      tenant_(std::move(tenant)),
      connection_(std::move(connection)),
      owner_(tenant_.owner(connection_.get())),
      connection_part_(parts.admission.connections, owner_),
      request_part_(parts.admission.requests, owner_),
      byte_part_(parts.admission.message_bytes, owner_),
      counted_(Quota::take(connection_part_, 1)),
      handlers_({parts, tenant_, client_, *connection_}, [this](msg::LayerServed served) {
        return send(encode(msg::ServerMessage(std::move(served))));
      }) {
  ++parts_.metrics.connections;
  ++parts_.metrics.connected;
}

Peer::~Peer() { --parts_.metrics.connected; }

void Peer::start(std::function<void(const std::shared_ptr<Peer>&)> closed) {
  closed_ = std::move(closed);
  // Debug level, because every precisctl command is a connection. Changes that the client makes,
  // and refused connections, are logged at higher levels.
  parts_.log.debug("client connected", {{"client", client_},
                                        {"from", connection_->peer()},
                                        {"tenant", tenant_.name},
                                        {"transport", connection_->description()}});
  connection_->take_turns([&turns = parts_.turns, owner = owner_](std::function<void()> turn) {
    turns.ask(owner, std::move(turn));
  });
  // This object owns the connection, which calls no handler after its destruction.
  connection_->start({[this](std::vector<std::byte> message) { on_message(std::move(message)); },
                      [this](const Status& why) { on_closed(why); }});
}

void Peer::close(const std::string& why) {
  if (open_) connection_->close();
  on_closed(Status::unavailable(why));
}

void Peer::on_closed(const Status& why) {
  if (!std::exchange(open_, false)) return;
  const Log::Fields fields = {{"client", client_},
                              {"from", connection_->peer()},
                              {"tenant", tenant_.name},
                              {"why", why.message()}};
  switch (why.code()) {
    case StatusCode::kUnavailable:
    case StatusCode::kCanceled:
    case StatusCode::kTimedOut: parts_.log.debug("client left", fields); break;
    case StatusCode::kRejected:
      ++parts_.metrics.clients_shed;
      parts_.log.warn("client shed", fields);
      break;
    case StatusCode::kInvalidArgument:
    case StatusCode::kCorruption:
    case StatusCode::kVersionMismatch:
      parts_.log.warn("client broke the protocol", fields);
      parts_.audit.write(who(), {.what = "Connection", .outcome = why});
      break;
    default: parts_.log.warn("client lost", fields);
  }
  handlers_.cancel();
  const auto self = shared_from_this();  // closed_ releases the last other reference
  closed_(self);
}

void Peer::disconnect(const std::string& why) {
  if (!open_) return;
  connection_->close();
  on_closed(Status::rejected(why));
}

void Peer::free_for_waiters(std::chrono::steady_clock::duration silence) {
  if (!open_) return;
  if (const std::size_t puts = handlers_.give_up_silent_puts(silence); puts > 0) {
    parts_.log.warn("puts given up",
                    {{"client", client_},
                     {"from", connection_->peer()},
                     {"tenant", tenant_.name},
                     {"puts", puts},
                     {"why", "they received nothing while other requests waited for memory"}});
  }
  const auto since = connection_->stalled_since();
  if (since && parts_.clock.now() - *since > silence) {
    disconnect("its transfers made too little progress while other requests waited for memory");
  }
}

Result<Peer::Admitted> Peer::admit(bool ends, std::size_t size_bytes) {
  // A request that ends something skips the quotas: otherwise a connection at its limits could not
  // release anything. Such requests are limited too, because each needs an answer.
  if (in_flight_ >= limits::kRequestsInFlightPerConnectionMax * (ends ? 2 : 1)) {
    return Status::rejected("this connection has " + std::to_string(in_flight_) +
                                " unanswered requests, which is the limit",
                            limits::kRetryAfterRequestsMs);
  }
  Admitted admitted;
  if (ends) return admitted;
  PRECIS_TRY(parts_.admission.rates.take(tenant_.name, parts_.clock.now()));
  PRECIS_ASSIGN(admitted.request, Quota::take(request_part_, 1));
  PRECIS_ASSIGN(admitted.bytes, Quota::take(byte_part_, size_bytes));
  return admitted;
}

void Peer::on_message(std::vector<std::byte> message) {
  ask_to_yield();
  if (message.size() > kSmallRequestBytes) {
    auto admitted = admit(/*ends=*/false, message.size());
    if (!admitted.ok()) {
      return reply(request_id(message).value_or(0), admitted.status(), {"unknown"});
    }
    ++in_flight_;
    return spawn(take_long(shared_from_this(), std::move(message), std::move(admitted).value()));
  }
  auto request = decode_request(message);
  if (!request.ok()) {
    return not_understood(request_id(message).value_or(0), message.size(), request.status());
  }
  const bool ends = std::holds_alternative<msg::AbortPut>(request->body) ||
                    std::holds_alternative<msg::Cancel>(request->body);
  auto admitted = admit(ends, message.size());
  if (!admitted.ok()) {
    return reply(request->id, admitted.status(), kind_of(request->body), subject_of(request->body));
  }
  ++in_flight_;
  spawn(answer(shared_from_this(), std::move(request).value(), std::move(admitted).value()));
}

// Decodes and frees the message off the loop: decoding a path of 16M tokens copies 64 MiB.
Task<void> Peer::take_long(std::shared_ptr<Peer> self, std::vector<std::byte> message,
                           Admitted admitted) {
  const std::size_t size_bytes = message.size();
  std::uint64_t id = 0;
  std::optional<Result<msg::Request>> request;
  const double pieces = static_cast<double>(size_bytes) /
                        static_cast<double>(PathHasher::kPieceTokens * sizeof(TokenId));
  co_await in_turns(
      parts_.paths.turns(), parts_.loop, owner_,
      [&] {
        request.emplace(decode_request(message));
        if (!request->ok()) id = request_id(message).value_or(0);
        std::vector<std::byte>().swap(message);
        return false;
      },
      pieces);
  if (!open_) {
    --in_flight_;
    co_return;
  }
  if (!request->ok()) {
    --in_flight_;
    not_understood(id, size_bytes, request->status());
    co_return;
  }
  co_await answer(std::move(self), std::move(*request).value(), std::move(admitted));
}

// The transport frames messages, so the next message is still readable. If the id cannot be read,
// the reply has id 0. Only the connection's first such message is logged, so that a client cannot
// fill the log.
void Peer::not_understood(std::uint64_t id, std::size_t size_bytes, const Status& why) {
  if (!std::exchange(told_not_understood_, true)) {
    parts_.log.warn("request not understood", {{"client", client_},
                                               {"from", connection_->peer()},
                                               {"tenant", tenant_.name},
                                               {"bytes", size_bytes},
                                               {"status", why.message()}});
  }
  reply(id, why, {"unknown"});
}

Task<void> Peer::answer(std::shared_ptr<Peer> self, msg::Request request, Admitted admitted) {
  // Released before `self`, which owns the quota's parts.
  const Admitted held = std::move(admitted);
  const RequestKind& kind = kind_of(request.body);
  const std::string of = subject_of(request.body);
  Answer answer = co_await handlers_.handle(request.id, std::move(request.body));
  --self->in_flight_;
  reply(request.id, std::move(answer), kind, of);
}

// Writes refusals to the audit log. Logs the failures that concern an operator at info level:
// administrative requests and lack of space. Other failures concern only the client and its user.
void Peer::note_failed(const RequestKind& request, const std::string& of, const Status& why) {
  const Log::Fields fields = {{"client", client_},
                              {"from", connection_->peer()},
                              {"tenant", tenant_.name},
                              {"request", request.type},
                              {"status", why.to_string()}};
  if (request.administrative || is_refusal(why.code())) {
    parts_.audit.write(who(), {.what = request.type, .of = of, .outcome = why});
  }
  const bool matters = request.administrative || why.code() == StatusCode::kOutOfSpace;
  if (matters && parts_.refused.allow()) return parts_.log.info("request refused", fields);
  parts_.log.debug("request failed", fields);
}

void Peer::reply(std::uint64_t id, Answer answer, const RequestKind& request,
                 const std::string& of) {
  ++parts_.metrics.requests;
  msg::Reply reply;
  reply.id = id;
  if (answer.ok()) {
    reply.body = std::move(answer).value();
  } else {
    ++parts_.metrics.requests_failed;
    reply.status = answer.status();
    if (reply.status.code() == StatusCode::kRejected) ++parts_.metrics.requests_rejected;
    note_failed(request, of, reply.status);
  }
  if (!open_) return;
  const Status sent = send(encode(msg::ServerMessage(std::move(reply))));
  if (!sent.ok() && open_) {
    connection_->send(encode(msg::ServerMessage(msg::Reply{id, sent, msg::Done{}})));
  }
}

Status Peer::send(std::vector<std::byte> message) {
  if (!open_) return {};
  Status may = check_reply_size(message.size());
  if (!may.ok()) {
    ++parts_.metrics.requests_failed;
    if (parts_.refused.allow()) {
      parts_.log.warn("reply too large", {{"client", client_}, {"why", may.message()}});
    }
    return may;
  }
  // Checked only if it may matter, because the check looks at every connection.
  if (message.size() + connection_->unsent_bytes() > kSmallAnswerBytes) {
    may = parts_.may_send(tenant_.name, message.size());
    if (!may.ok()) ++parts_.metrics.requests_rejected;
    PRECIS_TRY(may);
  }
  if (open_) connection_->send(std::move(message));
  return {};
}

}  // namespace precis

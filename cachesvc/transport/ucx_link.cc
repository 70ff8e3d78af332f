#include "cachesvc/transport/ucx_link.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "cachesvc/transport/ucx_bulk.h"
#include "cachesvc/transport/ucx_status.h"
#include "precis/limits.h"

namespace precis {
namespace {

// How long a peer may take to hear that the link ends and to end its own side.
constexpr std::chrono::seconds kGoodbyeTimeout{1};

// Bulk of up to here is moved in less time than a message takes.
constexpr std::size_t kLittleBytes = 256u << 10;

// Arrived and not handed out: all that the peer may have on the way, and the message that it is on.
constexpr std::size_t kInboxBytesMax = limits::kSendQueueBytesMax + limits::kMessageBytesMax;

// What an arrival takes besides its bytes: those of none are bounded in number by it.
constexpr std::size_t kArrivalBytes = 128;

// The family of the transport that carries the messages, from UCX's list of lanes.
std::string_view message_transport(std::string_view lanes) {
  for (std::size_t at = 0; at < lanes.size();) {
    const std::size_t end = std::min(lanes.find('\n', at), lanes.size());
    const std::string_view line = lanes.substr(at, end - at);
    at = end + 1;
    if (line.find("lane[") == line.npos || line.find(" am ") == line.npos) continue;
    for (const char* shm : {":posix/", ":sysv/"}) {
      if (line.find(shm) != line.npos) return "shm";
    }
    return line.find(":tcp/") != line.npos ? "tcp" : "rdma";
  }
  return "ucx";
}

}  // namespace

Status BulkMeans::on_region(const AmHeader& header) {
  return Status::invalid("the peer speaks of region " + std::to_string(header.region) +
                         " where nobody asked");
}

Result<std::shared_ptr<UcxLink>> UcxLink::make(EventLoop& loop, UcxWorker& worker, UcxInbox& inbox,
                                               Ids ids, const std::vector<std::byte>& peer_address,
                                               std::function<void()> on_end) {
  // Shared by the transport, the Connection, and every operation under way.
  std::shared_ptr<UcxLink> link(new UcxLink(loop, worker, inbox, ids, std::move(on_end)));
  link->on_ucx_error_ = [weak = std::weak_ptr(link)](ucs_status_t status) {
    const auto self = weak.lock();
    if (!self) return;
    // Not at once: UCX is in the middle of its progress.
    self->loop_.post([self, status] { self->end(to_status(status, "UCX lost the peer")); });
  };
  PRECIS_ASSIGN(link->endpoint_, worker.connect(peer_address, &link->on_ucx_error_));
  link->lanes_ = UcxWorker::describe(link->endpoint_);
  link->use_means(nullptr);
  return link;
}

UcxLink::UcxLink(EventLoop& loop, UcxWorker& worker, UcxInbox& inbox, Ids ids,
                 std::function<void()> on_end)
    : loop_(loop),
      worker_(worker),
      all_inboxes_(inbox),
      ids_(ids),
      on_end_(std::move(on_end)),
      message_bulk_(std::make_unique<UcxMessageBulk>(*this)) {}

UcxLink::~UcxLink() = default;

void UcxLink::reach(std::function<void(const Status&)> reached) {
  worker_.flush(
      endpoint_, [self = shared_from_this(), reached = std::move(reached)](ucs_status_t status) {
        self->loop_.post([self, status, reached] {
          reached(self->over() ? self->ended_ : to_status(status, "UCX reached the peer"));
        });
      });
}

void UcxLink::use_stream(Executor* senders) {
  streams_ = true;
  senders_ = senders;
}

void UcxLink::watch(std::unique_ptr<PrefaceSocket> socket) {
  socket_ = std::move(socket);
  const auto on_gone = [weak = weak_from_this()](const Status& gone) {
    const auto self = weak.lock();
    if (!self) return;
    self->loop_.post([self] {});  // alive until the caller, which it owns, has returned
    // What the peer sent before it went may still stand in UCX's queues.
    self->worker_.progress();
    self->end(gone);
  };
  if (!streams_) return socket_->watch(on_gone);
  stream_ = std::make_unique<BulkStream>(
      loop_, socket_->descriptor(), senders_,
      BulkStream::Handlers{.begin = [this](const AmHeader& header) -> Result<MutableBytes> {
                             if (header.link_id == ids_.mine) return message_bulk_->begin(header);
                             return Status::invalid("the peer's stream is of another link");
                           },
                           .end = [this](const AmHeader& header) { message_bulk_->end(header); },
                           .moved = [this] { worker_.progress(); },
                           .gone = on_gone});
}

void UcxLink::progress() {
  worker_.progress();
  if (stream_) stream_->poll();
}

void UcxLink::send_bulk(AmHeader header, const std::vector<Bytes>& data, UcxDone done) {
  if (!stream_) return send_am(header, data, std::move(done));
  header.link_id = ids_.peers;
  stream_->send(header, data,
                [done = std::move(done)](bool sent) { done(sent ? UCS_OK : UCS_ERR_CANCELED); });
}

BulkMeans& UcxLink::moving() { return means_ ? *means_ : *message_bulk_; }

void UcxLink::use_means(std::unique_ptr<BulkMeans> means) {
  means_ = std::move(means);
  queue_ = std::make_unique<BulkQueue>(
      moving().limits(), [&moving = moving()](BulkChunk chunk, BulkQueue::Ended ended) {
        moving.move(std::move(chunk), std::move(ended));
      });
}

void UcxLink::announce(std::uint64_t region, RegionTable::Access leave) {
  if (over()) return;
  leaves_.emplace(region, std::move(leave));
  AmHeader header;
  header.kind = AmKind::kExposed;
  header.region = region;
  send_am(header, {}, [](ucs_status_t) {});
}

void UcxLink::revoke(std::uint64_t region) {
  if (!leaves_.contains(region)) return;
  AmHeader header;
  header.kind = AmKind::kRevoke;
  header.region = region;
  send_am(header, {}, [](ucs_status_t) {});
}

void UcxLink::drop_pages(std::uint64_t id) {
  AmHeader header;
  header.kind = AmKind::kDropped;
  header.region = id;
  send_am(header, {}, [](ucs_status_t) {});
}

void UcxLink::use_window(std::unique_ptr<HostWindow> window) { window_ = std::move(window); }

void UcxLink::start(Connection::Handlers handlers) {
  handlers_ = std::make_shared<Connection::Handlers>(std::move(handlers));
  schedule_delivery();
}

void UcxLink::send(std::vector<std::byte> message) {
  if (over() || closing_) return;
  const std::size_t size = message.size();
  if (size > limits::kMessageBytesMax) {
    return end(Status::invalid("this side's message of " + std::to_string(size) +
                               " B exceeds the limit of " +
                               std::to_string(limits::kMessageBytesMax) + " B"));
  }
  if (unsent_bytes_ += size; unsent_bytes_ > limits::kSendQueueBytesMax) {
    return end(Status::rejected("the peer does not read: more than " +
                                std::to_string(limits::kSendQueueBytesMax) + " B wait for it"));
  }
  // An empty one travels alone, and is all there is where the outbox has no bytes.
  if (size == 0 || outbox_bytes_ == 0 || outbox_bytes_ + size > kTogetherBytesMax) flush();
  outbox_bytes_ += size;
  outbox_.push_back(std::move(message));
  if (outbox_.size() == 1) loop_.post([self = shared_from_this()] { self->flush(); });
}

// What one turn of the loop had to say, in one go: a message costs both sides more than its bytes.
void UcxLink::flush() {
  if (outbox_.empty()) return;
  AmHeader header;
  header.kind = AmKind::kMessage;
  header.op = next_out_++;
  header.offset = outbox_.size();
  const std::size_t size = std::exchange(outbox_bytes_, 0);
  // Shared with the operation only: std::function wants what it holds to be copyable.
  auto bytes = std::make_shared<std::vector<std::byte>>(pack_messages(std::exchange(outbox_, {})));
  header.size_bytes = bytes->size();
  send_am(header, {Bytes(*bytes)},
          [self = shared_from_this(), bytes, size](ucs_status_t) { self->unsent_bytes_ -= size; });
}

void UcxLink::send_am(AmHeader header, const std::vector<Bytes>& data, UcxDone done) {
  if (over()) return done(UCS_ERR_CANCELED);
  header.link_id = ids_.peers;
  worker_.send(
      endpoint_, header, data,
      [self = shared_from_this(), done = std::move(done)](ucs_status_t status) {
        done(status);
        if (status == UCS_OK || self->over()) return;
        self->loop_.post([self, status] { self->end(to_status(status, "send to the peer")); });
      });
}

void UcxLink::bulk(BulkTransfer::Kind kind, const RemoteRegion& remote, std::uint64_t offset,
                   std::vector<MutableBytes> local, const Registration& registration,
                   Completion done) {
  auto later = [&loop = loop_, done = std::move(done)](Status status) {
    loop.post([done, status = std::move(status)] { done(status); });
  };
  std::size_t size_bytes = 0;
  for (const MutableBytes range : local) size_bytes += range.size();
  auto transfer = BulkTransfer::make(kind, remote, offset, std::move(local), registration, later);
  if (!transfer.ok()) return later(transfer.status());
  // What was said before would wait for cores, or for as long as the kernel takes bytes; beside
  // little it had better travel with what follows.
  if (size_bytes > kLittleBytes) flush();
  queue_->add(std::move(*transfer));
}

std::shared_ptr<const PeerMemory> UcxLink::read_in_place(const RemoteRegion& region) {
  return over() ? nullptr : moving().read_in_place(region);
}

void UcxLink::close() {
  handlers_ = nullptr;
  if (over() || std::exchange(closing_, true)) return;
  queue_->fail(Status::canceled("the connection was closed on this side"));
  flush();
  AmHeader goodbye;
  goodbye.kind = AmKind::kGoodbye;
  goodbye.op = next_out_;
  send_am(goodbye, {}, [](ucs_status_t) {});
  closing_timer_ = loop_.after(kGoodbyeTimeout, [self = shared_from_this()] {
    self->end(Status::canceled("the connection was closed on this side"));
  });
}

void UcxLink::end(const Status& reason) {
  if (over()) return;
  const auto self = shared_from_this();
  ended_ = reason;
  all_inboxes_.bytes -= inbox_bytes_;
  const auto timer = std::move(closing_timer_);
  queue_->fail(reason);
  if (stream_) stream_->close();
  message_bulk_->lose(reason);
  if (means_) means_->lose(reason);
  worker_.close(std::exchange(endpoint_, nullptr));
  leaves_.clear();
  if (socket_) socket_->unwatch();
  if (means_) means_->keep_until_quiet(std::move(socket_));
  socket_.reset();
  on_end_();
  schedule_delivery();
}

void UcxLink::on_active_message(const Result<AmHeader>& header, const UcxInbound& inbound) {
  if (over()) return;
  if (!header.ok()) {
    loop_.post([self = shared_from_this(), status = header.status()] { self->end(status); });
    return;
  }
  Status status;
  switch (header->kind) {
    case AmKind::kMessage: status = on_message(*header, inbound); break;
    case AmKind::kGoodbye:
      goodbye_in_ = header->op;
      schedule_delivery();
      break;
    case AmKind::kPullRequest:
    case AmKind::kPullData:
    case AmKind::kPushData:
    case AmKind::kDone: status = message_bulk_->on_message(*header, inbound); break;
    case AmKind::kExposed:
    case AmKind::kRevoke: status = moving().on_region(*header); break;
    case AmKind::kDropped: moving().drop_pages(header->region); break;
    case AmKind::kRevoked: leaves_.erase(header->region); break;
  }
  if (status.ok()) return;
  loop_.post([self = shared_from_this(), status = std::move(status)] { self->end(status); });
}

Status UcxLink::on_message(const AmHeader& header, const UcxInbound& inbound) {
  if (inbound.size_bytes != header.size_bytes || header.size_bytes > limits::kMessageBytesMax) {
    return Status::invalid("the other side's message of " + std::to_string(inbound.size_bytes) +
                           " B came as " + std::to_string(header.size_bytes) + " B, the limit is " +
                           std::to_string(limits::kMessageBytesMax) + " B");
  }
  const std::size_t taken = header.size_bytes + kArrivalBytes;
  inbox_bytes_ += taken;
  all_inboxes_.bytes += taken;
  if (all_inboxes_.on_arrival) all_inboxes_.on_arrival();
  if (inbox_bytes_ > kInboxBytesMax) {
    return Status::rejected("more than " + std::to_string(kInboxBytesMax) +
                            " B of messages wait to be handled");
  }
  const auto [arrival, fresh] = inbox_.try_emplace(header.op);
  if (!fresh || header.op < next_in_) {
    return Status::invalid("message " + std::to_string(header.op) + " came twice");
  }
  arrival->second.count = header.offset;
  arrival->second.bytes.resize(header.size_bytes);
  worker_.receive(inbound, arrival->second.bytes.data(),
                  [self = shared_from_this(), number = header.op](ucs_status_t status) {
                    if (status != UCS_OK) return;  // UCX tells of the lost peer itself
                    self->inbox_.at(number).complete = true;
                    self->schedule_delivery();
                  });
  return {};
}

void UcxLink::schedule_delivery() {
  if (std::exchange(delivery_scheduled_, true)) return;
  loop_.post([self = shared_from_this()] { self->deliver(); });
}

// Always on a turn of its own: a handler may end the link or destroy its Connection.
void UcxLink::deliver() {
  delivery_scheduled_ = false;
  while (handlers_) {
    const auto next = inbox_.begin();
    if (next == inbox_.end() || next->first != next_in_ || !next->second.complete) break;
    const std::uint64_t count = next->second.count;
    auto bytes = std::move(next->second.bytes);
    const std::size_t taken = bytes.size() + kArrivalBytes;
    inbox_bytes_ -= taken;
    if (!over()) all_inboxes_.bytes -= taken;
    inbox_.erase(next);
    ++next_in_;
    auto messages = unpack_messages(std::move(bytes), count);
    if (!messages.ok()) {
      end(messages.status());
      break;
    }
    for (auto& message : *messages) {
      if (const auto handlers = handlers_) handlers->on_message(std::move(message));
    }
  }
  if (goodbye_in_ == next_in_) end(Status::unavailable("the peer closed the connection"));
  if (!over()) return;
  if (const auto handlers = std::exchange(handlers_, nullptr)) handlers->on_closed(ended_);
}

bool UcxLink::over_tcp() const { return message_transport(lanes_) == "tcp"; }

std::string UcxLink::description() const {
  std::string text(message_transport(lanes_));
  text += " (" + (means_ ? means_->name() : message_bulk_->name());
  if (!no_host_copy_.empty()) text += "; no host copy: " + no_host_copy_;
  return text + ")";
}

}  // namespace precis

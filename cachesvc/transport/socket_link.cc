#include "cachesvc/transport/socket_link.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "cachesvc/transport/rdma_mover.h"
#include "cachesvc/transport/shared_mover.h"
#include "cachesvc/transport/stream_mover.h"
#include "precis/limits.h"

namespace precis {
namespace {

// The two sockets of a client that closes or dies end at most this far apart.
constexpr std::chrono::seconds kEndsApartMax{1};

}  // namespace

SocketLink::SocketLink(EventLoop& loop, std::shared_ptr<ControlStream> control, Identity identity,
                       Executor& copiers, std::shared_ptr<RdmaDevice> rdma)
    : loop_(loop),
      control_(std::move(control)),
      identity_(std::move(identity)),
      copiers_(copiers),
      rdma_(std::move(rdma)) {}

SocketLink::~SocketLink() { shut(Status::canceled("the connection was closed on this side")); }

void SocketLink::add(std::shared_ptr<Mover> mover, bool fastest) {
  auto queue = std::make_unique<BulkQueue>(
      mover->limits(), [mover = mover.get()](BulkChunk chunk, BulkQueue::Ended ended) {
        mover->post(std::move(chunk), std::move(ended));
      });
  means_.insert(fastest ? means_.begin() : means_.end(), {std::move(mover), std::move(queue)});
}

// The client's offer, then that it is ready: nothing else, and nothing twice.
Status SocketLink::on_rdma_turn(Bytes body) {
  PRECIS_ASSIGN(RdmaTurn turn, decode_rdma_turn(body));
  if (!rdma_ || !data_ || ++rdma_turns_ > 2) {
    return Status::invalid("the peer joins RDMA, which it was not offered, or does so twice");
  }
  if (rdma_turns_ == 2) {
    if (!rdma_peer_) return Status::invalid("the peer is ready for RDMA that it was refused");
    auto mover = RdmaMover::make(loop_, *rdma_, std::move(rdma_peer_),
                                 {turn.window, std::move(turn.window_key)}, data_);
    if (mover.ok()) add(std::move(*mover), true);
    return {};
  }
  RdmaTurn answer;
  if (auto peer = rdma_->make_peer(); peer.ok()) {
    if ((*peer)->connect({turn.device, turn.endpoint}).ok()) {
      rdma_peer_ = std::move(*peer);
      answer.device = rdma_peer_->address().device;
      answer.endpoint = rdma_peer_->address().endpoint;
    }
  }
  control_->send(FrameKind::kRdma, encode(answer));
  return {};
}

void SocketLink::bind(EventLoop& bulk_loop, std::unique_ptr<Socket> socket) {
  if (over_) return;  // nobody would close it
  kind_ = socket->is_unix() ? "unix" : socket->is_encrypted() ? "tls" : "tcp";
  const bool is_unix = socket->is_unix();
  data_ = std::make_shared<DataStream>(bulk_loop, std::move(socket));
  // Shared with the handlers, which the bulk loop may be about to call when the link goes.
  auto mover = std::make_shared<StreamMover>(loop_, data_);
  if (is_unix) {
    buffers_ = std::make_shared<SharedBuffers>(copiers_);
    add(std::make_shared<SharedMover>(loop_, data_, buffers_, copiers_));
  }
  add(mover);
  const auto buffers = buffers_;
  const std::weak_ptr<DataStream> data = data_;
  DataStream::Handlers handlers{
      .on_frame = [mover, buffers, data](const BulkHeader& header, Descriptor passed) -> Status {
        if (header.kind == BulkKind::kUnshare && buffers) {
          buffers->remove(header.id);
          return {};
        }
        if (header.kind != BulkKind::kShare) return mover->on_frame(header);
        const bool mapped =
            buffers && buffers->add(header.id, header.offset, std::move(passed)).ok();
        if (const auto stream = data.lock()) {
          stream->send(
              {.header = {BulkKind::kShared, 0, header.id, 0, mapped ? 1u : 0u}, .data = {}});
        }
        return {};
      },
      .place = [mover](const BulkHeader& header,
                       std::size_t done) { return mover->place(header, done); },
      .on_data = [mover](const BulkHeader& header) { mover->on_data(header); },
      .on_end =
          [&loop = loop_, link = weak_from_this()](Status why) {
            loop.post([link, why = std::move(why)] {
              if (const auto open = link.lock()) open->on_bulk_end(why);
            });
          }};
  bulk_loop.post([stream = data_, handlers = std::move(handlers)]() mutable {
    stream->start(std::move(handlers));
  });
}

// The control socket says what the client sent before it went, so its end is waited for a while.
void SocketLink::on_bulk_end(const Status& why) {
  if (over_) return;
  for (const Means& means : means_) {
    means.queue->fail(why);
    means.mover->cancel(why);
  }
  bulk_ended_ = loop_.after(kEndsApartMax, [this, why] {
    const auto fired = std::move(bulk_ended_);  // lives until the end of its own call
    end(why);
  });
}

void SocketLink::start(Connection::Handlers handlers) {
  handlers_ = std::move(handlers);
  if (over_) return;
  control_->set_body_bytes_max(limits::kMessageBytesMax);
  const std::weak_ptr<SocketLink> weak = weak_from_this();
  control_->start({.on_frame =
                       [weak](const FrameHeader& header, std::vector<std::byte> body) {
                         const auto link = weak.lock();
                         if (!link || link->over_) return;
                         if (header.kind == FrameKind::kRdma) {
                           const Status status = link->on_rdma_turn(body);
                           return status.ok() ? void() : link->end(status);
                         }
                         if (header.kind != FrameKind::kMessage) {
                           return link->end(
                               Status::invalid("the peer sent a frame of kind " +
                                               std::to_string(static_cast<int>(header.kind)) +
                                               " after its greeting"));
                         }
                         const auto on_message = link->handlers_.on_message;
                         if (on_message) on_message(std::move(body));
                       },
                   .on_end =
                       [weak](const Status& why) {
                         if (const auto link = weak.lock()) link->end(why);
                       }});
}

void SocketLink::send(std::vector<std::byte> message) {
  if (over_) return;
  if (message.size() > limits::kMessageBytesMax) {
    return control_->end(Status::invalid(
        "this side's message of " + std::to_string(message.size()) + " B exceeds the limit of " +
        std::to_string(limits::kMessageBytesMax) + " B"));
  }
  control_->send(FrameKind::kMessage, std::move(message), data_ ? data_->data_frames_sent() : 0);
}

void SocketLink::close() {
  handlers_ = {};
  shut(Status::canceled("the connection was closed on this side"));
}

void SocketLink::end(const Status& why) {
  if (over_) return;
  const auto self = shared_from_this();
  shut(why);
  loop_.post([self, why] {
    if (const auto on_closed = std::exchange(self->handlers_, {}).on_closed) on_closed(why);
  });
}

void SocketLink::shut(const Status& why) {
  if (std::exchange(over_, true)) return;
  bulk_ended_.reset();
  for (const Means& means : means_) {
    means.queue->fail(why);
    means.mover->cancel(why);
  }
  rdma_peer_.reset();
  if (control_) control_->close();
}

void SocketLink::transfer(BulkTransfer::Kind kind, const RemoteRegion& remote, std::uint64_t offset,
                          std::vector<MutableBytes> local, const Registration& registration,
                          Completion done) {
  auto later = [&loop = loop_, done = std::move(done)](const Status& status) {
    loop.post([done, status] { done(status); });
  };
  if (over_) return later(Status::unavailable("the connection is over"));
  auto transfer = BulkTransfer::make(kind, remote, offset, std::move(local), registration, later);
  if (!transfer.ok()) return later(transfer.status());
  for (const Means& means : means_) {
    if (means.mover->supports(registration.space(), remote)) {
      return means.queue->add(std::move(*transfer));
    }
  }
  later(Status::unavailable("the client has bound no bulk socket that reaches the memory"));
}

std::shared_ptr<const PeerMemory> SocketLink::read_in_place(const RemoteRegion& remote) {
  for (const Means& means : means_) {
    if (over_ || !means.mover->supports(MemorySpace::kHost, remote)) continue;
    if (auto memory = means.mover->read_in_place(remote)) return memory;
  }
  return nullptr;
}

std::optional<std::chrono::steady_clock::time_point> SocketLink::stalled_since() const {
  std::optional<std::chrono::steady_clock::time_point> earliest;
  for (const Means& means : means_) {
    const auto since = means.queue->stalled_since();
    if (since && (!earliest || *since < *earliest)) earliest = since;
  }
  return earliest;
}

std::string SocketLink::description() const {
  std::string movers;
  for (const Means& means : means_) {
    movers += std::string(movers.empty() ? "" : ", ") + means.mover->name();
  }
  return (kind_.empty() ? identity_.socket_kind : kind_) +
         (movers.empty() ? "" : " (" + movers + ")");
}

// ---- the seam's object --------------------------------------------------------------------------

namespace {

class LinkConnection final : public Connection {
 public:
  explicit LinkConnection(std::shared_ptr<SocketLink> link) : link_(std::move(link)) {}
  ~LinkConnection() override { link_->close(); }
  void start(Handlers handlers) override { link_->start(std::move(handlers)); }
  void send(std::vector<std::byte> message) override { link_->send(std::move(message)); }
  void close() override { link_->close(); }
  void take_turns(Turns turns) override { link_->take_turns(std::move(turns)); }
  std::size_t unsent_bytes() const override { return link_->unsent_bytes(); }
  std::optional<std::chrono::steady_clock::time_point> stalled_since() const override {
    return link_->stalled_since();
  }
  void pull(const RemoteRegion& from, std::uint64_t offset, MutableBytes into,
            const Registration& local, Completion done) override {
    link_->transfer(BulkTransfer::Kind::kPull, from, offset, {into}, local, std::move(done));
  }
  void push(std::vector<Bytes> from, const Registration& local, const RemoteRegion& to,
            std::uint64_t offset, Completion done) override {
    link_->transfer(BulkTransfer::Kind::kPush, to, offset, as_local(from), local, std::move(done));
  }
  std::shared_ptr<const PeerMemory> read_in_place(const RemoteRegion& region) override {
    return link_->read_in_place(region);
  }
  std::string description() const override { return link_->description(); }
  std::string peer() const override { return link_->identity().peer; }

 private:
  const std::shared_ptr<SocketLink> link_;
};

}  // namespace

std::unique_ptr<Connection> make_connection(std::shared_ptr<SocketLink> link) {
  return std::make_unique<LinkConnection>(std::move(link));
}

}  // namespace precis

#include "cachesvc/transport/server_connection.h"

#include <string_view>
#include <utility>

#include "cachesvc/transport/rdma_mover.h"
#include "cachesvc/transport/shared_mover.h"
#include "cachesvc/transport/stream_mover.h"

namespace precis {
namespace {

// A push uses the same range type as a pull, but never writes through it.
std::vector<MutableBytes> as_local(const std::vector<Bytes>& ranges) {
  std::vector<MutableBytes> local;
  local.reserve(ranges.size());
  for (const Bytes range : ranges) {
    local.emplace_back(const_cast<std::byte*>(range.data()), range.size());
  }
  return local;
}

}  // namespace

ServerConnection::ServerConnection(EventLoop& loop, std::shared_ptr<FrameChannel> channel,
                                   Identity identity, std::shared_ptr<RdmaDevice> rdma)
    : ConnectionEnd(loop, std::move(channel), {}),
      identity_(std::move(identity)),
      rdma_(std::move(rdma)) {}

ServerConnection::~ServerConnection() { close(); }

void ServerConnection::add(std::shared_ptr<Mover> mover, bool is_fastest) {
  auto queue =
      std::make_unique<BulkQueue>(loop().clock(), mover->limits(),
                                  [mover = mover.get()](BulkChunk chunk, BulkQueue::Ended ended) {
                                    mover->post(std::move(chunk), std::move(ended));
                                  });
  means_.insert(is_fastest ? means_.begin() : means_.end(), {std::move(mover), std::move(queue)});
}

// A client sends bulk bytes only on request, so its messages never wait for bulk bytes.
void ServerConnection::on_message(std::uint64_t after_bulk, std::vector<std::byte> body) {
  if (after_bulk != 0) {
    return end(Status::invalid("the peer sent a message that waits for bulk bytes of its own"));
  }
  deliver(std::move(body));
}

// Accepts the client's offer and then its ready frame, each once, and nothing else.
Status ServerConnection::on_rdma_turn(Bytes body) {
  PRECIS_ASSIGN(RdmaTurn turn, decode_rdma_turn(body));
  if (!rdma_ || !data_ || ++rdma_turns_ > 2) {
    return Status::invalid("the peer asks for RDMA twice, or without an offer");
  }
  if (rdma_turns_ == 2) {
    if (!rdma_peer_) return Status::invalid("the peer is ready for RDMA, which was refused");
    auto mover = RdmaMover::make(*rdma_, std::move(rdma_peer_),
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
  channel().send(FrameKind::kRdma, encode(answer));
  return {};
}

void ServerConnection::bind(EventLoop& bulk_loop, std::unique_ptr<Socket> socket,
                            Executor& copiers) {
  if (is_over()) return;  // nothing would close the socket later
  identity_.kind = socket->kind();
  const bool is_unix = socket->is_unix();
  data_ = std::make_shared<DataStream>(bulk_loop, std::move(socket));
  std::shared_ptr<SharedBuffers> buffers;
  if (is_unix) {
    buffers = std::make_shared<SharedBuffers>(copiers);
    add(std::make_shared<SharedMover>(loop(), data_, buffers, copiers));
  }
  // The handlers share it: the bulk loop may be about to call them when the link is destroyed.
  auto mover = std::make_shared<StreamMover>(loop(), data_);
  add(mover);
  DataStream::Handlers handlers{
      .on_frame = [mover, buffers, data = std::weak_ptr<DataStream>(data_)](
                      const BulkHeader& header, Descriptor passed) -> Status {
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
      .on_end = bulk_end_handler()};
  bulk_loop.post([stream = data_, handlers = std::move(handlers)]() mutable {
    stream->start(std::move(handlers));
  });
}

void ServerConnection::stop_bulk(const Status& why) {
  for (const Means& means : means_) {
    means.queue->fail(why);
    means.mover->cancel(why);
  }
  rdma_peer_.reset();
}

void ServerConnection::pull(const RemoteRegion& from, std::uint64_t offset, MutableBytes into,
                            const Registration& local, Completion done) {
  transfer(BulkTransfer::Kind::kPull, from, offset, {into}, local, std::move(done));
}

void ServerConnection::push(std::vector<Bytes> from, const Registration& local,
                            const RemoteRegion& to, std::uint64_t offset, Completion done) {
  transfer(BulkTransfer::Kind::kPush, to, offset, as_local(from), local, std::move(done));
}

void ServerConnection::transfer(BulkTransfer::Kind kind, const RemoteRegion& remote,
                                std::uint64_t offset, std::vector<MutableBytes> local,
                                const Registration& registration, Completion done) {
  auto later = [&loop = loop(), done = std::move(done)](const Status& status) {
    loop.post([done, status] { done(status); });
  };
  if (is_over()) return later(Status::unavailable("the connection is over"));
  auto transfer = BulkTransfer::make(kind, remote, offset, std::move(local), registration, later);
  if (!transfer.ok()) return later(transfer.status());
  for (const Means& means : means_) {
    if (means.mover->supports(registration, remote)) {
      return means.queue->add(std::move(*transfer));
    }
  }
  later(Status::unavailable("the client has bound no bulk socket that reaches the memory"));
}

std::shared_ptr<const PeerMemory> ServerConnection::read_in_place(const RemoteRegion& remote) {
  for (const Means& means : means_) {
    if (is_over()) continue;
    if (auto memory = means.mover->read_in_place(remote)) return memory;
  }
  return nullptr;
}

std::optional<std::chrono::steady_clock::time_point> ServerConnection::stalled_since() const {
  std::optional<std::chrono::steady_clock::time_point> earliest;
  for (const Means& means : means_) {
    const auto since = means.queue->stalled_since();
    if (since && (!earliest || *since < *earliest)) earliest = since;
  }
  return earliest;
}

std::string ServerConnection::transport() const {
  const std::string_view fastest = means_.empty() ? "" : means_.front().mover->name();
  if (fastest == "shared") return "shm";
  return fastest == "rdma" ? "rdma" : identity_.kind;
}

std::string ServerConnection::description() const {
  std::string movers;
  for (const Means& means : means_) {
    const std::string name = means.mover->name();
    movers += (movers.empty() || name.empty() ? "" : ", ") + name;
  }
  return identity_.kind + (movers.empty() ? "" : " (" + movers + ")");
}

}  // namespace precis

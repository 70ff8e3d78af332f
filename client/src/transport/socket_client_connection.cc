#include "client/src/transport/socket_client_connection.h"

#include <chrono>
#include <utility>

#include "client/src/transport/client_memory.h"
#include "precis/limits.h"

namespace precis {
namespace {

// How long sent messages may wait for the server's socket when the link closes.
constexpr std::chrono::milliseconds kCloseTimeout{200};

}  // namespace

SocketClientConnection::SocketClientConnection(EventLoop& loop,
                                               std::shared_ptr<FrameChannel> channel,
                                               std::shared_ptr<ClientRegions> regions,
                                               std::string kind)
    : ConnectionEnd(loop, std::move(channel), kCloseTimeout),
      regions_(std::move(regions)),
      kind_(std::move(kind)) {}

SocketClientConnection::~SocketClientConnection() { close(); }

void SocketClientConnection::open(std::shared_ptr<RdmaDevice> rdma) {
  regions_->open(
      std::move(rdma), [this] { on_bulk_received(); }, bulk_end_handler());
  if (const auto offer = regions_->rdma_offer()) channel().send(FrameKind::kRdma, encode(*offer));
}

Status SocketClientConnection::on_rdma_turn(Bytes body) {
  PRECIS_ASSIGN(const RdmaTurn answer, decode_rdma_turn(body));
  if (!regions_->rdma_offer()) {
    return Status::invalid("the server answered an RDMA turn that was not made");
  }
  const auto ready = regions_->join_rdma(answer);
  if (ready.ok()) channel().send(FrameKind::kRdma, encode(*ready));
  return {};
}

void SocketClientConnection::on_message(std::uint64_t after_bulk, std::vector<std::byte> body) {
  if (held_.empty() && after_bulk <= bulk_frames_received_) {
    deliver(std::move(body));
    return;
  }
  held_bytes_ += FrameHeader::kBytes + body.size();
  if (held_bytes_ > limits::kSendQueueBytesMax) {
    return end(Status::invalid("messages of " + std::to_string(held_bytes_) +
                               " B wait for bulk bytes that do not come; the most is " +
                               std::to_string(limits::kSendQueueBytesMax) + " B"));
  }
  held_.push_back({after_bulk, std::move(body)});
}

void SocketClientConnection::on_bulk_received() {
  ++bulk_frames_received_;
  while (!held_.empty() && held_.front().after_bulk <= bulk_frames_received_) {
    auto body = std::move(held_.front().body);
    held_.pop_front();
    held_bytes_ -= FrameHeader::kBytes + body.size();
    if (!deliver(std::move(body))) return;
  }
}

Result<std::unique_ptr<Exposure>> SocketClientConnection::expose(Registration& registration,
                                                                 MutableBytes memory) {
  PRECIS_TRY(check_part(memory, registration.bytes()));
  return expose_memory(regions_, static_cast<ClientMemory&>(registration), memory);
}

}  // namespace precis

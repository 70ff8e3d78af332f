#include "client/src/transport/client_link.h"

#include <chrono>
#include <utility>

#include "client/src/transport/client_memory.h"

namespace precis {
namespace {

// What this side has sent may wait so long for the server's socket when the link closes.
constexpr std::chrono::milliseconds kCloseTimeout{200};

}  // namespace

ClientLink::ClientLink(EventLoop& loop, std::shared_ptr<FrameChannel> channel,
                       std::shared_ptr<ClientRegions> regions, std::string kind)
    : LinkEnd(loop, std::move(channel), kCloseTimeout),
      regions_(std::move(regions)),
      kind_(std::move(kind)) {}

ClientLink::~ClientLink() { close(); }

void ClientLink::open(std::shared_ptr<RdmaDevice> rdma) {
  regions_->open(
      std::move(rdma), [this] { on_bulk_received(); }, bulk_end_handler());
  if (const auto offer = regions_->rdma_offer()) channel().send(FrameKind::kRdma, encode(*offer));
}

Status ClientLink::on_rdma_turn(Bytes body) {
  PRECIS_ASSIGN(const RdmaTurn answer, decode_rdma_turn(body));
  if (!regions_->rdma_offer()) {
    return Status::invalid("the server answered an RDMA turn that was not made");
  }
  const auto ready = regions_->join_rdma(answer);
  if (ready.ok()) channel().send(FrameKind::kRdma, encode(*ready));
  return {};
}

Result<std::unique_ptr<Exposure>> ClientLink::expose(Registration& registration,
                                                     MutableBytes memory) {
  PRECIS_TRY(check_part(memory, registration.bytes()));
  return expose_memory(regions_, static_cast<ClientMemory&>(registration), memory);
}

}  // namespace precis

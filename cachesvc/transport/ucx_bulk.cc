#include "cachesvc/transport/ucx_bulk.h"

#include <algorithm>
#include <utility>

#include "cachesvc/transport/ucx_status.h"
#include "precis/limits.h"

namespace precis {
namespace {

// Of one client at a time: more than its requests can name.
constexpr std::size_t kRegionsMax = 65'536;

}  // namespace

BulkQueue::Limits UcxMessageBulk::limits() const {
  // Two chunks keep the pipe full while one is acknowledged; more only spread the caches.
  // Small ranges go as one message: each costs one and its answer. UCX copies what it gathers.
  return {.chunk_bytes = 1u << 20,
          .ranges_per_chunk = 64,
          .chunks_under_way = 4,
          .gathered_bytes = link_.streams() ? SIZE_MAX : std::size_t{64} << 10};
}

void UcxMessageBulk::move(BulkChunk chunk, BulkQueue::Ended ended) {
  const std::uint64_t number = next_op_++;
  auto op = std::make_shared<Op>();
  op->chunk = std::move(chunk);
  op->ended = std::move(ended);
  waiting_.emplace(number, op);
  if (op->chunk.transfer->kind() == BulkTransfer::Kind::kPull) {
    start_pull(op, number);
  } else {
    start_push(op, number);
  }
}

void UcxMessageBulk::start_pull(const std::shared_ptr<Op>& op, std::uint64_t number) {
  AmHeader header;
  header.kind = AmKind::kPullRequest;
  header.op = number;
  header.region = op->chunk.transfer->remote().id;
  header.offset = op->chunk.offset;
  header.size_bytes = op->chunk.size_bytes;
  link_.send_am(header, {}, [](ucs_status_t) {});  // a failure ends the link, and so the op
}

void UcxMessageBulk::start_push(const std::shared_ptr<Op>& op, std::uint64_t number) {
  AmHeader header;
  header.kind = AmKind::kPushData;
  header.op = number;
  header.region = op->chunk.transfer->remote().id;
  header.offset = op->chunk.offset;
  header.size_bytes = op->chunk.size_bytes;
  const std::vector<Bytes> data(op->chunk.local.begin(), op->chunk.local.end());
  op->in_hand = true;
  link_.send_bulk(header, data, [op](ucs_status_t status) {
    op->in_hand = false;
    if (status != UCS_OK && !op->result) op->result = to_status(status, "push");
    settle(op);
  });
}

void UcxMessageBulk::settle(const std::shared_ptr<Op>& op) {
  if (op->in_hand || !op->result || !op->ended) return;
  std::exchange(op->ended, nullptr)(*op->result);
}

// The stream is closed, and touches nothing any more.
void UcxMessageBulk::lose(const Status& reason) {
  incoming_.reset();
  if (const auto op = std::move(answered_)) {
    op->in_hand = false;
    op->result = reason;
    settle(op);
  }
  for (const auto& [number, op] : std::exchange(waiting_, {})) {
    if (!op->result) op->result = reason;
    settle(op);
  }
}

Status UcxMessageBulk::on_message(const AmHeader& header, const UcxInbound& inbound) {
  switch (header.kind) {
    case AmKind::kPullRequest: return on_pull_request(header);
    case AmKind::kPullData: return on_pull_data(header, inbound);
    case AmKind::kPushData: return on_push_data(header, inbound);
    case AmKind::kDone: return on_done(header, inbound);
    case AmKind::kMessage:
    case AmKind::kGoodbye:
    case AmKind::kExposed:
    case AmKind::kRevoke:
    case AmKind::kRevoked:
    case AmKind::kDropped: break;
  }
  return Status::internal("not a message of bulk transfer");
}

Status UcxMessageBulk::on_pull_request(const AmHeader& header) {
  auto access = link_.regions()->access(header.region, header.offset, header.size_bytes);
  if (!access.ok()) {
    send_done(header.op, access.status());
    return {};
  }
  AmHeader answer;
  answer.kind = AmKind::kPullData;
  answer.op = header.op;
  answer.size_bytes = header.size_bytes;
  const Bytes bytes = access->bytes();
  // Shared with the operation only, whose end lets go of the region.
  auto held = std::make_shared<RegionTable::Access>(std::move(*access));
  link_.send_bulk(answer, {bytes}, [held](ucs_status_t) {});
  return {};
}

Result<std::shared_ptr<UcxMessageBulk::Op>> UcxMessageBulk::take_pull(const AmHeader& header,
                                                                      std::size_t size_bytes) {
  const auto found = waiting_.find(header.op);
  if (found == waiting_.end() ||
      found->second->chunk.transfer->kind() != BulkTransfer::Kind::kPull ||
      size_bytes != found->second->chunk.size_bytes) {
    return Status::invalid("the peer sent " + std::to_string(size_bytes) + " B for pull " +
                           std::to_string(header.op) + ", which was not asked for");
  }
  auto op = std::move(found->second);
  waiting_.erase(found);
  op->in_hand = true;
  return op;
}

Result<MutableBytes> UcxMessageBulk::begin(const AmHeader& header) {
  if (header.kind == AmKind::kPullData) {
    PRECIS_ASSIGN(answered_, take_pull(header, header.size_bytes));
    return answered_->chunk.local.front();
  }
  if (header.kind != AmKind::kPushData) {
    return Status::invalid("the peer's stream carries what is no bulk data");
  }
  auto access = link_.regions()->access(header.region, header.offset, header.size_bytes);
  if (!access.ok()) {
    send_done(header.op, access.status());
    return MutableBytes{};
  }
  incoming_.emplace(std::move(*access));
  return incoming_->bytes();
}

void UcxMessageBulk::end(const AmHeader& header) {
  if (const auto op = std::move(answered_)) {
    op->in_hand = false;
    op->result = Status();
    return settle(op);
  }
  if (!incoming_) return;  // thrown away, and said so
  incoming_.reset();
  send_done(header.op, {});
}

Status UcxMessageBulk::on_pull_data(const AmHeader& header, const UcxInbound& inbound) {
  PRECIS_ASSIGN(const auto op, take_pull(header, inbound.size_bytes));
  link_.worker().receive(inbound, op->chunk.local.front().data(), [op](ucs_status_t status) {
    op->in_hand = false;
    op->result = to_status(status, "pull");
    settle(op);
  });
  return {};
}

Status UcxMessageBulk::on_push_data(const AmHeader& header, const UcxInbound& inbound) {
  if (inbound.size_bytes != header.size_bytes) {
    return Status::invalid("a push of " + std::to_string(header.size_bytes) + " B came with " +
                           std::to_string(inbound.size_bytes) + " B");
  }
  auto access = link_.regions()->access(header.region, header.offset, header.size_bytes);
  if (!access.ok()) {
    send_done(header.op, access.status());
    return {};
  }
  std::byte* into = access->bytes().data();
  // Shared with the operation only, whose end lets go of the region.
  auto held = std::make_shared<RegionTable::Access>(std::move(*access));
  link_.worker().receive(
      inbound, into,
      [this, link = link_.shared_from_this(), held, number = header.op](ucs_status_t status) {
        if (!link->over()) send_done(number, to_status(status, "receive a push"));
      });
  return {};
}

void UcxMessageBulk::send_done(std::uint64_t number, const Status& status) {
  AmHeader header;
  header.kind = AmKind::kDone;
  header.op = number;
  header.code = status.code();
  auto text =
      std::make_shared<std::string>(status.message().substr(0, limits::kErrorMessageBytesMax));
  header.size_bytes = text->size();
  link_.send_am(header, {std::as_bytes(std::span(*text))}, [text](ucs_status_t) {});
}

Status UcxMessageBulk::on_done(const AmHeader& header, const UcxInbound& inbound) {
  const auto found = waiting_.find(header.op);
  const bool known = found != waiting_.end();
  const bool pull = known && found->second->chunk.transfer->kind() == BulkTransfer::Kind::kPull;
  if (!known || (pull && header.code == StatusCode::kOk) || inbound.rendezvous ||
      inbound.size_bytes > limits::kErrorMessageBytesMax) {
    return Status::invalid("the peer ended transfer " + std::to_string(header.op) +
                           " as it may not");
  }
  const auto op = std::move(found->second);
  waiting_.erase(found);
  if (!op->result) {
    const auto* text = static_cast<const char*>(inbound.data);
    op->result = header.code == StatusCode::kOk
                     ? Status()
                     : Status(header.code, std::string(text, inbound.size_bytes));
  }
  settle(op);
  return {};
}

BulkQueue::Limits UcxOneSidedBulk::limits() const {
  return {.chunk_bytes = 4u << 20, .ranges_per_chunk = 16, .chunks_under_way = 8};
}

bool UcxOneSidedBulk::possible(std::string_view lanes) {
  for (std::size_t at = 0; at < lanes.size();) {
    const std::size_t end = std::min(lanes.find('\n', at), lanes.size());
    const std::string_view line = lanes.substr(at, end - at);
    at = end + 1;
    if (line.find("lane[") == line.npos || line.find(" rma") == line.npos) continue;
    for (const char* verbs : {":rc_", ":dc_"}) {
      if (line.find(verbs) != line.npos) return true;
    }
  }
  return false;
}

Status UcxOneSidedBulk::on_region(const AmHeader& header) {
  if (header.kind == AmKind::kExposed) {
    if (regions_.size() >= kRegionsMax || !regions_.try_emplace(header.region).second) {
      return Status::invalid("region " + std::to_string(header.region) +
                             " is exposed twice, or is one of more than " +
                             std::to_string(kRegionsMax));
    }
    return {};
  }
  const auto found = regions_.find(header.region);
  if (found == regions_.end()) {
    return Status::invalid("region " + std::to_string(header.region) +
                           " is revoked and was never exposed");
  }
  found->second.revoked = true;
  ++found->second.under_way;
  leave(header.region);
  return {};
}

void UcxOneSidedBulk::leave(std::uint64_t region) {
  const auto found = regions_.find(region);
  if (--found->second.under_way > 0 || !found->second.revoked) return;
  regions_.erase(found);
  AmHeader header;
  header.kind = AmKind::kRevoked;
  header.region = region;
  link_.send_am(header, {}, [](ucs_status_t) {});
}

void UcxOneSidedBulk::move(BulkChunk chunk, BulkQueue::Ended ended) {
  // One chunk's operations; shared by their callbacks.
  struct Op {
    BulkChunk chunk;
    BulkQueue::Ended ended;
    ucp_rkey_h key = nullptr;
    std::size_t left = 0;
    ucs_status_t status = UCS_OK;
  };
  const RemoteRegion& remote = chunk.transfer->remote();
  if (link_.over()) return ended(Status::unavailable("the peer is gone"));
  const auto region = regions_.find(remote.id);
  if (region == regions_.end() || region->second.revoked) {
    return ended(
        Status::not_found("region " + std::to_string(remote.id) + " is not exposed (any more)"));
  }
  const auto region_key = decode_region_key(remote.key);
  if (!region_key.ok()) return ended(region_key.status());
  auto key = link_.worker().unpack_key(link_.endpoint(), region_key->ucx);
  if (!key.ok()) return ended(key.status());

  ++region->second.under_way;
  auto op = std::make_shared<Op>(Op{std::move(chunk), std::move(ended), *key, 0, UCS_OK});
  op->left = op->chunk.local.size();
  const auto done = [this, link = link_.shared_from_this(), op](ucs_status_t status) {
    if (status != UCS_OK) op->status = status;
    if (--op->left > 0) return;
    ucp_rkey_destroy(op->key);
    leave(op->chunk.transfer->remote().id);
    op->ended(to_status(op->status, "one-sided transfer"));
  };
  const auto& memory = static_cast<const UcxMemory&>(op->chunk.transfer->registration());
  const bool pull = op->chunk.transfer->kind() == BulkTransfer::Kind::kPull;
  std::uint64_t address = op->chunk.transfer->remote().address + op->chunk.offset;
  for (const MutableBytes range : op->chunk.local) {
    if (pull) {
      link_.worker().get(link_.endpoint(), range, memory.handle(), address, *key, done);
    } else {
      link_.worker().put(link_.endpoint(), range, memory.handle(), address, *key, done);
    }
    address += range.size();
  }
}

}  // namespace precis

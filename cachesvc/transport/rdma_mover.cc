#include "cachesvc/transport/rdma_mover.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "cachesvc/net/shared_window.h"
#include "precis/limits.h"

namespace precis {
namespace {

// Indices in words_: this side's constants, then the values read, by slot.
constexpr std::size_t kZeroWord = 0;
constexpr std::size_t kOneWord = 1;
constexpr std::size_t kOpenWords = 2;

static_assert(sizeof(SharedSlot::open) == 8 && offsetof(SharedSlot, open) == 0 &&
              offsetof(SharedSlot, active) == 8);

}  // namespace

Result<std::shared_ptr<RdmaMover>> RdmaMover::make(RdmaDevice& device,
                                                   std::shared_ptr<RdmaPeer> peer, Window window,
                                                   std::shared_ptr<DataStream> stream) {
  std::shared_ptr<RdmaMover> mover(
      new RdmaMover(device, std::move(peer), std::move(window), std::move(stream)));
  const auto words = std::as_writable_bytes(std::span(mover->words_));
  PRECIS_ASSIGN(mover->words_memory_, device.register_memory(words, MemorySpace::kHost));
  return mover;
}

RdmaMover::RdmaMover(RdmaDevice& device, std::shared_ptr<RdmaPeer> peer, Window window,
                     std::shared_ptr<DataStream> stream)
    : device_(device),
      window_(std::move(window)),
      stream_(std::move(stream)),
      words_(kOpenWords + limits::kSharedSlotsMax),
      peer_(std::move(peer)) {
  words_[kOneWord] = 1;
}

bool RdmaMover::supports(const Registration& local, const RemoteRegion& remote) const {
  return canceled_.ok() && !remote.key.empty() && remote.slot < limits::kSharedSlotsMax &&
         dynamic_cast<const RdmaRegistration*>(&local) != nullptr &&
         device_.reaches(local.space()) && device_.reaches(remote.space);
}

BulkLimits RdmaMover::limits() const {
  return {
      .chunk_bytes = device_.transfer_bytes_max(), .ranges_per_chunk = 64, .chunks_under_way = 8};
}

void RdmaMover::post(BulkChunk chunk, Ended ended) {
  if (!canceled_.ok()) return ended(canceled_);
  const RemoteRegion& remote = chunk.transfer->remote();
  const std::uint32_t slot = remote.slot;
  const auto [row, is_new] = uses_.try_emplace(slot);
  Use& use = row->second;
  if (!is_new && use.state == Use::State::kMapped && use.region == remote.id) {
    return start(slot, {std::move(chunk), std::move(ended)});
  }
  use.waiting.push_back({std::move(chunk), std::move(ended)});
  if (is_new) enter(slot);
}

RdmaRemote RdmaMover::slot_word(std::uint32_t slot, std::size_t offset) const {
  return {window_.address + slot * sizeof(SharedSlot) + offset, window_.key};
}

Bytes RdmaMover::word(std::size_t index) const {
  return std::as_bytes(std::span(words_).subspan(index, 1));
}

void RdmaMover::set_active(std::uint32_t slot, bool active, RdmaPeer::Done done) {
  peer_->put(word(active ? kOneWord : kZeroWord), *words_memory_,
             slot_word(slot, offsetof(SharedSlot, active)), std::move(done));
}

// Ends after all earlier puts have reached the client's memory.
void RdmaMover::read_open(std::uint32_t slot, RdmaPeer::Done done) {
  peer_->get(std::as_writable_bytes(std::span(words_).subspan(kOpenWords + slot, 1)),
             *words_memory_, slot_word(slot, offsetof(SharedSlot, open)), std::move(done));
}

void RdmaMover::enter(std::uint32_t slot) {
  Use& use = uses_.at(slot);
  use.state = Use::State::kMapping;
  use.region = use.waiting.front().chunk.transfer->remote().id;
  const auto self = shared_from_this();  // operations in progress share it, here and below
  set_active(slot, true, [self](const Status& status) { self->note(status); });
  read_open(slot, [self, slot](const Status& status) { self->entered(slot, status); });
}

void RdmaMover::entered(std::uint32_t slot, const Status& status) {
  note(status);
  Use& use = uses_.at(slot);
  const std::uint64_t region = use.region;
  Status allowed = canceled_.ok() ? status : canceled_;
  if (allowed.ok() && (region == 0 || words_[kOpenWords + slot] != region)) {
    allowed = Status::not_found("region " + std::to_string(region) + " is not exposed (any more)");
  }
  std::vector<Waiting> mine, others;
  for (Waiting& waiting : use.waiting) {
    const bool same = waiting.chunk.transfer->remote().id == region;
    (same ? mine : others).push_back(std::move(waiting));
  }
  use.waiting = std::move(others);
  use.state = Use::State::kMapped;
  // Counts as a chunk, so that the slot stays in use while these chunks start and end.
  ++use.chunks;
  for (Waiting& waiting : mine) {
    if (allowed.ok()) {
      start(slot, std::move(waiting));
    } else {
      use.state = Use::State::kUnmapping;
      waiting.ended(allowed);
    }
  }
  if (--uses_.at(slot).chunks == 0) leave(slot);
}

void RdmaMover::start(std::uint32_t slot, Waiting waiting) {
  // The operations of one chunk share it.
  struct Batch {
    Waiting waiting;
    std::size_t left;
    Status status;
  };
  ++uses_.at(slot).chunks;
  const bool pull = waiting.chunk.transfer->kind() == BulkTransfer::Kind::kPull;
  auto batch = std::make_shared<Batch>();
  batch->waiting = std::move(waiting);
  const BulkChunk& chunk = batch->waiting.chunk;
  batch->left = chunk.local.size() + (pull ? 0 : 1);
  const auto done = [self = shared_from_this(), batch, slot](const Status& status) {
    self->note(status);
    if (batch->status.ok()) batch->status = status;
    if (--batch->left > 0) return;
    const Ended ended = std::move(batch->waiting.ended);
    ended(!batch->status.ok() && !self->canceled_.ok() ? self->canceled_ : batch->status);
    if (--self->uses_.at(slot).chunks == 0) self->leave(slot);
  };
  const RemoteRegion& remote = chunk.transfer->remote();
  const auto& memory =
      static_cast<const RdmaRegistration&>(chunk.transfer->registration()).memory();
  std::uint64_t address = remote.address + chunk.offset;
  for (const MutableBytes range : chunk.local) {
    if (pull) {
      peer_->get(range, memory, {address, remote.key}, done);
    } else {
      peer_->put(range, memory, {address, remote.key}, done);
    }
    address += range.size();
  }
  // Ends when the bytes are in the client's memory, so that a message may follow.
  if (!pull) read_open(slot, done);
}

void RdmaMover::leave(std::uint32_t slot) {
  uses_.at(slot).state = Use::State::kUnmapping;
  set_active(slot, false, [self = shared_from_this(), slot](const Status& status) {
    self->note(status);
    Use& use = self->uses_.at(slot);
    if (self->canceled_.ok() && !use.waiting.empty()) return self->enter(slot);
    const auto waiting = std::move(use.waiting);
    self->uses_.erase(slot);
    for (const Waiting& late : waiting) late.ended(self->canceled_);
  });
}

// A connection that has failed once is not used again; other movers take over. The client closes
// its end when it next cannot withdraw memory.
void RdmaMover::note(const Status& status) {
  if (status.ok() || !canceled_.ok()) return;
  canceled_ = Status::unavailable("RDMA to the client failed: " + status.message());
  peer_->close();
}

void RdmaMover::cancel(const Status& why) {
  if (canceled_.ok()) canceled_ = why;
  peer_->close();
}

}  // namespace precis

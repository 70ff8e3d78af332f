#include "cachesvc/transport/bulk_transfer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cachesvc/base/executor.h"
#include "cachesvc/base/stream_copy.h"
#include "cachesvc/net/region_table.h"

namespace precis {
namespace {

// A small piece is read soon after by its waiting reader, so it should stay in a cache.
constexpr std::size_t kCachedBytesMax = 256u << 10;

void cached_copy(std::byte* to, const std::byte* from, std::size_t size_bytes) {
  std::memcpy(to, from, size_bytes);
}

}  // namespace

Result<std::shared_ptr<BulkTransfer>> BulkTransfer::make(Kind kind, RemoteRegion remote,
                                                         std::uint64_t offset,
                                                         std::vector<MutableBytes> local,
                                                         const Registration& registration,
                                                         Completion done) {
  std::uint64_t size = 0;
  for (const MutableBytes range : local) {
    PRECIS_TRY(check_part(range, registration.bytes()));
    size += range.size();
  }
  PRECIS_TRY(check_range(remote, offset, size));
  std::erase_if(local, [](MutableBytes range) { return range.empty(); });
  return std::shared_ptr<BulkTransfer>(new BulkTransfer(
      kind, std::move(remote), offset, std::move(local), registration, std::move(done)));
}

BulkTransfer::BulkTransfer(Kind kind, RemoteRegion remote, std::uint64_t offset,
                           std::vector<MutableBytes> local, const Registration& registration,
                           Completion done)
    : kind_(kind),
      remote_(std::move(remote)),
      offset_(offset),
      local_(std::move(local)),
      registration_(registration),
      done_(std::move(done)) {}

BulkChunk BulkTransfer::next(const std::shared_ptr<BulkTransfer>& self, const BulkLimits& limits) {
  PRECIS_CHECK(has_next());
  BulkChunk chunk;
  chunk.transfer = self;
  chunk.offset = offset_;
  while (next_range_ < local_.size() && chunk.local.size() < limits.ranges_per_chunk &&
         chunk.size_bytes < limits.chunk_bytes) {
    const MutableBytes rest = local_[next_range_].subspan(range_offset_);
    const MutableBytes piece =
        rest.first(std::min(rest.size(), limits.chunk_bytes - chunk.size_bytes));
    chunk.local.push_back(piece);
    chunk.size_bytes += piece.size();
    range_offset_ += piece.size();
    if (piece.size() == rest.size()) {
      ++next_range_;
      range_offset_ = 0;
    }
  }
  offset_ += chunk.size_bytes;
  ++under_way_;
  return chunk;
}

void BulkTransfer::finish(const Status& status) {
  --under_way_;
  settle(status);
}

void BulkTransfer::settle(const Status& status) {
  if (status_.ok()) status_ = status;
  if (under_way_ > 0 || has_next() || !done_) return;
  std::exchange(done_, nullptr)(status_);
}

void copy_chunk(const BulkChunk& chunk, MutableBytes there) {
  const bool pull = chunk.transfer->kind() == BulkTransfer::Kind::kPull;
  const auto copy = chunk.size_bytes <= kCachedBytesMax ? &cached_copy : &stream_copy;
  for (const MutableBytes range : chunk.local) {
    for (MutableBytes rest = range; !rest.empty();) {
      const MutableBytes here = rest.first(std::min(rest.size(), kCachedBytesMax));
      copy(pull ? here.data() : there.data(), pull ? there.data() : here.data(), here.size());
      there = there.subspan(here.size());
      rest = rest.subspan(here.size());
      yield_if_asked(here.size());
    }
  }
}

BulkQueue::BulkQueue(const Clock& clock, BulkLimits limits, Move move)
    : state_(
          std::make_shared<State>(State{clock, limits, std::move(move), {}, 0, {}, 0, false, {}})) {
}

BulkQueue::~BulkQueue() { fail(Status::canceled("the connection was closed on this side")); }

void BulkQueue::add(std::shared_ptr<BulkTransfer> transfer) {
  if (!state_->failed.ok() || !transfer->has_next()) return transfer->settle(state_->failed);
  if (state_->under_way == 0) {
    state_->last_step = state_->clock.now();
    state_->moved_since = 0;
  }
  state_->queue.push_back(std::move(transfer));
  pump(state_);
}

void BulkQueue::fail(const Status& status) {
  if (!state_->failed.ok()) return;
  state_->failed = status;
  for (const auto& transfer : std::exchange(state_->queue, {})) transfer->settle(status);
}

std::optional<Clock::Time> BulkQueue::stalled_since() const {
  if (state_->under_way == 0) return {};
  return state_->last_step;
}

void BulkQueue::pump(const std::shared_ptr<State>& state) {
  if (std::exchange(state->pumping, true)) return;  // a chunk ended inside its own start
  while (!state->queue.empty() && state->under_way < state->limits.chunks_under_way) {
    const auto transfer = state->queue.front();
    if (!transfer->has_next()) {  // one of its chunks failed
      state->queue.pop_front();
      continue;
    }
    BulkChunk chunk = transfer->next(transfer, state->limits);
    if (!transfer->has_next()) state->queue.pop_front();
    ++state->under_way;
    const std::size_t size = chunk.size_bytes;
    state->move(std::move(chunk), [state, transfer, size](Status status) {
      --state->under_way;
      state->moved_since += size;
      if (state->moved_since >= kStepBytes) {
        state->last_step = state->clock.now();
        state->moved_since = 0;
      }
      transfer->finish(status);
      pump(state);
    });
  }
  state->pumping = false;
}

}  // namespace precis

#include "cachesvc/transport/ucx_host_bulk.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "cachesvc/transport/ucx_bulk.h"

namespace precis {
namespace {

// Up to here a copy takes less time than waking a thread to do it (some 50 us), so the loop does
// it.
constexpr std::size_t kInlineBytesMax = 256u << 10;

// What threads that share a chunk take at a time, a tenth of a millisecond's work and more: so long
// a client that takes its memory back waits for one of them.
constexpr std::size_t kPieceBytes = 1u << 20;

// No load after it is done before a store ahead of it, also where the stores are the kernel's. (An
// exchange and not a fence, which ThreadSanitizer does not know.)
void full_barrier() {
  std::atomic<int> word{0};
  word.exchange(1, std::memory_order_seq_cst);
}

}  // namespace

// A chunk and the threads that share it: each takes a piece and stands in line again, behind other
// chunks', until none is left; the loop hears of it once. It is theirs until the last of them gives
// it to the loop.
class UcxHostBulk::SharedCopy {
 public:
  SharedCopy(std::shared_ptr<State> state, std::uint64_t slot, Mapped region, BulkChunk chunk,
             BulkQueue::Ended ended)
      : state_(std::move(state)),
        slot_(slot),
        region_(std::move(region)),
        transfer_(chunk.transfer),
        pieces_(cut(std::move(chunk), kPieceBytes)),
        ended_(std::move(ended)) {}

  static void start(std::unique_ptr<SharedCopy> copy, unsigned threads, Executor& copiers,
                    EventLoop& loop) {
    SharedCopy* const shared = copy.release();
    shared->working_ = std::min<std::size_t>(threads, shared->pieces_.size());
    for (std::size_t left = shared->working_; left > 0; --left) shared->post(copiers, loop);
  }

 private:
  void post(Executor& copiers, EventLoop& loop) {
    copiers.post([this, &copiers, &loop] {
      copy_one();
      if (next_ < pieces_.size()) {
        give_way(kPieceBytes);
        return post(copiers, loop);
      }
      if (--working_ > 0) return;
      region_.pages.reset();  // if that unmaps them, then here
      loop.post([owned = std::shared_ptr<SharedCopy>(this)] {
        owned->state_->leave(owned->slot_);
        owned->ended_(owned->status_);
      });
    });
  }
  void copy_one() {
    const std::size_t i = next_++;
    if (i >= pieces_.size()) return;
    Status status = state_->check_open(slot_, transfer_->remote().id);
    if (status.ok()) status = state_->copy(pieces_[i], region_.bytes);
    if (!status.ok()) {
      next_ = pieces_.size();
      const std::lock_guard lock(failing_);
      if (status_.ok()) status_ = std::move(status);
    }
  }

  const std::shared_ptr<State> state_;
  const std::uint64_t slot_;
  Mapped region_;
  const std::shared_ptr<BulkTransfer> transfer_;
  const std::vector<BulkChunk> pieces_;
  const BulkQueue::Ended ended_;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::size_t> working_{0};
  std::mutex failing_;
  Status status_;  // guarded by failing_ until none is working
};

UcxHostBulk::UcxHostBulk(UcxLink& link, std::shared_ptr<HostPeer> peer, Executor& copiers,
                         unsigned copy_threads)
    : link_(link),
      copiers_(copiers),
      copy_threads_(copy_threads),
      state_(std::make_shared<State>()),
      pages_(peer, copiers) {
  state_->peer = std::move(peer);
  // A second sign of life: a forked child may hold the dead peer's socket open.
  exit_watch_ = link.loop().watch_readable(state_->peer->exit_descriptor(), [this] {
    const auto watch = std::move(exit_watch_);
    link_.end(Status::unavailable("the peer's process has ended"));
  });
}

BulkQueue::Limits UcxHostBulk::limits() const {
  // A millisecond of work, for the loop has something to do for each, which threads share. More of
  // them wait, so that none is idle where transfers are small.
  return {.chunk_bytes = 4u << 20, .ranges_per_chunk = 256, .chunks_under_way = 4};
}

class UcxHostBulk::InPlace final : public PeerMemory {
 public:
  InPlace(std::shared_ptr<State> state, std::uint64_t slot, Mapped region, Executor& unmapping)
      : state_(std::move(state)), slot_(slot), region_(std::move(region)), unmapping_(unmapping) {}
  ~InPlace() override {
    state_->leave(slot_);
    // The last to know them unmaps them, which takes long: on a thread, unless others have just let
    // go as well. Mostly they are known on, and nobody need be woken.
    if (region_.pages.use_count() > 1) return;
    unmapping_.post([pages = std::move(region_.pages)] {});
  }
  Bytes bytes() const override { return region_.bytes; }

 private:
  const std::shared_ptr<State> state_;  // which may outlive the link
  const std::uint64_t slot_;
  Mapped region_;
  Executor& unmapping_;
};

std::shared_ptr<const PeerMemory> UcxHostBulk::read_in_place(const RemoteRegion& region) {
  const auto key = decode_region_key(region.key);
  if (!key.ok()) return nullptr;
  Mapped mapped = find(*key, region.size_bytes, BulkTransfer::Kind::kPull);
  if (mapped.bytes.empty() || !state_->enter(key->host_slot, region.id).ok()) return nullptr;
  return std::make_shared<InPlace>(state_, key->host_slot, std::move(mapped), copiers_);
}

UcxHostBulk::Mapped UcxHostBulk::find(const RegionKey& key, std::uint64_t size_bytes,
                                      BulkTransfer::Kind kind) {
  Mapped mapped;
  if (key.pages == 0) return mapped;
  mapped.pages = pages_.find(key.pages, key.pages_descriptor, key.pages_bytes);
  if (mapped.pages == nullptr) return {};
  if (kind == BulkTransfer::Kind::kPush && !mapped.pages->is_writable()) return {};
  const MutableBytes all = mapped.pages->bytes();
  if (key.pages_offset > all.size() || size_bytes > all.size() - key.pages_offset) return {};
  mapped.bytes = all.subspan(key.pages_offset, size_bytes);
  return mapped;
}

void UcxHostBulk::move(BulkChunk chunk, BulkQueue::Ended ended) {
  const RemoteRegion& remote = chunk.transfer->remote();
  const auto key = decode_region_key(remote.key);
  if (!key.ok()) return ended(key.status());
  if (const Status status = state_->enter(key->host_slot, remote.id); !status.ok()) {
    return ended(status);
  }
  Mapped region = find(*key, remote.size_bytes, chunk.transfer->kind());
  if (chunk.size_bytes <= kInlineBytesMax) {
    const Status status = state_->copy(chunk, region.bytes);
    state_->leave(key->host_slot);
    return ended(status);
  }
  SharedCopy::start(std::make_unique<SharedCopy>(state_, key->host_slot, std::move(region),
                                                 std::move(chunk), std::move(ended)),
                    copy_threads_, copiers_, link_.loop());
}

void UcxHostBulk::keep_until_quiet(std::unique_ptr<PrefaceSocket> socket) {
  exit_watch_.reset();
  pages_.clear();
  if (!state_->entered.empty()) state_->socket = std::move(socket);
}

// Tells the client that its region is in use, then asks whether it is still exposed: in this order,
// so that a client which takes it back meanwhile sees the one or is seen doing the other.
Status UcxHostBulk::State::enter(std::uint64_t slot, std::uint64_t region) {
  std::uint64_t active = 1;
  const MutableBytes active_bytes = std::as_writable_bytes(std::span(&active, 1));
  if (!entered.contains(slot)) {
    PRECIS_TRY(peer->write({&active_bytes, 1}, slot + offsetof(HostSlot, active)));
  }
  ++entered[slot];
  full_barrier();

  const Status status = check_open(slot, region);
  if (!status.ok()) leave(slot);
  return status;
}

Status UcxHostBulk::State::check_open(std::uint64_t slot, std::uint64_t region) const {
  std::uint64_t open = 0;
  const MutableBytes open_bytes = std::as_writable_bytes(std::span(&open, 1));
  PRECIS_TRY(peer->read({&open_bytes, 1}, slot + offsetof(HostSlot, open)));
  if (open == region) return {};
  return Status::not_found("region " + std::to_string(region) + " is not exposed (any more)");
}

void UcxHostBulk::State::leave(std::uint64_t slot) {
  const auto found = entered.find(slot);
  if (--found->second > 0) return;
  entered.erase(found);
  std::uint64_t active = 0;
  const MutableBytes bytes = std::as_writable_bytes(std::span(&active, 1));
  // Fails only if the client is gone, and with it all who could wait.
  static_cast<void>(peer->write({&bytes, 1}, slot + offsetof(HostSlot, active)));
  if (entered.empty()) socket.reset();
}

Status UcxHostBulk::State::copy(const BulkChunk& chunk, MutableBytes region) const {
  if (!region.empty()) {
    // The chunk is within it (BulkTransfer::make).
    copy_chunk(chunk, region.subspan(chunk.offset, chunk.size_bytes));
    return {};
  }
  const std::uint64_t address = chunk.transfer->remote().address + chunk.offset;
  return chunk.transfer->kind() == BulkTransfer::Kind::kPull ? peer->read(chunk.local, address)
                                                             : peer->write(chunk.local, address);
}

}  // namespace precis

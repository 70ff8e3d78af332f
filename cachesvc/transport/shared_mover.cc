#include "cachesvc/transport/shared_mover.h"

#include <algorithm>
#include <string>
#include <utility>

namespace precis {
namespace {

// Up to this size, a copy takes less time than waking a thread for it (some 50 us), so the loop
// copies.
constexpr std::size_t kInlineBytesMax = 256u << 10;

bool lies_in(const RemoteRegion& region, const Pages& pages) {
  const std::uint64_t size = pages.bytes().size();
  return region.slot < limits::kSharedSlotsMax && region.buffer_offset <= size &&
         region.size_bytes <= size - region.buffer_offset;
}

}  // namespace

Status SharedBuffers::add(std::uint64_t id, std::uint64_t size_bytes, Descriptor file) {
  if (size_bytes > limits::kSharedBytesMax) {
    return Status::invalid("a shared buffer of " + std::to_string(size_bytes) +
                           " B exceeds the limit of " + std::to_string(limits::kSharedBytesMax) +
                           " B");
  }
  if (find(id) || (id == kWindowBuffer && window())) {
    return Status::invalid("buffer " + std::to_string(id) + " is shared already");
  }
  PRECIS_ASSIGN(auto pages, Pages::adopt(std::move(file), size_bytes));
  const std::lock_guard lock(mutex_);
  if (id == kWindowBuffer) {
    if (size_bytes != kWindowBytes || !pages->is_writable()) {
      return Status::invalid("a window has " + std::to_string(kWindowBytes) + " writable B");
    }
    window_ = std::move(pages);
    return {};
  }
  while (!buffers_.empty() && (buffers_.size() >= limits::kSharedBuffersMax ||
                               bytes_ + size_bytes > limits::kSharedBytesMax)) {
    let_go(buffers_.begin());
  }
  bytes_ += size_bytes;
  buffers_.push_back({id, std::move(pages)});
  return {};
}

void SharedBuffers::let_go(std::list<Buffer>::iterator buffer) {
  bytes_ -= buffer->pages->bytes().size();
  unmapping_.post([pages = std::move(buffer->pages)] {});
  buffers_.erase(buffer);
}

void SharedBuffers::remove(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(buffers_, id, &Buffer::id);
  if (known != buffers_.end()) let_go(known);
}

std::shared_ptr<const Pages> SharedBuffers::find(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(buffers_, id, &Buffer::id);
  if (known == buffers_.end()) return nullptr;
  buffers_.splice(buffers_.end(), buffers_, known);
  return known->pages;
}

std::shared_ptr<const Pages> SharedBuffers::window() const {
  const std::lock_guard lock(mutex_);
  return window_;
}

void SharedBuffers::clear() {
  const std::lock_guard lock(mutex_);
  while (!buffers_.empty()) let_go(buffers_.begin());
  window_.reset();
}

// ---- the mover ----------------------------------------------------------------------------------

// Keeps a region in use: a client that withdraws the region waits for this object's destruction.
class SharedMover::Use final : public PeerMemory {
 public:
  Use(std::shared_ptr<const Pages> window, std::shared_ptr<const Pages> pages, MutableBytes bytes,
      SharedSlot& slot, std::shared_ptr<DataStream> stream, Executor& unmapping)
      : window_(std::move(window)),
        pages_(std::move(pages)),
        bytes_(bytes),
        slot_(slot),
        stream_(std::move(stream)),
        unmapping_(unmapping) {}
  ~Use() override {
    leave(slot_);
    // The last owner of the pages unmaps them, which takes long. If that is this object, another
    // thread does it.
    if (pages_.use_count() == 1) unmapping_.post([pages = std::move(pages_)] {});
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  Bytes bytes() const override { return bytes_; }
  MutableBytes there() const { return bytes_; }
  bool is_writable() const { return pages_->is_writable(); }

 private:
  const std::shared_ptr<const Pages> window_;
  std::shared_ptr<const Pages> pages_;
  const MutableBytes bytes_;
  SharedSlot& slot_;
  const std::shared_ptr<DataStream> stream_;  // its end tells the client that no region is in use
  Executor& unmapping_;
};

SharedMover::SharedMover(EventLoop& control, std::shared_ptr<DataStream> stream,
                         std::shared_ptr<SharedBuffers> buffers, Executor& copiers)
    : control_(control),
      stream_(std::move(stream)),
      buffers_(std::move(buffers)),
      copiers_(copiers) {}

std::shared_ptr<const Pages> SharedMover::find(const RemoteRegion& remote) const {
  if (remote.space != MemorySpace::kHost || remote.buffer == 0) return nullptr;
  auto pages = buffers_->find(remote.buffer);
  return pages && buffers_->window() && lies_in(remote, *pages) ? pages : nullptr;
}

BulkLimits SharedMover::limits() const {
  // Half a millisecond of work per chunk, because each chunk costs the loop some work. Several
  // chunks wait, so that no thread is idle if transfers are small.
  return {.chunk_bytes = 4u << 20, .ranges_per_chunk = 256, .chunks_under_way = 4};
}

Result<std::shared_ptr<SharedMover::Use>> SharedMover::use(const RemoteRegion& remote) const {
  auto pages = find(remote);
  auto window = buffers_->window();
  if (!pages || !window) return Status::not_found("the region is not exposed (any more)");
  SharedSlot& slot = window_slots(window->bytes())[remote.slot];
  PRECIS_TRY(enter(slot, remote.id));
  const MutableBytes bytes = pages->bytes().subspan(remote.buffer_offset, remote.size_bytes);
  return std::make_shared<Use>(std::move(window), std::move(pages), bytes, slot, stream_, copiers_);
}

void SharedMover::post(BulkChunk chunk, Ended ended) {
  if (!canceled_.ok()) return ended(canceled_);
  auto used = use(chunk.transfer->remote());
  if (!used.ok()) return ended(used.status());
  if (chunk.transfer->kind() == BulkTransfer::Kind::kPush && !(*used)->is_writable()) {
    return ended(
        Status::unsupported("the memory was shared with an earlier service, so it can only be "
                            "read; allocate it again"));
  }
  const MutableBytes there = (*used)->there().subspan(chunk.offset, chunk.size_bytes);
  if (chunk.size_bytes <= kInlineBytesMax) {
    copy_chunk(chunk, there);
    used->reset();
    return ended({});
  }
  copiers_.post([&control = control_, chunk = std::move(chunk), there, held = std::move(*used),
                 ended = std::move(ended)]() mutable {
    copy_chunk(chunk, there);
    held.reset();
    control.post([ended = std::move(ended)] { ended({}); });
  });
}

std::shared_ptr<const PeerMemory> SharedMover::read_in_place(const RemoteRegion& remote) {
  if (!canceled_.ok()) return nullptr;
  auto used = use(remote);
  return used.ok() ? std::move(*used) : nullptr;
}

void SharedMover::cancel(const Status& why) {
  if (canceled_.ok()) canceled_ = why;
  buffers_->clear();
}

}  // namespace precis

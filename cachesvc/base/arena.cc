// One anonymous mapping and a best-fit allocator over it (arena.h).
//
// Freed memory is not returned to the machine, unless a buffer takes pages that lie apart. If the
// mapping is registered with a device, never: a page that is dropped and touched again is a new
// page that the device does not know.
#include "cachesvc/base/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace precis {
namespace {

constexpr std::size_t kHugePageBytes = 2u << 20;  // x86-64 and the usual arm64 granule
// Below the end of every user address space, so that sums of sizes cannot overflow.
constexpr std::size_t kArenaBytesMax = 1ull << 46;

struct Range {
  std::size_t offset, size;
};

// A mapping of `size` bytes that begins on a huge page, or null.
std::byte* map(std::size_t size) {
  // Maps one extra huge page, so that the kept part can start on a huge-page boundary.
  void* const address = ::mmap(nullptr, size + kHugePageBytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(address);
  const std::size_t skew = reinterpret_cast<std::uintptr_t>(first) % kHugePageBytes;
  const std::size_t head = skew == 0 ? 0 : kHugePageBytes - skew;
  if (head > 0) ::munmap(first, head);
  if (const std::size_t rest = kHugePageBytes - head; rest > 0) ::munmap(first + head + size, rest);
  ::madvise(first + head, size, MADV_HUGEPAGE);  // A hint: the arena also works without huge pages.
  return first + head;
}

Status refused(std::size_t size) {
  return Status::out_of_space("arena: the machine refuses " + std::to_string(size) +
                              " B: " + std::strerror(errno));
}

// The free ranges of [0, size), indexed by offset for merging and by size for the best fit.
class FreeRanges {
 public:
  explicit FreeRanges(std::size_t size) { add(0, size); }

  // Takes `size` bytes at one end of the smallest range that has them, or nothing.
  std::optional<Range> take(std::size_t size, Arena::End end) {
    const auto fit = by_size_.lower_bound({size, 0});
    if (fit == by_size_.end()) return std::nullopt;
    const auto [range_size, offset] = *fit;
    remove(offset, range_size);
    if (range_size == size) return Range{offset, size};
    const bool low = end == Arena::End::kLow;
    add(low ? offset + size : offset, range_size - size);
    return Range{low ? offset : offset + range_size - size, size};
  }

  // Takes `size` bytes, which are free, in as few ranges as possible.
  std::vector<Range> take_apart(std::size_t size) {
    std::vector<Range> taken;
    while (size > 0) {
      taken.push_back(*take(std::min(size, by_size_.rbegin()->first), Arena::End::kHigh));
      size -= taken.back().size;
    }
    return taken;
  }

  void give(std::size_t offset, std::size_t size) {
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.begin()) {
      const auto [before, before_size] = *std::prev(next);
      PRECIS_CHECK(before + before_size <= offset);
      if (before + before_size == offset) {
        remove(before, before_size);
        offset = before;
        size += before_size;
      }
    }
    next = by_offset_.lower_bound(offset);
    if (next != by_offset_.end()) {
      const auto [after, after_size] = *next;
      PRECIS_CHECK(offset + size <= after);
      if (offset + size == after) {
        remove(after, after_size);
        size += after_size;
      }
    }
    add(offset, size);
  }

 private:
  void add(std::size_t offset, std::size_t size) {
    by_offset_.emplace(offset, size);
    by_size_.emplace(size, offset);
  }
  void remove(std::size_t offset, std::size_t size) {
    by_offset_.erase(offset);
    by_size_.erase({size, offset});
  }

  std::map<std::size_t, std::size_t> by_offset_;
  std::set<std::pair<std::size_t, std::size_t>> by_size_;
};

class MappedArena final : public Arena {
 public:
  MappedArena(std::byte* base, std::size_t size) : base_(base), size_(size), free_(size) {}

  ~MappedArena() override {
    PRECIS_CHECK(used_ == 0);  // A buffer that outlives the arena would write to unmapped memory.
    ::munmap(base_, size_);
  }

  Result<std::unique_ptr<Buffer>> allocate(std::size_t size_bytes, End end) override {
    return take(size_bytes, end, /*apart=*/true);
  }
  Result<std::unique_ptr<Buffer>> allocate_together(std::size_t size_bytes, End end) override {
    return take(size_bytes, end, /*apart=*/false);
  }

  MutableBytes memory() const override { return {base_, size_}; }
  void pin() override { pinned_ = true; }

  std::size_t used_bytes() const override {
    std::lock_guard lock(mutex_);
    return used_;
  }

 private:
  class Piece final : public Buffer {
   public:
    Piece(MappedArena& arena, std::byte* base, std::vector<Range> ranges, std::size_t size)
        : arena_(arena), base_(base), ranges_(std::move(ranges)), size_(size) {}
    ~Piece() override { free_past(0); }
    MutableBytes bytes() const override { return {base_, size_}; }
    void shrink(std::size_t size_bytes) override {
      PRECIS_CHECK(size_bytes <= size_);
      free_past(taken_bytes(size_bytes));
      size_ = size_bytes;
    }

   private:
    void free_past(std::size_t kept) {
      const std::size_t taken = taken_bytes(size_);
      if (kept == taken) return;
      if (!arena_.holds(base_)) ::munmap(base_ + kept, taken - kept);
      for (std::size_t left = taken - kept; left > 0;) {
        Range& last = ranges_.back();
        const std::size_t freed = std::min(left, last.size);
        last.size -= freed;
        left -= freed;
        arena_.release({last.offset + last.size, freed});
        if (last.size == 0) ranges_.pop_back();
      }
    }

    MappedArena& arena_;
    std::byte* const base_;
    std::vector<Range> ranges_;
    std::size_t size_;
  };

  Result<std::unique_ptr<Buffer>> take(std::size_t size_bytes, End end, bool apart) {
    if (size_bytes > size_) {
      return Status::invalid("arena: " + std::to_string(size_bytes) + " B exceed the arena of " +
                             std::to_string(size_) + " B");
    }
    const std::size_t taken = taken_bytes(size_bytes);
    std::unique_lock lock(mutex_);
    const std::optional<Range> range = free_.take(taken, end);
    if (!range && !(apart && taken <= size_ - used_)) {
      return Status::out_of_space(
          "arena: no " + std::to_string(taken) + " B " + (apart ? "" : "in one piece ") +
          "are free; " + std::to_string(used_) + " of " + std::to_string(size_) + " B are in use");
    }
    used_ += taken;
    if (range) return piece(base_ + range->offset, {*range}, size_bytes);
    std::vector<Range> ranges = free_.take_apart(taken);
    lock.unlock();
    std::byte* const base = map(taken);
    if (base == nullptr) {
      for (const Range& each : ranges) release(each);
      return refused(taken);
    }
    for (const Range& each : ranges) {
      if (!pinned_) ::madvise(base_ + each.offset, each.size, MADV_DONTNEED);
    }
    return piece(base, std::move(ranges), size_bytes);
  }

  std::unique_ptr<Buffer> piece(std::byte* base, std::vector<Range> ranges, std::size_t size) {
    return std::make_unique<Piece>(*this, base, std::move(ranges), size);
  }
  bool holds(const std::byte* at) const { return at >= base_ && at < base_ + size_; }

  void release(const Range& range) {
    std::lock_guard lock(mutex_);
    free_.give(range.offset, range.size);
    used_ -= range.size;
  }

  std::byte* const base_;
  const std::size_t size_;
  std::atomic<bool> pinned_ = false;
  mutable std::mutex mutex_;
  FreeRanges free_;       // guarded by mutex_
  std::size_t used_ = 0;  // guarded by mutex_
};

}  // namespace

std::size_t Arena::taken_bytes(std::size_t size_bytes) {
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return std::max((size_bytes + page - 1) / page, std::size_t{1}) * page;
}

Result<std::unique_ptr<Arena>> Arena::create(std::size_t size_bytes) {
  if (size_bytes == 0 || size_bytes > kArenaBytesMax) {
    return Status::invalid("arena: size " + std::to_string(size_bytes) + " B is outside 1.." +
                           std::to_string(kArenaBytesMax));
  }
  const std::size_t size = taken_bytes(size_bytes);
  std::byte* const base = map(size);
  if (base == nullptr) return refused(size);
  return std::unique_ptr<Arena>(std::make_unique<MappedArena>(base, size));
}

}  // namespace precis

// One anonymous mapping and a best-fit allocator over it (arena.h).
//
// Freed memory is not returned to the machine. The mapping is registered with the transport, and a
// page that is dropped and touched again is a new page that the network card does not know.
#include "cachesvc/base/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace precis {
namespace {

constexpr std::size_t kAlign = 64;  // a cache line, and the alignment of a record's sections
// Layer-sized buffers start on a page if possible, because files are read into them directly.
constexpr std::size_t kPageBytes = 4096, kPagedBytes = 64u << 10;
constexpr std::size_t kHugePageBytes = 2u << 20;  // x86-64 and the usual arm64 granule
// Below the end of every user address space, so that sums of sizes cannot overflow.
constexpr std::size_t kArenaBytesMax = 1ull << 46;

constexpr std::size_t round_up(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit * unit;
}

// The free ranges of [0, size), indexed by offset for merging and by size for the best fit.
class FreeRanges {
 public:
  explicit FreeRanges(std::size_t size) { add(0, size); }

  // Takes a range of `size` bytes and returns its offset, or npos if none fits.
  static constexpr std::size_t npos = static_cast<std::size_t>(-1);
  std::size_t take(std::size_t size, Arena::End end) {
    auto fit = by_size_.lower_bound({size, 0});
    if (fit == by_size_.end()) return npos;
    std::size_t at = place_in(*fit, size, end, kAlign);
    if (size >= kPagedBytes) {
      for (auto next = fit; next != by_size_.end(); ++next) {
        const std::size_t paged = place_in(*next, size, end, kPageBytes);
        if (paged == npos) continue;
        fit = next;
        at = paged;
        break;
      }
    }
    const auto [range_size, offset] = *fit;
    remove(offset, range_size);
    if (at > offset) add(offset, at - offset);
    if (at + size < offset + range_size) add(at + size, offset + range_size - at - size);
    return at;
  }

  // Takes the whole free range that ends at `offset` and returns its size. Returns 0 if no free
  // range of at least `least` bytes ends there.
  std::size_t take_below(std::size_t offset, std::size_t least) {
    const auto next = by_offset_.lower_bound(offset);
    if (next == by_offset_.begin()) return 0;
    const auto [below, size] = *std::prev(next);
    if (below + size != offset || size < least) return 0;
    remove(below, size);
    return size;
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
  // Returns the offset of `size` bytes at the chosen end of a free range, or npos if they do not
  // fit.
  static std::size_t place_in(const std::pair<std::size_t, std::size_t>& range, std::size_t size,
                              Arena::End end, std::size_t align) {
    const auto [range_size, offset] = range;
    const std::size_t last = offset + range_size;
    if (end == Arena::End::kHigh) {
      const std::size_t at = (last - size) / align * align;
      return at >= offset ? at : npos;
    }
    const std::size_t at = round_up(offset, align);
    return at + size <= last ? at : npos;
  }

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
    if (size_bytes > size_) {
      return Status::invalid("arena: " + std::to_string(size_bytes) + " B exceed the arena of " +
                             std::to_string(size_) + " B");
    }
    const std::size_t taken = taken_for(size_bytes);
    std::lock_guard lock(mutex_);
    const std::size_t offset = free_.take(taken, end);
    if (offset == FreeRanges::npos) {
      return Status::out_of_space("arena: no free range of " + std::to_string(taken) + " B; " +
                                  std::to_string(used_) + " of " + std::to_string(size_) +
                                  " B are in use");
    }
    used_ += taken;
    return std::unique_ptr<Buffer>(new Piece(*this, offset, taken, size_bytes));
  }

  MutableBytes memory() const override { return {base_, size_}; }

  std::size_t used_bytes() const override {
    std::lock_guard lock(mutex_);
    return used_;
  }

 private:
  class Piece final : public Buffer {
   public:
    Piece(MappedArena& arena, std::size_t offset, std::size_t taken, std::size_t size)
        : arena_(arena), offset_(offset), taken_(taken), size_(size) {}
    ~Piece() override { arena_.release(offset_, taken_); }
    MutableBytes bytes() const override { return {arena_.base_ + offset_, size_}; }
    void shrink(std::size_t size_bytes) override {
      PRECIS_CHECK(size_bytes <= size_);
      const std::size_t kept = taken_for(size_bytes);
      if (kept < taken_) arena_.release(offset_ + kept, taken_ - kept);
      taken_ = kept;
      size_ = size_bytes;
    }
    void slide_down(std::size_t least) override {
      // This piece owns the gap below it while the bytes move: other threads keep allocating.
      const std::size_t gap = arena_.take_below(offset_, least);
      if (gap == 0) return;
      std::memmove(arena_.base_ + offset_ - gap, arena_.base_ + offset_, size_);
      offset_ -= gap;
      arena_.release(offset_ + taken_, gap);
    }

   private:
    MappedArena& arena_;
    std::size_t offset_, taken_, size_;
  };

  static std::size_t taken_for(std::size_t size_bytes) {
    return size_bytes == 0 ? kAlign : round_up(size_bytes, kAlign);
  }

  std::size_t take_below(std::size_t offset, std::size_t least) {
    std::lock_guard lock(mutex_);
    const std::size_t size = free_.take_below(offset, least);
    used_ += size;
    return size;
  }

  void release(std::size_t offset, std::size_t taken) {
    std::lock_guard lock(mutex_);
    free_.give(offset, taken);
    used_ -= taken;
  }

  std::byte* const base_;
  const std::size_t size_;
  mutable std::mutex mutex_;
  FreeRanges free_;       // guarded by mutex_
  std::size_t used_ = 0;  // guarded by mutex_
};

}  // namespace

Result<std::unique_ptr<Arena>> Arena::create(std::size_t size_bytes) {
  if (size_bytes == 0 || size_bytes > kArenaBytesMax) {
    return Status::invalid("arena: size " + std::to_string(size_bytes) + " B is outside 1.." +
                           std::to_string(kArenaBytesMax));
  }
  const std::size_t size = round_up(size_bytes, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
  // Maps one extra huge page, so that the kept part can start on a huge-page boundary.
  const std::size_t mapped = size + kHugePageBytes;
  void* const address = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    return Status::out_of_space("arena: the machine refuses " + std::to_string(size) +
                                " B: " + std::strerror(errno));
  }
  auto* const first = static_cast<std::byte*>(address);
  const std::size_t skew = reinterpret_cast<std::uintptr_t>(first) % kHugePageBytes;
  const std::size_t head = skew == 0 ? 0 : kHugePageBytes - skew;
  if (head > 0) ::munmap(first, head);
  if (const std::size_t rest = kHugePageBytes - head; rest > 0) ::munmap(first + head + size, rest);
  ::madvise(first + head, size, MADV_HUGEPAGE);  // A hint: the arena also works without huge pages.
  return std::unique_ptr<Arena>(std::make_unique<MappedArena>(first + head, size));
}

}  // namespace precis

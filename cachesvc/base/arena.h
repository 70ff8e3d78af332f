// The service's single pool of payload memory. It holds the staged layers and the hot tier, so the
// transport registers the memory once and the process never holds more payload than the pool's
// size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "precis/status.h"
#include "precis/view.h"

namespace precis {

class Arena {
 public:
  // Reserves `size_bytes` of address space, with huge pages if the machine provides them. The
  // machine commits the memory when it is first touched. kOutOfSpace if the machine refuses,
  // kInvalidArgument if the size is 0 or above 64 TiB.
  static Result<std::unique_ptr<Arena>> create(std::size_t size_bytes);
  virtual ~Arena() = default;

  // Returns the bytes that a buffer of `size_bytes` takes: whole pages, at least one. So a buffer
  // wastes less than a page.
  static std::size_t taken_bytes(std::size_t size_bytes);

  // A piece of the arena. Its destructor frees the piece. A Buffer must not outlive the arena.
  class Buffer {
   public:
    virtual ~Buffer() = default;
    virtual MutableBytes bytes() const = 0;  // begins on a page
    // Frees the pages past `size_bytes`, which is at most the current size.
    virtual void shrink(std::size_t size_bytes) = 0;
  };
  // The end of the arena to take from. Short-lived and long-lived buffers use different ends, so
  // that neither kind fragments the memory of the other.
  enum class End { kLow, kHigh };
  // kOutOfSpace if fewer pages are free than the buffer takes, kInvalidArgument if the arena has
  // fewer. If no free range is large enough, the buffer takes pages that lie apart: the machine
  // gets these back, and gives as many new ones side by side, outside memory(). That costs about as
  // much as a copy of the buffer. Thread-safe.
  virtual Result<std::unique_ptr<Buffer>> allocate(std::size_t size_bytes, End end = End::kLow) = 0;
  // As allocate(), but only within memory(): kOutOfSpace if no free range is large enough.
  virtual Result<std::unique_ptr<Buffer>> allocate_together(std::size_t size_bytes,
                                                            End end = End::kLow) = 0;

  virtual MutableBytes memory() const = 0;  // the whole arena, for registration
  // From now on memory() stays as it is, because a device knows its pages. Then buffers whose pages
  // lie apart take memory of the machine beside the arena's.
  virtual void pin() = 0;
  virtual std::size_t used_bytes() const = 0;  // of the pages that buffers take
};

}  // namespace precis

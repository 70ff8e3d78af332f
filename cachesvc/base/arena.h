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

  // A piece of the arena. Its destructor frees the piece. A Buffer must not outlive the arena.
  class Buffer {
   public:
    virtual ~Buffer() = default;
    virtual MutableBytes bytes() const = 0;
    // Frees the bytes past `size_bytes`, which is at most the current size.
    virtual void shrink(std::size_t size_bytes) = 0;
    // Moves the bytes down into the free range directly below them, if that range has at least
    // `least` bytes. This changes bytes(). If several pieces shrink and then slide, starting with
    // the lowest, no gap of `least` bytes or more is left between them.
    virtual void slide_down(std::size_t least) = 0;
  };
  // The end of the arena to take from. Short-lived and long-lived buffers use different ends, so
  // that neither kind fragments the memory of the other.
  enum class End { kLow, kHigh };
  // kOutOfSpace if no free range is that large now, kInvalidArgument if none can ever be. The
  // buffer is 64-byte aligned; from 64 KiB on it is page-aligned if a free range allows it.
  // Thread-safe.
  virtual Result<std::unique_ptr<Buffer>> allocate(std::size_t size_bytes, End end = End::kLow) = 0;

  virtual MutableBytes memory() const = 0;  // the whole arena, for registration
  virtual std::size_t used_bytes() const = 0;
};

}  // namespace precis

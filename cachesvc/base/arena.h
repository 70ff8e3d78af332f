// The service's one pool of payload memory: staged layers and the hot tier live in it, so that it
// is registered with the transport once and the process never holds more payload than its size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "precis/status.h"
#include "precis/view.h"

namespace precis {

class Arena {
 public:
  // Reserves `size_bytes` of address space, huge pages where the machine gives them; memory is
  // touched as it is used. kOutOfSpace if the machine refuses.
  static Result<std::unique_ptr<Arena>> create(std::size_t size_bytes);
  virtual ~Arena() = default;

  // A piece of the arena, returned to it when destroyed. Must not outlive the arena.
  class Buffer {
   public:
    virtual ~Buffer() = default;
    virtual MutableBytes bytes() const = 0;
    // Gives back what lies past `size_bytes`, at most what it has.
    virtual void shrink(std::size_t size_bytes) = 0;
    // Moves the bytes into what is free right below them, if that is at least `least` B: bytes()
    // changes. Pieces that shrink one after the other and slide, from the lowest on, leave no
    // larger holes between them.
    virtual void slide_down(std::size_t least) = 0;
  };
  // Which end of the arena to take from: what is soon given back keeps out of the way of what
  // stays, so that neither leaves holes among the other.
  enum class End { kLow, kHigh };
  // kOutOfSpace if no free range is that large now, kInvalidArgument if none can ever be.
  // 64-byte aligned, from 64 KiB on to pages where that can be. Thread-safe.
  virtual Result<std::unique_ptr<Buffer>> allocate(std::size_t size_bytes, End end = End::kLow) = 0;

  virtual MutableBytes memory() const = 0;  // all of it, for registration
  virtual std::size_t used_bytes() const = 0;
};

}  // namespace precis

// The atomic words with which a client takes back memory that its server accesses through a
// mapping. They lie in a memory file that both map, one pair for each region in use:
//
//   server: active += 1; is it still open? copy; active -= 1
//   client: open = 0; wait for active = 0
//
// The client may also wait for the end of the bulk socket: the server closes it only after
// releasing every region, and the server's kernel does so when the server dies. Only the client
// relies on `active`, so only the client is harmed if it writes `active`.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "precis/limits.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

struct SharedSlot {
  std::atomic<std::uint64_t> open{0};    // the region's id, 0 for none; written by the client
  std::atomic<std::uint64_t> active{0};  // accesses in progress; written by the server
};
static_assert(sizeof(SharedSlot) == 16 && std::atomic<std::uint64_t>::is_always_lock_free);

inline constexpr std::uint64_t kWindowBuffer = 1;  // the id under which the window is shared
inline constexpr std::size_t kWindowBytes = limits::kSharedSlotsMax * sizeof(SharedSlot);

inline std::span<SharedSlot> window_slots(MutableBytes window) {
  return {reinterpret_cast<SharedSlot*>(window.data()), window.size() / sizeof(SharedSlot)};
}

// Server: call enter() before and leave() after it uses a region. kNotFound if the region is no
// longer open.
inline Status enter(SharedSlot& slot, std::uint64_t region) {
  slot.active.fetch_add(1);
  if (region != 0 && slot.open.load() == region) return {};
  slot.active.fetch_sub(1);
  return Status::not_found("the region is not exposed (any more)");
}
inline void leave(SharedSlot& slot) { slot.active.fetch_sub(1); }

}  // namespace precis

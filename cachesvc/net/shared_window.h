// The words by which a client takes memory back that its server reaches through a mapping. They lie
// in a memory file that both map, one pair for each region in use:
//
//   server: active += 1; is it still open? copy; active -= 1     client: open = 0; wait for
//   active = 0
//
// or for the end of the bulk socket, which the server closes only when it has let go of every
// region, as its kernel does when it dies. Only the client trusts `active`, and only the client
// loses by writing it.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "precis/limits.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

struct SharedSlot {
  std::atomic<std::uint64_t> open{0};    // the id of the region, 0 for none; the client's
  std::atomic<std::uint64_t> active{0};  // how many use it; the server's
};
static_assert(sizeof(SharedSlot) == 16 && std::atomic<std::uint64_t>::is_always_lock_free);

inline constexpr std::uint64_t kWindowBuffer = 1;  // the id that the window is shared under
inline constexpr std::size_t kWindowBytes = limits::kSharedSlotsMax * sizeof(SharedSlot);

inline std::span<SharedSlot> window_slots(MutableBytes window) {
  return {reinterpret_cast<SharedSlot*>(window.data()), window.size() / sizeof(SharedSlot)};
}

// Server: before and after it uses a region. kNotFound where the region is not open any more.
inline Status enter(SharedSlot& slot, std::uint64_t region) {
  slot.active.fetch_add(1);
  if (region != 0 && slot.open.load() == region) return {};
  slot.active.fetch_sub(1);
  return Status::not_found("the region is not exposed (any more)");
}
inline void leave(SharedSlot& slot) { slot.active.fetch_sub(1); }

}  // namespace precis

#include "cachesvc/pipeline/memory.h"

#include <algorithm>

namespace precis {

Memory::Memory(Arena& arena, HotTier& hot_tier, EventLoop& loop, std::chrono::milliseconds wait)
    : arena_(arena), hot_tier_(hot_tier), loop_(loop), wait_(wait) {}

Memory::Answer Memory::take(std::size_t size_bytes) {
  Answer piece = arena_.allocate(size_bytes);
  // One eviction may free a hole too small; go on until it fits or nothing is left to evict.
  while (!piece.ok() && piece.status().code() == StatusCode::kOutOfSpace &&
         hot_tier_.make_room(size_bytes) > 0) {
    piece = arena_.allocate(size_bytes);
  }
  return piece;
}

Task<Memory::Answer> Memory::acquire(std::size_t size_bytes) {
  if (waiters_.empty()) {
    Answer piece = take(size_bytes);
    if (piece.ok()) co_return piece;
    if (piece.status().code() != StatusCode::kOutOfSpace) co_return piece;
  }
  co_return co_await completion<Answer>([&](std::function<void(Answer)> done) {
    auto waiter = std::make_unique<Waiter>(Waiter{size_bytes, std::move(done), nullptr});
    waiter->deadline = loop_.after(wait_, [this, w = waiter.get()] { give_up(w); });
    waiters_.push_back(std::move(waiter));
    ++waiting_;
  });
}

void Memory::retry() {
  if (waiting_.load() > 0) loop_.post([this] { serve_waiters(); });
}

void Memory::serve_waiters() {
  while (!waiters_.empty()) {
    Answer piece = take(waiters_.front()->size_bytes);
    if (!piece.ok() && piece.status().code() == StatusCode::kOutOfSpace) return;
    auto waiter = std::move(waiters_.front());
    waiters_.pop_front();
    --waiting_;
    waiter->done(std::move(piece));
  }
}

void Memory::give_up(const Waiter* waiter) {
  const auto it = std::find_if(waiters_.begin(), waiters_.end(),
                               [&](const auto& w) { return w.get() == waiter; });
  if (it == waiters_.end()) return;
  auto late = std::move(*it);
  waiters_.erase(it);
  --waiting_;
  late->done(Status::out_of_space(
      "no " + std::to_string(late->size_bytes) + " B of memory came free within " +
      std::to_string(wait_.count()) + " ms: " + std::to_string(arena_.used_bytes()) + " of " +
      std::to_string(arena_.memory().size()) + " B are in use; raise memory_bytes or retry later"));
  serve_waiters();  // a smaller one may have stood behind it
}

}  // namespace precis

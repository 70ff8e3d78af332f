#include "cachesvc/pipeline/memory.h"

#include <algorithm>
#include <utility>

namespace precis {

Memory::Memory(Arena& arena, HotTier& hot_tier, EventLoop& loop, std::chrono::milliseconds wait)
    : arena_(arena), hot_tier_(hot_tier), loop_(loop), wait_(wait) {}

Memory::Answer Memory::take(const std::vector<Want>& wants) {
  Pieces pieces;
  for (const Want& want : wants) {
    auto piece = arena_.allocate(want.size_bytes, want.end);
    // One eviction may free a hole too small; go on until it fits or nothing is left to evict.
    while (!piece.ok() && piece.status().code() == StatusCode::kOutOfSpace &&
           hot_tier_.make_room(want.size_bytes) > 0) {
      piece = arena_.allocate(want.size_bytes, want.end);
    }
    if (!piece.ok()) return piece.status();
    pieces.push_back(std::move(*piece));
  }
  return pieces;
}

Memory::Answer Memory::try_acquire(const std::vector<Want>& wants) {
  if (!waiters_.empty()) return Status::out_of_space("others wait for memory");
  return take(wants);
}

Task<Memory::Answer> Memory::acquire(std::vector<Want> wants) {
  Answer now = try_acquire(wants);
  if (now.ok() || now.status().code() != StatusCode::kOutOfSpace) co_return now;
  if (stopped_) co_return Status::unavailable("the service is stopping");
  co_return co_await completion<Answer>([&](std::function<void(Answer)> done) {
    auto waiter = std::make_unique<Waiter>(Waiter{std::move(wants), std::move(done), nullptr});
    waiter->deadline = loop_.after(wait_, [this, w = waiter.get()] { give_up(w); });
    waiters_.push_back(std::move(waiter));
    ++waiting_;
  });
}

void Memory::reclaim() {
  if (waiting_.load() > 0) hot_tier_.make_room(SIZE_MAX);
}

void Memory::retry() {
  if (waiting_.load() > 0) loop_.post([this] { serve_waiters(); });
}

void Memory::serve_waiters() {
  while (!waiters_.empty()) {
    Answer pieces = take(waiters_.front()->wants);
    if (!pieces.ok() && pieces.status().code() == StatusCode::kOutOfSpace) return;
    auto waiter = std::move(waiters_.front());
    waiters_.pop_front();
    --waiting_;
    waiter->done(std::move(pieces));
  }
}

void Memory::give_up(const Waiter* waiter) {
  const auto it = std::find_if(waiters_.begin(), waiters_.end(),
                               [&](const auto& w) { return w.get() == waiter; });
  if (it == waiters_.end()) return;
  auto late = std::move(*it);
  waiters_.erase(it);
  --waiting_;
  Answer pieces = take(late->wants);  // a last look, whoever stands before it
  if (!pieces.ok()) {
    std::size_t size_bytes = 0;
    for (const Want& want : late->wants) size_bytes += want.size_bytes;
    pieces = Status::out_of_space("no " + std::to_string(size_bytes) +
                                  " B of memory came free within " + std::to_string(wait_.count()) +
                                  " ms: " + std::to_string(arena_.used_bytes()) + " of " +
                                  std::to_string(arena_.memory().size()) +
                                  " B are in use; raise memory_bytes or retry later");
  }
  late->done(std::move(pieces));
  serve_waiters();  // a smaller one may have stood behind it
}

void Memory::stop() {
  stopped_ = true;
  for (auto& waiter : std::exchange(waiters_, {})) {
    --waiting_;
    waiter->done(Status::unavailable("the service is stopping"));
  }
}

}  // namespace precis

#include "cachesvc/pipeline/payload_memory.h"

#include <cstdint>
#include <utility>

#include "precis/limits.h"

namespace precis {

PayloadMemory::PayloadMemory(Arena& arena, HotTier& hot_tier, EventLoop& loop,
                             std::chrono::milliseconds wait)
    : arena_(arena),
      hot_tier_(hot_tier),
      size_bytes_(arena.memory().size() - arena.used_bytes()),
      loop_(loop),
      wait_(wait),
      queue_(loop, wait) {}

// A request that can never fit is refused here: it would block the queue's head and empty the hot
// tier.
Status PayloadMemory::check_fits(const std::vector<Want>& wants) const {
  std::size_t sum = 0;
  for (const Want& want : wants) {
    const std::size_t taken = Arena::taken_bytes(want.size_bytes);
    if (want.size_bytes > size_bytes_ || taken > size_bytes_ - sum) {
      return Status::invalid("more memory is needed at once than the " +
                             std::to_string(size_bytes_) +
                             " B that the service has: raise memory_bytes");
    }
    sum += taken;
  }
  return {};
}

PayloadMemory::Answer PayloadMemory::take(const std::vector<Want>& wants, bool evicting) {
  PRECIS_TRY(check_fits(wants));
  Pieces pieces;
  for (const Want& want : wants) {
    // One eviction may free too small a range; go on until the piece fits or nothing can be
    // evicted. Only then take pages that lie apart, because they take longer.
    auto piece = arena_.allocate_together(want.size_bytes, want.end);
    while (evicting && !piece.ok()) {
      const bool freed = hot_tier_.make_room(want.size_bytes) > 0;
      piece = freed ? arena_.allocate_together(want.size_bytes, want.end)
                    : arena_.allocate(want.size_bytes, want.end);
      if (!freed) break;
    }
    if (!piece.ok()) return piece.status();
    pieces.push_back(std::move(*piece));
  }
  return pieces;
}

PayloadMemory::Answer PayloadMemory::at_once(const std::vector<Want>& wants, bool evicting) {
  if (wants.empty()) return Pieces{};
  if (queue_.size() > 0) return Status::out_of_space("others wait for memory");
  return take(wants, evicting);
}

PayloadMemory::Answer PayloadMemory::try_acquire(const std::vector<Want>& wants) {
  return at_once(wants, /*evicting=*/true);
}

PayloadMemory::Answer PayloadMemory::try_free(const std::vector<Want>& wants) {
  return at_once(wants, /*evicting=*/false);
}

Task<PayloadMemory::Answer> PayloadMemory::acquire(std::vector<Want> wants, Owner owner) {
  return acquire([wants = std::move(wants)] { return wants; }, std::move(owner));
}

Task<PayloadMemory::Answer> PayloadMemory::acquire(Wants wants, Owner owner,
                                                   FairWaitQueue::Unwanted unwanted) {
  Answer now = try_acquire(wants());
  if (now.ok() || now.status().code() != StatusCode::kOutOfSpace) co_return now;
  if (stopped_) co_return Status::unavailable("the service is stopping");
  co_return co_await completion<Answer>([&](std::function<void(Answer)> done) {
    ++waiting_;
    const auto tell = [this, done](Answer answer) {
      --waiting_;
      done(std::move(answer));
    };
    queue_.add(
        owner,
        [this, wants, tell]() -> std::function<void()> {
          // A shared_ptr, because std::function requires a copyable closure; it is called once.
          const auto pieces = std::make_shared<Answer>(take(wants()));
          if (pieces->status().code() == StatusCode::kOutOfSpace) return nullptr;
          return [tell, pieces] { tell(std::move(*pieces)); };
        },
        [this, wants, unwanted, tell] {
          tell(unwanted() ? Status::canceled("nobody wants it any more") : give_up(wants()));
        },
        unwanted);
    retry();  // Its turn may have come.
  });
}

void PayloadMemory::retry() {
  if (waiting_.load() > 0) loop_.post([this] { queue_.serve(); });
}

PayloadMemory::Answer PayloadMemory::give_up(const std::vector<Want>& wants) {
  if (stopped_) return Status::unavailable("the service is stopping");
  Answer pieces = take(wants);  // one last try, also ahead of others in the queue
  if (pieces.ok()) return pieces;
  std::size_t size_bytes = 0;
  for (const Want& want : wants) size_bytes += want.size_bytes;
  return Status::rejected("no " + std::to_string(size_bytes) + " B of memory came free within " +
                              std::to_string(wait_.count()) +
                              " ms: " + std::to_string(arena_.used_bytes()) + " of " +
                              std::to_string(arena_.memory().size()) +
                              " B are in use; raise memory_bytes or retry later",
                          limits::kRetryAfterMemoryMs);
}

void PayloadMemory::stop() {
  stopped_ = true;
  queue_.stop();
}

}  // namespace precis

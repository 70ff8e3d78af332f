#include "cachesvc/pipeline/digest_room.h"

#include <chrono>
#include <functional>
#include <utility>

namespace precis {
namespace {

constexpr std::chrono::hours kWaitMax{24};  // longer than any path takes

}  // namespace

DigestRoom::DigestRoom(EventLoop& loop) : loop_(loop), queue_(loop, kWaitMax) {}

DigestRoom::Place::~Place() {
  room_.taken_ -= bytes_;
  if (room_.queue_.size() > 0) room_.loop_.post([&room = room_] { room.queue_.serve(); });
}

Task<std::unique_ptr<DigestRoom::Place>> DigestRoom::enter(std::size_t num_tokens,
                                                           std::uint32_t block_tokens,
                                                           Owner owner) {
  if (block_tokens >= kBlockTokens) co_return nullptr;
  const std::size_t bytes = num_tokens / block_tokens * sizeof(Digest);
  if (queue_.size() > 0 || !fits(bytes)) {
    co_await completion<bool>([&](std::function<void(bool)> done) {
      queue_.add(
          owner,
          [this, bytes, done]() -> std::function<void()> {
            if (!fits(bytes)) return nullptr;
            return [done] { done(true); };
          },
          [done] { done(false); });
    });
  }
  co_return std::make_unique<Place>(*this, bytes);
}

}  // namespace precis

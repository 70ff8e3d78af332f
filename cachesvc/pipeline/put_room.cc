#include "cachesvc/pipeline/put_room.h"

#include <string>
#include <utility>

#include "precis/limits.h"

namespace precis {

PutRoom::Place::~Place() {
  room_.taken_ -= bytes_;
  if (room_.queue_.size() > 0) room_.loop_.post([&room = room_] { room.queue_.serve(); });
}

Task<Result<std::unique_ptr<PutRoom::Place>>> PutRoom::enter(std::size_t bytes, Owner owner) {
  using Answer = Result<std::unique_ptr<Place>>;
  if (is_free(bytes)) {
    co_return std::make_unique<Place>(*this, bytes);
  }
  if (stopped_) co_return Status::unavailable("the service is stopping");
  co_return co_await completion<Answer>([&](std::function<void(Answer)> done) {
    queue_.add(
        owner,
        [this, bytes, done]() -> std::function<void()> {
          if (!fits(bytes)) return nullptr;
          // A shared_ptr, because std::function requires a copyable closure; it is called once.
          auto place =
              std::make_shared<std::unique_ptr<Place>>(std::make_unique<Place>(*this, bytes));
          return [done, place] { done(std::move(*place)); };
        },
        [this, bytes, done] {
          if (stopped_) return done(Status::unavailable("the service is stopping"));
          done(Status::rejected("the put would stage " + std::to_string(bytes) +
                                    " B, and those under way take " + std::to_string(taken_) +
                                    " of the " + std::to_string(size_bytes_) +
                                    " B for puts still, after " + std::to_string(wait_.count()) +
                                    " ms; raise memory_bytes or retry later",
                                limits::kRetryAfterMemoryMs));
        });
  });
}

void PutRoom::stop() {
  stopped_ = true;
  queue_.stop();
}

}  // namespace precis

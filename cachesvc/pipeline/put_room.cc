#include "cachesvc/pipeline/put_room.h"

#include <algorithm>
#include <string>
#include <utility>

#include "precis/limits.h"

namespace precis {

PutRoom::Place::Place(PutRoom& room, std::string tenant, std::size_t bytes)
    : room_(room), tenant_(std::move(tenant)), bytes_(bytes) {
  if (bytes_ > 0) room_.taken_by_[tenant_] += bytes_;
}

void PutRoom::Place::admit() {
  admitted_ = true;
  if (bytes_ == 0) return;
  room_.taken_ += bytes_;
  room_.admitted_by_[tenant_] += bytes_;
  room_.tell_rest(tenant_);
}

void PutRoom::Place::add(std::size_t bytes) {
  if (bytes == 0) return;
  bytes_ += bytes;
  room_.taken_by_[tenant_] += bytes;
  room_.taken_ += bytes;
  room_.admitted_by_[tenant_] += bytes;
  room_.tell_rest(tenant_);
}

void PutRoom::Place::shrink(std::size_t left) {
  const std::size_t freed = bytes_ - std::min(bytes_, left);
  if (freed == 0) return;
  bytes_ -= freed;
  subtract(room_.taken_by_, tenant_, freed);
  if (!admitted_) return;
  room_.taken_ -= freed;
  subtract(room_.admitted_by_, tenant_, freed);
  room_.tell_rest(tenant_);
  if (room_.queue_.size() > 0) room_.loop_.post([&room = room_] { room.queue_.serve(); });
}

PutRoom::Place::~Place() { shrink(0); }

void PutRoom::subtract(ByTenant& from, const std::string& tenant, std::size_t bytes) {
  const auto own = from.find(tenant);
  own->second -= bytes;
  if (own->second == 0) from.erase(own);
}

std::size_t PutRoom::taken_by(const std::string& tenant) const {
  const auto taken = taken_by_.find(tenant);
  return taken == taken_by_.end() ? 0 : taken->second;
}

void PutRoom::set_limits(Limits limits) {
  const Limits before = std::exchange(limits_, std::move(limits));
  for (const auto& [tenant, limit] : before) {
    if (!limits_.contains(tenant)) rest_changed_(tenant, std::nullopt);
  }
  for (const auto& [tenant, limit] : limits_) tell_rest(tenant);
}

void PutRoom::tell_rest(const std::string& tenant) const {
  const auto limit = limits_.find(tenant);
  if (limit == limits_.end()) return;
  const auto held = admitted_by_.find(tenant);
  const std::size_t bytes = held == admitted_by_.end() ? 0 : held->second;
  rest_changed_(tenant, limit->second - std::min<std::size_t>(limit->second, bytes));
}

Status PutRoom::check_tenant(const std::string& tenant, std::size_t bytes) const {
  const auto limit = limits_.find(tenant);
  if (limit == limits_.end()) return {};
  const std::size_t taken = taken_by(tenant);
  if (bytes <= limit->second && taken <= limit->second - bytes) return {};
  const std::string text = "the put would stage " + std::to_string(bytes) +
                           " B, and the others of tenant '" + tenant + "' take " +
                           std::to_string(taken) + " of its " + std::to_string(limit->second) +
                           " B (max_memory_bytes)";
  if (bytes > limit->second) {
    return Status::out_of_space(
        text + "; put the path in several segments, keep fewer entries, or raise it");
  }
  return Status::rejected(text + "; retry later", limits::kRetryAfterMemoryMs);
}

Task<Result<std::unique_ptr<PutRoom::Place>>> PutRoom::enter(std::size_t bytes, Owner owner) {
  using Answer = Result<std::unique_ptr<Place>>;
  PRECIS_CO_TRY(check_tenant(owner.tenant, bytes));
  auto own = std::make_unique<Place>(*this, owner.tenant, bytes);
  if (is_free(bytes)) {
    own->admit();
    co_return own;
  }
  // A shared_ptr, because std::function requires a copyable closure; it is called once.
  const auto place = std::make_shared<std::unique_ptr<Place>>(std::move(own));
  if (stopped_) co_return Status::unavailable("the service is stopping");
  co_return co_await completion<Answer>([&](std::function<void(Answer)> done) {
    queue_.add(
        owner,
        [this, bytes, done, place]() -> std::function<void()> {
          if (!fits(bytes)) return nullptr;
          (*place)->admit();
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

// Removing objects that no row names, in the order of the changes that are copied.
#include <utility>

#include "cachesvc/shared/uploads.h"

namespace precis {

// The caller holds mutex_.
const ShardMark* Uploads::settled_mark(std::uint32_t number, std::uint64_t hold) const {
  const auto at = shards_.find(number);
  if (at == shards_.end()) return nullptr;
  const Shard& shard = at->second;
  const bool is_settled = shard.hold == hold && shard.waiting.empty() && !shard.is_lost &&
                          !shard.is_ending && shard.mark.node == shard.node;
  return is_settled ? &shard.mark : nullptr;
}

std::optional<ShardMark> Uploads::settled(std::uint32_t number, std::uint64_t hold) const {
  const std::lock_guard lock(mutex_);
  const ShardMark* const mark = settled_mark(number, hold);
  return mark == nullptr ? std::nullopt : std::optional(*mark);
}

void Uploads::remove(std::uint32_t number, std::uint64_t hold, const ShardMark& from,
                     std::vector<Upload::Object> objects, std::function<void(Status)> done) {
  {
    const std::lock_guard lock(mutex_);
    const ShardMark* const mark = settled_mark(number, hold);
    if (mark != nullptr && *mark == from && !nobody_waits_) {
      Waiting change;
      change.upload.removed = std::move(objects);
      change.removed = std::move(done);
      return push(number, shards_.at(number), std::move(change));
    }
  }
  done(Status::conflict("shard " + std::to_string(number) + " is being changed"));
}

}  // namespace precis

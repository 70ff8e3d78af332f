#include "cachesvc/store/payload_index.h"

#include <mutex>

namespace precis {

Result<PayloadIndex::Found> PayloadIndex::find(const std::string& key, Pinning pinning) const {
  std::shared_lock lock(mutex_);
  if (const auto expected = expected_.find(key); expected != expected_.end()) {
    if (auto memory = expected->second->unwritten()) return Found{nullptr, std::move(*memory)};
    return Found{payload_.pin(expected->second->place(), pinning), {}};
  }
  const auto place = places_.find(key);
  if (place == places_.end()) return Status::not_found("payload: no such value");
  return Found{payload_.pin(place->second, pinning), {}};
}

void PayloadIndex::expect(const PayloadBatch& batch) {
  std::unique_lock lock(mutex_);
  for (std::size_t i = 0; i < batch.keys.size(); ++i) expected_[batch.keys[i]] = batch.values[i];
}

void PayloadIndex::erase(const PayloadBatch& batch) {
  std::unique_lock lock(mutex_);
  for (std::size_t i = 0; i < batch.keys.size(); ++i) {
    const auto at = expected_.find(batch.keys[i]);
    if (at != expected_.end() && at->second == batch.values[i]) expected_.erase(at);
  }
}

std::vector<Extent> PayloadIndex::replace(const PayloadBatch& batch,
                                          const std::vector<std::string>& deleted) {
  std::vector<Extent> gone;
  std::unique_lock lock(mutex_);
  for (std::size_t i = 0; i < batch.keys.size(); ++i) {
    const Extent extent = batch.values[i]->place();
    batch.values[i]->keep();
    // From now on the value may move, so find() must use its row's place.
    const auto expected = expected_.find(batch.keys[i]);
    if (expected != expected_.end() && expected->second == batch.values[i]) {
      expected_.erase(expected);
    }
    const auto [at, added] = places_.try_emplace(batch.keys[i], extent);
    if (!added) gone.push_back(std::exchange(at->second, extent));
  }
  for (const std::string& key : deleted) {
    const auto at = places_.find(key);
    if (at == places_.end()) continue;
    gone.push_back(at->second);
    places_.erase(at);
  }
  return gone;
}

std::uint64_t PayloadIndex::bytes_of(const std::string& prefix) const {
  std::uint64_t bytes = 0;
  std::shared_lock lock(mutex_);
  for (auto at = places_.lower_bound(prefix); at != places_.end(); ++at) {
    if (!at->first.starts_with(prefix)) break;
    bytes += at->second.size;
  }
  return bytes;
}

PayloadOwner::Named PayloadIndex::named_in(std::uint32_t file) const {
  PayloadOwner::Named values;
  std::shared_lock lock(mutex_);
  for (const auto& [key, extent] : places_) {
    if (extent.file == file) values.emplace_back(key, extent);
  }
  return values;
}

bool PayloadIndex::is_at(const std::string& key, const Extent& place) const {
  std::shared_lock lock(mutex_);
  const auto at = places_.find(key);
  return at != places_.end() && at->second == place;
}

void PayloadIndex::move(const std::string& key, const Extent& to) {
  std::unique_lock lock(mutex_);
  places_.find(key)->second = to;
}

}  // namespace precis

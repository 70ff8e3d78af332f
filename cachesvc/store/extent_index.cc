#include "cachesvc/store/extent_index.h"

#include <mutex>

namespace precis {

Result<ExtentIndex::Found> ExtentIndex::find(const std::string& key,
                                             ExtentFiles::Pinning pinning) const {
  std::shared_lock lock(mutex_);
  if (const auto expected = expected_.find(key); expected != expected_.end()) {
    const std::uint64_t size = expected->second->size_bytes();
    if (auto memory = expected->second->unwritten()) {
      return Found{std::nullopt, std::move(*memory), size};
    }
    return Found{files_.pin(expected->second->extent(), pinning), {}, size};
  }
  const auto extent = extents_.find(key);
  if (extent == extents_.end()) return Status::not_found("payload: no such value");
  return Found{files_.pin(extent->second, pinning), {}, extent->second.size};
}

std::set<std::string> ExtentIndex::keys() const {
  std::set<std::string> keys;
  std::shared_lock lock(mutex_);
  for (const auto& [key, extent] : extents_) keys.insert(keys.end(), key);
  for (const auto& [key, value] : expected_) keys.insert(key);
  return keys;
}

void ExtentIndex::expect(const PayloadBatch& batch) {
  std::unique_lock lock(mutex_);
  for (std::size_t i = 0; i < batch.keys.size(); ++i) expected_[batch.keys[i]] = batch.values[i];
}

void ExtentIndex::forget(const PayloadBatch& batch) {
  std::unique_lock lock(mutex_);
  for (std::size_t i = 0; i < batch.keys.size(); ++i) {
    const auto at = expected_.find(batch.keys[i]);
    if (at != expected_.end() && at->second == batch.values[i]) expected_.erase(at);
  }
}

std::vector<Extent> ExtentIndex::replace(const PayloadBatch& batch,
                                         const std::vector<std::string>& deleted) {
  std::vector<Extent> gone;
  std::unique_lock lock(mutex_);
  for (std::size_t i = 0; i < batch.keys.size(); ++i) {
    const Extent extent = batch.values[i]->extent();
    batch.values[i]->keep();
    // From now on the value may move, so find() must use its row's place.
    const auto expected = expected_.find(batch.keys[i]);
    if (expected != expected_.end() && expected->second == batch.values[i]) {
      expected_.erase(expected);
    }
    const auto [at, added] = extents_.try_emplace(batch.keys[i], extent);
    if (!added) gone.push_back(std::exchange(at->second, extent));
  }
  for (const std::string& key : deleted) {
    const auto at = extents_.find(key);
    if (at == extents_.end()) continue;
    gone.push_back(at->second);
    extents_.erase(at);
  }
  return gone;
}

std::vector<std::pair<std::string, Extent>> ExtentIndex::in_file(std::uint32_t number) const {
  std::vector<std::pair<std::string, Extent>> values;
  std::shared_lock lock(mutex_);
  for (const auto& [key, extent] : extents_) {
    if (extent.file == number) values.emplace_back(key, extent);
  }
  return values;
}

bool ExtentIndex::is_at(const std::string& key, const Extent& place) const {
  std::shared_lock lock(mutex_);
  const auto at = extents_.find(key);
  return at != extents_.end() && at->second == place;
}

void ExtentIndex::move(const std::string& key, const Extent& to) {
  std::unique_lock lock(mutex_);
  extents_.find(key)->second = to;
}

}  // namespace precis

#include "cachesvc/net/region_table.h"

#include <functional>

namespace precis {

Status check_range(const RemoteRegion& region, std::uint64_t offset, std::uint64_t size) {
  if (offset <= region.size_bytes && size <= region.size_bytes - offset) return {};
  return Status::invalid("bytes [" + std::to_string(offset) + ", +" + std::to_string(size) +
                         ") are outside exposed region " + std::to_string(region.id) + " of " +
                         std::to_string(region.size_bytes) + " B");
}

Status check_part(MutableBytes range, MutableBytes registered) {
  const std::less_equal<const std::byte*> le;
  if (range.empty() || (le(registered.data(), range.data()) &&
                        le(range.data() + range.size(), registered.data() + registered.size()))) {
    return {};
  }
  return Status::invalid("a local range of " + std::to_string(range.size()) +
                         " B is outside its registration of " + std::to_string(registered.size()) +
                         " B");
}

RegionTable::Access::~Access() {
  if (table_) table_->release(id_);
}

std::uint64_t RegionTable::add(MutableBytes bytes) {
  const std::lock_guard lock(mutex_);
  regions_[next_id_].bytes = bytes;
  return next_id_++;
}

Result<RegionTable::Access> RegionTable::access(std::uint64_t id, std::uint64_t offset,
                                                std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(id);
  if (found == regions_.end() || found->second.retired) {
    return Status::not_found("region " + std::to_string(id) + " is not exposed (any more)");
  }
  Region& region = found->second;
  RemoteRegion whole;
  whole.id = id;
  whole.size_bytes = region.bytes.size();
  PRECIS_TRY(check_range(whole, offset, size));
  ++region.accesses;
  return Access(shared_from_this(), id, region.bytes.subspan(offset, size));
}

void RegionTable::release(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  if (--regions_.at(id).accesses == 0) released_.notify_all();
}

void RegionTable::retire(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  regions_.at(id).retired = true;
}

void RegionTable::remove(std::uint64_t id) {
  std::unique_lock lock(mutex_);
  regions_.at(id).retired = true;
  clock_.wait(released_, lock, Clock::Time::max(), [&] { return regions_.at(id).accesses == 0; });
  regions_.erase(id);
}

}  // namespace precis

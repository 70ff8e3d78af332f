#include "cachesvc/store/extent_pin.h"

#include <algorithm>
#include <string>

#include "cachesvc/store/extent_header.h"

namespace precis {

Result<std::shared_ptr<File>> ExtentPin::file() const {
  const auto missing = [this] {
    return Status::corruption("payload file " + extent_file_name(extent_.file) + " is missing");
  };
  if (!file_) return missing();
  auto file = file_->use();
  if (file.status().code() == StatusCode::kNotFound) return missing();
  return file;
}

Status ExtentPin::read(MutableBytes into) const {
  PRECIS_CHECK(into.size() == extent_.size);
  PRECIS_ASSIGN(const std::shared_ptr<File> opened, file());
  return opened->read_at(extent_.offset, into);
}

Result<FileBlocks> ExtentPin::read() const {
  PRECIS_ASSIGN(const std::shared_ptr<File> opened, file());
  PRECIS_ASSIGN(const std::uint64_t size, opened->size());
  if (extent_.offset > size || extent_.size > size - extent_.offset) {
    return Status::corruption("payload file " + extent_file_name(extent_.file) + " of " +
                              std::to_string(size) + " B has no bytes [" +
                              std::to_string(extent_.offset) + ", +" +
                              std::to_string(extent_.size) + ")");
  }
  FileBlocks value(extent_.size);
  PRECIS_TRY(read(value.bytes()));
  return value;
}

std::shared_ptr<const void> PinnedPlaces::pin(const Extent& place, bool keeps) {
  const std::tuple range(place.file, place.offset, whole_blocks(place.size));
  {
    const std::lock_guard lock(mutex_);
    places_.insert(range);
    if (keeps) kept_.insert(place.file);
  }
  return {this, [this, range, keeps](const void*) {
            const std::lock_guard lock(mutex_);
            places_.erase(places_.find(range));
            if (keeps) kept_.erase(kept_.find(std::get<0>(range)));
          }};
}

bool PinnedPlaces::keeps(std::uint32_t file) const {
  const std::lock_guard lock(mutex_);
  return kept_.contains(file);
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> PinnedPlaces::without_pins(
    std::uint32_t file, std::uint64_t offset, std::uint64_t size) const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> parts;
  std::uint64_t begin = offset;  // of the part without pins so far
  const std::uint64_t end = offset + size;
  const std::lock_guard lock(mutex_);
  for (auto pinned = places_.lower_bound({file, offset, 0});
       pinned != places_.end() && *pinned < std::tuple(file, end, 0u); ++pinned) {
    const auto [number, first, bytes] = *pinned;
    if (first > begin) parts.emplace_back(begin, first - begin);
    begin = std::max(begin, first + bytes);
  }
  if (begin < end) parts.emplace_back(begin, end - begin);
  return parts;
}

}  // namespace precis

#include "cachesvc/store/extent_files.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstring>
#include <utility>

#include "cachesvc/store/extent_header.h"

namespace precis {

// ---- opening

Result<std::unique_ptr<ExtentFiles>> ExtentFiles::open(std::unique_ptr<Folder> folder,
                                                       std::span<const Extent> live,
                                                       std::uint64_t file_bytes,
                                                       SpaceGuard* guard) {
  std::unique_ptr<ExtentFiles> files(new ExtentFiles(std::move(folder), file_bytes, guard));
  PRECIS_TRY(files->load(live));
  return files;
}

Status ExtentFiles::load(std::span<const Extent> live) {
  std::map<std::uint32_t, std::uint64_t> sizes;  // of the existing files
  for (const Extent& extent : live) {
    Entry& entry = files_[extent.file];
    entry.live += whole_blocks(extent.size);
    entry.size = std::max(entry.size, extent.offset + whole_blocks(extent.size));
  }
  PRECIS_ASSIGN(const std::vector<std::string> names, pool_.folder().names());
  for (const std::string& name : names) {
    const std::optional<std::uint32_t> number = extent_file_number(name);
    if (!number) continue;
    auto handle = pool_.known(name);
    PRECIS_ASSIGN(const std::shared_ptr<File> file, handle->use());
    PRECIS_TRY(check_extent_header(*file, name));
    PRECIS_ASSIGN(const std::uint64_t size, file->size());
    sizes[*number] = size;
    // Includes files without live values: never referred to, or emptied.
    Entry& entry = files_[*number];
    entry.file = std::move(handle);
    entry.size = std::max(entry.size, size);
    PRECIS_ASSIGN(const std::uint64_t taken, file->taken());
    entry.punched = size - std::min(size, taken);
    // Bytes of an earlier process may still be only in the page cache.
    entry.dirty = true;
  }
  for (const Extent& extent : live) {
    const auto size = sizes.find(extent.file);
    const bool there = size != sizes.end() && extent.offset <= size->second &&
                       extent.size <= size->second - extent.offset;
    if (!there) missing_bytes_ += whole_blocks(extent.size);
    if (!there) files_.at(extent.file).sound = false;
  }
  find_dead(live);
  for (const auto& [number, entry] : files_) next_ = std::max(next_, number + 1);
  return {};
}

// Finds the bytes between the values of each file. Rows may be damaged: if a file's rows contradict
// each other, none of its bytes is known to be dead.
void ExtentFiles::find_dead(std::span<const Extent> live) {
  std::vector<Extent> sorted(live.begin(), live.end());
  std::ranges::sort(sorted, {}, [](const Extent& e) { return std::pair(e.file, e.offset); });
  std::map<std::uint32_t, std::uint64_t> ends;
  for (const Extent& extent : sorted) {
    Entry& entry = files_.at(extent.file);
    std::uint64_t& end = ends.try_emplace(extent.file, kFileBlockBytes).first->second;
    if (extent.offset < end || extent.offset % kFileBlockBytes != 0) entry.sound = false;
    if (!entry.sound) continue;
    if (extent.offset > end) entry.dead.emplace(end, extent.offset - end);
    end = extent.offset + whole_blocks(extent.size);
  }
  for (auto& [number, entry] : files_) {
    const std::uint64_t end = ends.try_emplace(number, kFileBlockBytes).first->second;
    if (entry.size > end) entry.dead.emplace(end, entry.size - end);
    if (!entry.sound) entry.dead.clear();
  }
}

// ---- appending

Result<std::map<std::uint32_t, ExtentFiles::Entry>::iterator> ExtentFiles::file_with_room(
    std::uint64_t size) {
  if (open_) {
    const auto entry = files_.find(*open_);
    const bool fits = entry->second.size + size <= file_bytes_ ||
                      entry->second.size == kFileBlockBytes;  // a value longer than any file
    if (fits && !entry->second.lost) return entry;
    open_.reset();
  }
  while (files_.contains(next_)) ++next_;  // a damaged row may name any file number
  const std::uint32_t number = next_;
  PRECIS_ASSIGN(auto handle, pool_.create(extent_file_name(number)));
  ++next_;
  PRECIS_ASSIGN(const std::shared_ptr<File> file, handle->use());
  if (const Status status = write_extent_header(*file, number); !status.ok()) {
    (void)pool_.folder().remove(extent_file_name(number));
    return status;
  }
  open_ = number;
  Entry entry;
  entry.file = std::move(handle);
  entry.size = kFileBlockBytes;
  return files_.emplace(number, std::move(entry)).first;
}

Result<std::vector<Extent>> ExtentFiles::append(std::span<const Bytes> values, WriteUse use) {
  if (values.empty()) return std::vector<Extent>();
  std::uint64_t size = 0;
  for (const Bytes& value : values) size += whole_blocks(value.size());
  if (guard_) {
    PRECIS_TRY(guard_->admit(use, size + kFileBlockBytes));  // includes a new file's header
  }
  std::vector<Extent> extents;
  std::shared_ptr<FilePool::Handle> file;
  bool many_dirty = false;
  {
    std::lock_guard lock(mutex_);
    PRECIS_TRY(deleted_);
    PRECIS_ASSIGN(const auto entry, file_with_room(size));
    for (const Bytes& value : values) {
      extents.push_back({entry->first, entry->second.size, value.size()});
      entry->second.size += whole_blocks(value.size());
    }
    entry->second.live += size;
    entry->second.dirty = true;
    file = entry->second.file;
    file->hold(true);  // before a sync that finds it dirty can release it
    many_dirty = entry->second.size == kFileBlockBytes + size && have_many_dirty();
  }
  if (const Status status = write(file, extents.front().offset, values); !status.ok()) {
    for (const Extent& extent : extents) free(extent);
    return status;
  }
  {
    std::lock_guard lock(mutex_);
    files_.at(extents.front().file).dirty = true;  // a sync may have come in between
    file->hold(true);
  }
  // Files with unsynced bytes stay open, so limit their number. Later syncs report a failure again.
  if (many_dirty) (void)sync();
  return extents;
}

bool ExtentFiles::have_many_dirty() const {
  const auto dirty = std::ranges::count_if(files_, [](const auto& e) { return e.second.dirty; });
  return static_cast<std::size_t>(dirty) > limits::kOpenPayloadFilesMax / 2;
}

Status ExtentFiles::write(const std::shared_ptr<FilePool::Handle>& file, std::uint64_t offset,
                          std::span<const Bytes> values) {
  PRECIS_ASSIGN(const std::shared_ptr<File> opened, file->use());
  const Status status = opened->write_at(offset, values);
  if (status.code() == StatusCode::kUnavailable) (void)check();
  return status;
}

Status ExtentFiles::sync() {
  std::lock_guard syncing(syncs_);
  std::vector<std::pair<std::uint32_t, std::shared_ptr<FilePool::Handle>>> dirty;
  std::vector<std::uint32_t> nameless;
  Status result;
  {
    std::lock_guard lock(mutex_);
    PRECIS_TRY(deleted_);
    for (auto& [number, entry] : files_) {
      if (entry.lost && entry.live > 0) result = *entry.lost;
      if (entry.lost) continue;
      if (entry.file && std::exchange(entry.dirty, false)) dirty.emplace_back(number, entry.file);
      if (entry.file && !entry.named) nameless.push_back(number);
    }
  }
  // False if the file was removed meanwhile.
  const auto settle = [this](std::uint32_t number, const Status& status) {
    std::lock_guard lock(mutex_);
    const auto entry = files_.find(number);
    if (entry == files_.end()) return false;
    if (!status.ok()) entry->second.lost = status;
    entry->second.named = entry->second.named || status.ok();
    if (!entry->second.dirty) entry->second.file->hold(false);
    return true;
  };
  for (const auto& [number, handle] : dirty) {
    const auto file = handle->use();
    const Status status = file.ok() ? (*file)->sync() : file.status();
    if (status.ok()) {
      std::lock_guard lock(mutex_);
      const auto entry = files_.find(number);
      if (entry != files_.end() && !entry->second.dirty) handle->hold(false);
      continue;
    }
    if (settle(number, status)) result = status;
  }
  if (nameless.empty()) return result;
  const Status status = pool_.folder().sync();
  for (const std::uint32_t number : nameless) settle(number, status);
  return status.ok() ? result : status;
}

Status ExtentFiles::check() {
  {
    std::lock_guard lock(mutex_);
    PRECIS_TRY(deleted_);
  }
  Status status = pool_.folder().linked();
  if (status.ok()) status = check_names();
  std::lock_guard lock(mutex_);
  // Another check may have found a deletion meanwhile.
  if (deleted_.ok()) deleted_ = status;
  return deleted_;
}

// Listing many files takes a while, so it is skipped while the folder's stamp is the one at which
// all files were found. Changes within kStampStep may share a stamp, so a listing counts only if
// its stamp is that old.
Status ExtentFiles::check_names() {
  constexpr std::chrono::seconds kStampStep{1};
  const auto now = SystemClock().now();
  const std::optional<std::uint64_t> stamp = pool_.folder().stamp();
  std::vector<std::uint32_t> missing;
  bool is_settled = false;
  {
    std::lock_guard lock(mutex_);
    if (looked_.stamp != stamp) looked_ = {stamp, now, false};
    if (looked_.is_whole) return {};
    is_settled = stamp && now - looked_.since >= kStampStep;
    for (const auto& [number, entry] : files_) {
      if (entry.file) missing.push_back(number);
    }
  }
  const auto all = pool_.folder().names();
  if (!all.ok()) return {};  // proves nothing about any file
  const std::set<std::string> names(all->begin(), all->end());
  std::erase_if(missing, [&](auto number) { return names.contains(extent_file_name(number)); });
  std::lock_guard lock(mutex_);
  for (const std::uint32_t number : missing) {
    if (!files_.contains(number)) continue;  // this object removed it meanwhile
    return Status::unavailable("payload file " + extent_file_name(number) +
                               " was deleted under the running service: put it back where there "
                               "is a copy, and restart the service, which serves what is left");
  }
  if (is_settled && looked_.stamp == stamp) looked_.is_whole = true;
  return {};
}

// ---- reading

ExtentFiles::Pin ExtentFiles::pin(const Extent& extent, Pinning pinning_for) const {
  std::lock_guard lock(mutex_);
  const auto entry = files_.find(extent.file);
  if (entry == files_.end()) return {nullptr, extent, nullptr};
  const std::tuple place(extent.file, extent.offset, whole_blocks(extent.size));
  const bool is_kept = pinning_for == Pinning::kKeep;
  {
    std::lock_guard pinning(pins_.mutex);
    pins_.places.insert(place);
    if (is_kept) pins_.kept.insert(extent.file);
  }
  Pin::Pinned pinned(this, [this, place, is_kept](const void*) {
    std::lock_guard unpinning(pins_.mutex);
    pins_.places.erase(pins_.places.find(place));
    if (is_kept) pins_.kept.erase(pins_.kept.find(std::get<0>(place)));
  });
  return {entry->second.file, extent, std::move(pinned)};
}

Result<std::shared_ptr<File>> ExtentFiles::Pin::file() const {
  const auto missing = [this] {
    return Status::corruption("payload file " + extent_file_name(extent_.file) + " is missing");
  };
  if (!file_) return missing();
  auto file = file_->use();
  if (file.status().code() == StatusCode::kNotFound) return missing();
  return file;
}

Status ExtentFiles::Pin::read(MutableBytes into) const {
  PRECIS_CHECK(into.size() == extent_.size);
  PRECIS_ASSIGN(const std::shared_ptr<File> opened, file());
  return opened->read_at(extent_.offset, into);
}

Result<FileBlocks> ExtentFiles::Pin::read() const {
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

// ---- freeing

void ExtentFiles::free(const Extent& extent) {
  std::lock_guard lock(mutex_);
  const auto entry = files_.find(extent.file);
  if (entry == files_.end()) return;
  const std::uint64_t size = whole_blocks(extent.size);
  PRECIS_CHECK(entry->second.live >= size);
  entry->second.live -= size;
  if (entry->second.sound) bury(entry->second, extent.offset, size);
}

// Merges adjacent dead ranges.
void ExtentFiles::bury(Entry& entry, std::uint64_t offset, std::uint64_t size) {
  auto next = entry.dead.lower_bound(offset);
  if (next != entry.dead.end() && next->first == offset + size) {
    size += next->second;
    next = entry.dead.erase(next);
  }
  if (next != entry.dead.begin()) {
    auto& [before, length] = *std::prev(next);
    if (before + length == offset) {
      length += size;
      return;
    }
  }
  entry.dead.emplace_hint(next, offset, size);
}

std::vector<ExtentFiles::Hole> ExtentFiles::holes() const {
  std::vector<Hole> holes;
  std::lock_guard lock(mutex_);
  std::lock_guard pinning(pins_.mutex);
  for (const auto& [number, entry] : files_) {
    if (!entry.file || entry.live == 0) continue;  // a file without values is removed as a whole
    for (const auto& [offset, size] : entry.dead) {
      std::uint64_t begin = offset;  // of the range without pins so far
      const std::uint64_t end = offset + size;
      for (auto pinned = pins_.places.lower_bound({number, offset, 0});
           pinned != pins_.places.end() && *pinned < std::tuple(number, end, 0u); ++pinned) {
        const auto [file, first, bytes] = *pinned;
        if (first > begin) holes.push_back({number, begin, first - begin});
        begin = std::max(begin, first + bytes);
      }
      if (begin < end) holes.push_back({number, begin, end - begin});
    }
  }
  return holes;
}

Status ExtentFiles::punch(std::span<const Hole> holes) {
  for (const Hole& hole : holes) {
    std::shared_ptr<FilePool::Handle> handle;
    {
      std::lock_guard lock(mutex_);
      const auto entry = files_.find(hole.file);
      if (entry != files_.end()) handle = entry->second.file;
    }
    if (!handle) continue;
    PRECIS_ASSIGN(const std::shared_ptr<File> file, handle->use());
    // An earlier process may have punched a part of the hole.
    PRECIS_ASSIGN(const std::uint64_t before, file->taken());
    PRECIS_TRY(file->punch(hole.offset, hole.size));
    PRECIS_ASSIGN(const std::uint64_t after, file->taken());
    std::lock_guard lock(mutex_);
    const auto entry = files_.find(hole.file);
    if (entry == files_.end()) continue;
    entry->second.punched += std::min(hole.size, before - std::min(before, after));
    // Adjacent bytes that were freed meanwhile were merged with the hole; they stay dead.
    const auto dead = --entry->second.dead.upper_bound(hole.offset);
    const std::uint64_t begin = dead->first, end = dead->first + dead->second;
    entry->second.dead.erase(dead);
    if (begin < hole.offset) entry->second.dead.emplace(begin, hole.offset - begin);
    if (hole.offset + hole.size < end) {
      entry->second.dead.emplace(hole.offset + hole.size, end - hole.offset - hole.size);
    }
  }
  return {};
}

std::vector<std::uint32_t> ExtentFiles::empty_files() {
  std::lock_guard lock(mutex_);
  if (open_ && files_.at(*open_).live == 0 && files_.at(*open_).size > kFileBlockBytes) {
    open_.reset();
  }
  std::vector<std::uint32_t> empty;
  std::lock_guard pinning(pins_.mutex);
  for (const auto& [number, entry] : files_) {
    if (entry.live == 0 && number != open_ && !pins_.kept.contains(number)) empty.push_back(number);
  }
  return empty;
}

Status ExtentFiles::remove(std::span<const std::uint32_t> empty) {
  Status result;
  for (const std::uint32_t number : empty) {
    std::shared_ptr<FilePool::Handle> handle;
    {
      std::lock_guard lock(mutex_);
      const auto entry = files_.find(number);
      PRECIS_CHECK(entry != files_.end() && entry->second.live == 0 && number != open_);
      handle = std::move(entry->second.file);
      files_.erase(entry);
    }
    if (!handle) continue;
    if (handle.use_count() > 1) {  // readers need it and could not open it again
      handle->hold(true);
      (void)handle->use();
    }
    const Status removed = pool_.folder().remove(extent_file_name(number));
    if (!removed.ok() && removed.code() != StatusCode::kNotFound) result = removed;
  }
  return result;
}

std::optional<std::uint32_t> ExtentFiles::sparsest(double live_share) const {
  std::lock_guard lock(mutex_);
  std::lock_guard pinning(pins_.mutex);
  std::optional<std::uint32_t> found;
  double least = live_share;
  for (const auto& [number, entry] : files_) {
    if (number == open_ || !entry.file || entry.lost || entry.aside || entry.live == 0) continue;
    if (pins_.kept.contains(number)) continue;  // it could not be removed when empty
    const double share = static_cast<double>(entry.live) / static_cast<double>(entry.size);
    if (share >= least || entry.size - entry.live < entry.size / 16 + kFileBlockBytes) continue;
    least = share;
    found = number;
  }
  return found;
}

void ExtentFiles::set_aside(std::uint32_t number) {
  std::lock_guard lock(mutex_);
  if (const auto entry = files_.find(number); entry != files_.end()) entry->second.aside = true;
}

ExtentFiles::Stats ExtentFiles::stats() const {
  std::lock_guard lock(mutex_);
  Stats stats;
  stats.missing_bytes = missing_bytes_;
  for (const auto& [number, entry] : files_) {
    stats.live_bytes += entry.live;
    stats.file_bytes += entry.file ? entry.size - std::min(entry.size, entry.punched) : 0;
    ++stats.files;
  }
  return stats;
}

}  // namespace precis

#include "cachesvc/store/extent_files.h"

#include <algorithm>
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
  PRECIS_ASSIGN(ExtentScan found, scan_extents(pool_, live));
  files_ = std::move(found.files);
  sums_.files = files_.size();
  sums_.missing_bytes = found.missing_bytes;
  for (const auto& [number, entry] : files_) {
    next_ = std::max(next_, number + 1);
    sums_.live_bytes += entry.live;
    sums_.file_bytes += entry.bytes();
  }
  return {};
}

// ---- appending

Result<std::map<std::uint32_t, ExtentFile>::iterator> ExtentFiles::file_with_room(
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
  ExtentFile entry;
  entry.file = std::move(handle);
  entry.size = kFileBlockBytes;
  sums_.file_bytes += entry.size;
  ++sums_.files;
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
    sums_.live_bytes += size;
    sums_.file_bytes += size;
    entry->second.dirty = true;
    file = entry->second.file;
    file->hold(true);  // before a sync that finds it dirty can release it
    many_dirty = entry->second.size == kFileBlockBytes + size && have_many_dirty();
  }
  if (const Status status = write(*file, extents.front().offset, values); !status.ok()) {
    for (const Extent& extent : extents) free(extent);
    return status;
  }
  {
    std::lock_guard lock(mutex_);
    files_.at(extents.front().file).dirty = true;  // a sync may have reset it meanwhile
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

Status ExtentFiles::write(FilePool::Handle& file, std::uint64_t offset,
                          std::span<const Bytes> values) {
  PRECIS_ASSIGN(const std::shared_ptr<File> opened, file.use());
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
  // Returns false if the file was removed meanwhile.
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
  if (status.ok()) {
    std::vector<std::uint32_t> open;
    {
      std::lock_guard lock(mutex_);
      for (const auto& [number, entry] : files_) {
        if (entry.file) open.push_back(number);
      }
    }
    const auto missing = names_.missing(pool_.folder(), open);
    std::lock_guard lock(mutex_);
    // This object may have removed files meanwhile.
    const auto gone = std::ranges::find_if(
        missing, [&](std::uint32_t number) { return files_.contains(number); });
    if (gone != missing.end()) status = deleted_extent_file(*gone);
  }
  std::lock_guard lock(mutex_);
  if (deleted_.ok()) deleted_ = status;  // another check may have found a deletion meanwhile
  return deleted_;
}

// ---- reading

ExtentPin ExtentFiles::pin(const Extent& extent, Pinning pinning_for) const {
  std::lock_guard lock(mutex_);
  const auto entry = files_.find(extent.file);
  if (entry == files_.end()) return {nullptr, extent, nullptr};
  auto pinned = pins_.pin(extent, pinning_for == Pinning::kKeep);
  return {entry->second.file, extent, std::move(pinned)};
}

// ---- freeing

void ExtentFiles::free(const Extent& extent) {
  std::lock_guard lock(mutex_);
  const auto entry = files_.find(extent.file);
  if (entry == files_.end()) return;
  const std::uint64_t size = whole_blocks(extent.size);
  PRECIS_CHECK(entry->second.live >= size);
  entry->second.live -= size;
  sums_.live_bytes -= size;
  if (entry->second.sound) entry->second.dead.add(extent.offset, size);
}

std::vector<ExtentFiles::Hole> ExtentFiles::holes() const {
  std::vector<Hole> holes;
  std::lock_guard lock(mutex_);
  for (const auto& [number, entry] : files_) {
    // A file without values is removed as a whole.
    if (!entry.file || entry.live == 0 || held_.has(number)) continue;
    for (const auto& [offset, size] : entry.dead) {
      for (const auto& [first, bytes] : pins_.without_pins(number, offset, size)) {
        holes.push_back({number, first, bytes});
      }
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
    sums_.file_bytes -= entry->second.bytes();
    entry->second.punched += std::min(hole.size, before - std::min(before, after));
    sums_.file_bytes += entry->second.bytes();
    entry->second.dead.remove(hole.offset, hole.size);
  }
  return {};
}

std::vector<std::uint32_t> ExtentFiles::empty_files() {
  std::lock_guard lock(mutex_);
  if (open_ && files_.at(*open_).live == 0 && files_.at(*open_).size > kFileBlockBytes) {
    open_.reset();
  }
  std::vector<std::uint32_t> empty;
  for (const auto& [number, entry] : files_) {
    const bool is_kept = pins_.keeps(number) || held_.has(number);
    if (entry.live == 0 && number != open_ && !is_kept) empty.push_back(number);
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
      sums_.file_bytes -= entry->second.bytes();
      --sums_.files;
      handle = std::move(entry->second.file);
      files_.erase(entry);
    }
    if (!handle) continue;
    if (handle.use_count() > 1) {  // readers need it and could not open it again
      handle->hold(true);
      (void)handle->use();
    }
    const Status gone = pool_.folder().remove(extent_file_name(number));
    if (!gone.ok() && gone.code() != StatusCode::kNotFound) result = gone;
  }
  return result;
}

std::optional<std::uint32_t> ExtentFiles::sparsest(double live_share) const {
  std::lock_guard lock(mutex_);
  std::optional<std::uint32_t> found;
  double least = live_share;
  for (const auto& [number, entry] : files_) {
    if (number == open_ || !entry.file || entry.lost || entry.aside || entry.live == 0) continue;
    if (pins_.keeps(number) || held_.has(number)) continue;  // it could not be removed when empty
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

// ---- content

std::set<std::uint32_t> ExtentFiles::live_files() const {
  std::set<std::uint32_t> live;
  std::lock_guard lock(mutex_);
  for (const auto& [number, entry] : files_) {
    if (entry.live > 0) live.insert(number);
  }
  return live;
}

ExtentFiles::Stats ExtentFiles::stats() const {
  return {.live_bytes = sums_.live_bytes,
          .file_bytes = sums_.file_bytes,
          .files = sums_.files,
          .missing_bytes = sums_.missing_bytes};
}

}  // namespace precis

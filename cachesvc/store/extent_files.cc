#include "cachesvc/store/extent_files.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace precis {
namespace {

constexpr std::string_view kSuffix = ".extents";
constexpr std::uint32_t kFormat = 1;
constexpr std::array<char, 8> kMagic = {'p', 'r', 'e', 'c', 'i', 's', 'x', 't'};

std::string name_of(std::uint32_t number) {
  std::string digits = std::to_string(number);
  return std::string(10 - digits.size(), '0') + digits + std::string(kSuffix);
}

std::optional<std::uint32_t> number_of(std::string_view name) {
  std::uint32_t number = 0;
  const char* const last = name.data() + name.size();
  const auto [end, error] = std::from_chars(name.data(), last, number);
  if (error != std::errc() ||
      std::string_view(end, static_cast<std::size_t>(last - end)) != kSuffix)
    return std::nullopt;
  return name_of(number) == name ? std::optional(number) : std::nullopt;
}

// Magic, format and number, their XXH3-64, and zeros to the end of the block.
struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t format = kFormat;
  std::uint32_t number = 0;
  std::uint64_t checksum = 0;
  std::uint64_t expected() const { return XXH3_64bits(this, offsetof(Header, checksum)); }
};
static_assert(sizeof(Header) == 24);

Status write_header(File& file, std::uint32_t number) {
  Header header;
  header.number = number;
  header.checksum = header.expected();
  std::array<std::byte, kFileBlockBytes> block{};
  std::memcpy(block.data(), &header, sizeof header);
  const Bytes value = block;
  return file.write_at(0, {&value, 1});
}

// Only what a newer build wrote is refused. A header that does not read well says nothing of the
// values behind it, which are checked by whoever reads them.
Status check_header(File& file, const std::string& name) {
  Header header;
  if (!file.read_at(0, {reinterpret_cast<std::byte*>(&header), sizeof header}).ok()) return {};
  if (header.magic != kMagic || header.checksum != header.expected()) return {};
  if (header.format <= kFormat) return {};
  return Status::version("payload file " + name + " has format " + std::to_string(header.format) +
                         ", this build reads up to " + std::to_string(kFormat) +
                         ": use the newer build that wrote it");
}

}  // namespace

// ---- opening

Result<std::unique_ptr<ExtentFiles>> ExtentFiles::open(std::unique_ptr<Folder> folder,
                                                       std::span<const Extent> live,
                                                       std::uint64_t file_bytes) {
  std::unique_ptr<ExtentFiles> files(new ExtentFiles(std::move(folder), file_bytes));
  PRECIS_TRY(files->load(live));
  return files;
}

Status ExtentFiles::load(std::span<const Extent> live) {
  std::map<std::uint32_t, std::uint64_t> sizes;  // of the files that there are
  for (const Extent& extent : live) {
    Entry& entry = files_[extent.file];
    entry.live += whole_blocks(extent.size);
    entry.size = std::max(entry.size, extent.offset + whole_blocks(extent.size));
  }
  PRECIS_ASSIGN(const std::vector<std::string> names, folder_->names());
  for (const std::string& name : names) {
    const std::optional<std::uint32_t> number = number_of(name);
    if (!number) continue;
    PRECIS_ASSIGN(std::unique_ptr<File> file, folder_->open(name));
    PRECIS_TRY(check_header(*file, name));
    PRECIS_ASSIGN(const std::uint64_t size, file->size());
    sizes[*number] = size;
    // Also of files without a value that counts: begun and never referred to, or emptied.
    Entry& entry = files_[*number];
    entry.file = std::move(file);
    entry.size = std::max(entry.size, size);
    // What an earlier process wrote may be in the machine's memory alone.
    entry.dirty = true;
  }
  for (const Extent& extent : live) {
    const auto size = sizes.find(extent.file);
    const bool there = size != sizes.end() && extent.offset <= size->second &&
                       extent.size <= size->second - extent.offset;
    if (!there) missing_bytes_ += whole_blocks(extent.size);
  }
  for (const auto& [number, entry] : files_) next_ = std::max(next_, number + 1);
  return {};
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
  while (files_.contains(next_)) ++next_;  // a row that rots may mean the last number there is
  const std::uint32_t number = next_;
  PRECIS_ASSIGN(std::unique_ptr<File> file, folder_->create(name_of(number)));
  ++next_;
  if (const Status status = write_header(*file, number); !status.ok()) {
    (void)folder_->remove(name_of(number));
    return status;
  }
  open_ = number;
  Entry entry;
  entry.file = std::move(file);
  entry.size = kFileBlockBytes;
  return files_.emplace(number, std::move(entry)).first;
}

Result<std::vector<Extent>> ExtentFiles::append(std::span<const Bytes> values) {
  if (values.empty()) return std::vector<Extent>();
  std::uint64_t size = 0;
  for (const Bytes& value : values) size += whole_blocks(value.size());
  std::vector<Extent> extents;
  std::shared_ptr<File> file;
  {
    std::lock_guard lock(mutex_);
    PRECIS_ASSIGN(const auto entry, file_with_room(size));
    for (const Bytes& value : values) {
      extents.push_back({entry->first, entry->second.size, value.size()});
      entry->second.size += whole_blocks(value.size());
    }
    entry->second.live += size;
    entry->second.dirty = true;
    file = entry->second.file;
  }
  if (const Status status = file->write_at(extents.front().offset, values); !status.ok()) {
    for (const Extent& extent : extents) free(extent);
    return status;
  }
  std::lock_guard lock(mutex_);
  files_.at(extents.front().file).dirty = true;  // a sync may have come between
  return extents;
}

Status ExtentFiles::sync() {
  std::lock_guard syncing(syncs_);
  std::vector<std::pair<std::uint32_t, std::shared_ptr<File>>> dirty;
  std::vector<std::uint32_t> nameless;
  Status result;
  {
    std::lock_guard lock(mutex_);
    for (auto& [number, entry] : files_) {
      if (entry.lost && entry.live > 0) result = *entry.lost;
      if (entry.lost) continue;
      if (entry.file && std::exchange(entry.dirty, false)) dirty.emplace_back(number, entry.file);
      if (entry.file && !entry.named) nameless.push_back(number);
    }
  }
  const auto settle = [this](std::uint32_t number, const Status& status) {
    std::lock_guard lock(mutex_);
    const auto entry = files_.find(number);
    if (entry == files_.end()) return;
    if (!status.ok()) entry->second.lost = status;
    entry->second.named = entry->second.named || status.ok();
  };
  for (const auto& [number, file] : dirty) {
    const Status status = file->sync();
    if (status.ok()) continue;
    result = status;
    settle(number, status);
  }
  if (nameless.empty()) return result;
  const Status status = folder_->sync();
  for (const std::uint32_t number : nameless) settle(number, status);
  return status.ok() ? result : status;
}

// ---- reading

ExtentFiles::Pin ExtentFiles::pin(const Extent& extent) const {
  std::lock_guard lock(mutex_);
  const auto entry = files_.find(extent.file);
  return {entry == files_.end() ? nullptr : entry->second.file, extent};
}

Status ExtentFiles::Pin::missing() const {
  return Status::corruption("payload file " + name_of(extent_.file) + " is missing");
}

Status ExtentFiles::Pin::read(MutableBytes into) const {
  PRECIS_CHECK(into.size() == extent_.size);
  return file_ ? file_->read_at(extent_.offset, into) : missing();
}

Result<FileBlocks> ExtentFiles::Pin::read() const {
  if (!file_) return missing();
  PRECIS_ASSIGN(const std::uint64_t size, file_->size());
  if (extent_.offset > size || extent_.size > size - extent_.offset) {
    return Status::corruption("payload file " + name_of(extent_.file) + " of " +
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
}

std::vector<std::uint32_t> ExtentFiles::empty_files() {
  std::lock_guard lock(mutex_);
  if (open_ && files_.at(*open_).live == 0 && files_.at(*open_).size > kFileBlockBytes) {
    open_.reset();
  }
  std::vector<std::uint32_t> empty;
  for (const auto& [number, entry] : files_) {
    if (entry.live == 0 && number != open_) empty.push_back(number);
  }
  return empty;
}

Status ExtentFiles::remove(std::span<const std::uint32_t> empty) {
  Status result;
  for (const std::uint32_t number : empty) {
    bool there = false;
    {
      std::lock_guard lock(mutex_);
      const auto entry = files_.find(number);
      PRECIS_CHECK(entry != files_.end() && entry->second.live == 0 && number != open_);
      there = entry->second.file != nullptr;
      files_.erase(entry);
    }
    const Status removed = there ? folder_->remove(name_of(number)) : Status();
    if (!removed.ok() && removed.code() != StatusCode::kNotFound) result = removed;
  }
  return result;
}

std::optional<std::uint32_t> ExtentFiles::sparsest(double live_share) const {
  std::lock_guard lock(mutex_);
  std::optional<std::uint32_t> found;
  double least = live_share;
  for (const auto& [number, entry] : files_) {
    if (number == open_ || !entry.file || entry.lost || entry.aside) continue;
    const double share = static_cast<double>(entry.live) / static_cast<double>(entry.size);
    if (share >= least) continue;
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
    stats.file_bytes += entry.file ? entry.size : 0;
    ++stats.files;
  }
  return stats;
}

}  // namespace precis

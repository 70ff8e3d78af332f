#include "cachesvc/store/extent_scan.h"

#include <string>
#include <utility>
#include <vector>

#include "cachesvc/store/extent_header.h"

namespace precis {
namespace {

// Finds the bytes between the values of each file. Rows may be damaged: if a file's rows contradict
// each other, none of its bytes is known to be dead.
void find_dead(std::map<std::uint32_t, ExtentFile>& files, std::span<const Extent> live) {
  std::vector<Extent> sorted(live.begin(), live.end());
  std::ranges::sort(sorted, {}, [](const Extent& e) { return std::pair(e.file, e.offset); });
  std::map<std::uint32_t, std::uint64_t> ends;
  for (const Extent& extent : sorted) {
    ExtentFile& file = files.at(extent.file);
    std::uint64_t& end = ends.try_emplace(extent.file, kFileBlockBytes).first->second;
    if (extent.offset < end || extent.offset % kFileBlockBytes != 0) file.sound = false;
    if (!file.sound) continue;
    if (extent.offset > end) file.dead.add(end, extent.offset - end);
    end = extent.offset + whole_blocks(extent.size);
  }
  for (auto& [number, file] : files) {
    const std::uint64_t end = ends.try_emplace(number, kFileBlockBytes).first->second;
    if (file.size > end) file.dead.add(end, file.size - end);
    if (!file.sound) file.dead.clear();
  }
}

}  // namespace

Result<ExtentScan> scan_extents(FilePool& pool, std::span<const Extent> live) {
  ExtentScan scan;
  std::map<std::uint32_t, std::uint64_t> sizes;  // of the existing files
  for (const Extent& extent : live) {
    ExtentFile& entry = scan.files[extent.file];
    entry.live += whole_blocks(extent.size);
    entry.size = std::max(entry.size, extent.offset + whole_blocks(extent.size));
  }
  PRECIS_ASSIGN(const std::vector<std::string> names, pool.folder().names());
  for (const std::string& name : names) {
    const std::optional<std::uint32_t> number = extent_file_number(name);
    if (!number) continue;
    auto handle = pool.known(name);
    PRECIS_ASSIGN(const std::shared_ptr<File> file, handle->use());
    PRECIS_TRY(check_extent_header(*file, name));
    PRECIS_ASSIGN(const std::uint64_t size, file->size());
    sizes[*number] = size;
    ExtentFile& entry = scan.files[*number];  // also for files without live values
    entry.file = std::move(handle);
    entry.size = std::max(entry.size, size);
    PRECIS_ASSIGN(const std::uint64_t taken, file->taken());
    entry.punched = size - std::min(size, taken);
    entry.dirty = true;  // an earlier process' bytes may still be only in the page cache
  }
  for (const Extent& extent : live) {
    const auto size = sizes.find(extent.file);
    if (size != sizes.end() && extent.offset <= size->second &&
        extent.size <= size->second - extent.offset) {
      continue;
    }
    scan.missing_bytes += whole_blocks(extent.size);
    scan.files.at(extent.file).sound = false;
  }
  find_dead(scan.files, live);
  return scan;
}

}  // namespace precis

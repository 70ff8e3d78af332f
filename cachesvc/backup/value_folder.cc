#include "cachesvc/backup/value_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "cachesvc/backup/plain_files.h"
#include "precis/block_digest.h"

namespace precis {
namespace {

constexpr const char* kUnfinished = ".new";
constexpr unsigned kFolders = 256;  // by the first byte of the name

std::string folder_name(unsigned number) {
  constexpr char kDigits[] = "0123456789abcdef";
  return {kDigits[number / 16], kDigits[number % 16]};
}

Status make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST) return {};
  return system_error("creating " + path);
}

Status remove_file(const std::string& path) {
  return ::unlink(path.c_str()) == 0 ? Status() : system_error("removing " + path);
}

}  // namespace

std::string ValueFolder::folder_of(const Digest& name) const {
  return dir_ + "/" + folder_name(name.bytes[0]);
}
std::string ValueFolder::path_of(const Digest& name) const {
  return folder_of(name) + "/" + name.hex();
}

Status ValueFolder::each_file(
    const std::function<Status(const std::string& folder, const std::string& name)>& visit) const {
  for (unsigned number = 0; number < kFolders; ++number) {
    const std::string folder = dir_ + "/" + folder_name(number);
    PRECIS_ASSIGN(const std::vector<std::string> names, names_in(folder));
    for (const std::string& name : names) PRECIS_TRY(visit(folder, name));
  }
  return {};
}

Status ValueFolder::prepare() {
  PRECIS_TRY(make_folder(dir_));
  for (unsigned number = 0; number < kFolders; ++number) {
    PRECIS_TRY(make_folder(dir_ + "/" + folder_name(number)));
  }
  return each_file([](const std::string& folder, const std::string& name) {
    return name.ends_with(kUnfinished) ? remove_file(folder + "/" + name) : Status();
  });
}

bool ValueFolder::has(const Digest& name, std::uint64_t size_bytes) const {
  struct stat told {};
  return ::stat(path_of(name).c_str(), &told) == 0 && S_ISREG(told.st_mode) &&
         static_cast<std::uint64_t>(told.st_size) == size_bytes;
}

Status ValueFolder::write(const Digest& name, Bytes value) {
  const std::string path = path_of(name), unfinished = path + kUnfinished;
  Status status = [&]() -> Status {
    PRECIS_ASSIGN(const Descriptor file, create_plain(unfinished));
    PRECIS_TRY(write_all(file, value, unfinished));
    // Starts the writing, so that the sync at the end is short, and takes no room in the page cache
    // from other programs.
    (void)::sync_file_range(file.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
    (void)::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
    return rename_plain(unfinished, path);
  }();
  if (!status.ok()) (void)::unlink(unfinished.c_str());
  return status;
}

Result<std::vector<std::byte>> ValueFolder::read(const Digest& name,
                                                 std::uint64_t size_bytes) const {
  const std::string path = path_of(name);
  PRECIS_ASSIGN(const Descriptor file, open_plain(path));
  PRECIS_ASSIGN(const std::uint64_t size, size_of(file, path));
  if (size != size_bytes) {
    return Status::corruption(path + " has " + std::to_string(size) + " B, not " +
                              std::to_string(size_bytes));
  }
  PRECIS_TRY(check_fits_memory(size, path));
  std::vector<std::byte> value(size);
  PRECIS_TRY(read_exactly(file, value, path));
  (void)::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  if (sha256(value) != name) {
    return Status::corruption(path + " is damaged: its bytes have another SHA-256 than its name");
  }
  return value;
}

Status ValueFolder::remove_others(std::span<const Digest> named) {
  return each_file([&](const std::string& folder, const std::string& name) -> Status {
    const auto digest = parse_digest(name);
    if (!digest.ok() || std::ranges::binary_search(named, *digest)) return {};
    return remove_file(folder + "/" + name);
  });
}

}  // namespace precis

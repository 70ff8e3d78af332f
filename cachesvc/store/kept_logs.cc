#include "cachesvc/store/kept_logs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "cachesvc/base/descriptor.h"
#include "precis/limits.h"

namespace precis {
namespace {

namespace fs = std::filesystem;

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 10 &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

// One folder per opening, in any order.
std::vector<fs::path> folders_of(const std::string& parent) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    if (is_number(entry->path().filename().string())) folders.push_back(entry->path());
  }
  return folders;
}

bool says_what_is_stored(const fs::path& file) {
  const std::string name = file.filename().string();
  return name == "CURRENT" || name.starts_with("MANIFEST-") ||
         (file.extension() == ".log" && is_number(file.stem().string()));
}

// The links must be on the disk before RocksDB deletes the original names. On a journaling file
// system, the folder's own name is then written too.
Status sync_folder(const std::string& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder && ::fsync(folder.get()) == 0) return {};
  return Status::unavailable("syncing " + path + ": " + std::strerror(errno));
}

}  // namespace

void KeptLogs::keep() {
  std::error_code error;
  if (!fs::exists(dir_ + "/CURRENT", error)) return;  // no store exists yet
  const std::vector<fs::path> folders = folders_of(parent());
  if (folders.size() >= limits::kKeptLogFoldersMax) {
    failed_ = Status::unavailable("the logs of " + std::to_string(folders.size()) +
                                  " openings are kept already, which is the limit");
    return;
  }
  unsigned long number = 0;
  for (const fs::path& each : folders) {
    number = std::max(number, std::stoul(each.filename().string()));
  }
  latest_ = parent() + "/" + std::to_string(number + 1);
  failed_ = link_all(latest_);
  if (!failed_.ok()) remove_latest();
}

Status KeptLogs::link_all(const std::string& folder) const {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return Status::unavailable("creating " + folder + ": " + error.message());
  fs::permissions(folder, fs::perms::owner_all, error);
  fs::directory_iterator file(dir_, error);
  for (const fs::directory_iterator end; !error && file != end; file.increment(error)) {
    if (!says_what_is_stored(file->path())) continue;
    const fs::path link = fs::path(folder) / file->path().filename();
    std::error_code refused;
    fs::create_hard_link(file->path(), link, refused);
    if (refused) {
      return Status::unavailable("linking " + file->path().string() + " to " + link.string() +
                                 ": " + refused.message());
    }
  }
  if (error) return Status::unavailable("listing " + dir_ + ": " + error.message());
  return sync_folder(folder);
}

void KeptLogs::remove_latest() {
  std::error_code error;
  if (!latest_.empty()) fs::remove_all(latest_, error);
  latest_.clear();
  (void)::rmdir(parent().c_str());  // succeeds only if the folder is empty
}

void KeptLogs::remove_all() {
  std::error_code error;
  for (const fs::path& folder : folders_of(parent())) fs::remove_all(folder, error);
  remove_latest();
}

std::string KeptLogs::text() const {
  if (!folders_of(parent()).empty()) {
    return "the logs from before the recovery are kept in " + parent();
  }
  if (failed_.ok()) return {};
  return "the logs from before the recovery could not be kept: " + failed_.message();
}

std::uint64_t KeptLogs::bytes() const {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (const fs::path& folder : folders_of(parent())) {
    for (fs::directory_iterator file(folder, error), end; !error && file != end;
         file.increment(error)) {
      std::error_code gone;
      const auto size_bytes = file->file_size(gone);
      if (!gone) bytes += size_bytes;
    }
  }
  return bytes;
}

}  // namespace precis

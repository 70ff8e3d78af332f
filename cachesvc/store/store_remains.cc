#include "cachesvc/store/store_remains.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "cachesvc/store/store_lock.h"

namespace precis {
namespace {

// An upper bound of the bytes that RocksDB writes when it opens: its logs as tables, its list of
// files again, and some small files.
std::uint64_t bytes_to_open(const std::string& dir) {
  std::uint64_t bytes = 256u << 10;
  std::error_code error;
  for (std::filesystem::directory_iterator file(dir, error), end; !error && file != end;
       file.increment(error)) {
    const bool list = file->path().filename().string().starts_with("MANIFEST");
    std::error_code unknown;
    if (!list && file->path().extension() != ".log") continue;
    const auto size_bytes = file->file_size(unknown);
    if (!unknown) bytes += size_bytes;
  }
  return bytes;
}

// Removes RocksDB's information logs, which may take some megabytes. They are for people; no start
// reads them.
void remove_information_logs(const std::string& dir) {
  namespace fs = std::filesystem;
  std::vector<fs::path> logs;
  std::error_code error;
  for (fs::directory_iterator file(dir, error), end; !error && file != end; file.increment(error)) {
    const std::string name = file->path().filename().string();
    if (name == "LOG" || name.starts_with("LOG.old")) logs.push_back(file->path());
  }
  for (const fs::path& log : logs) fs::remove(log, error);
}

}  // namespace

// RocksDB creates CURRENT before any numbered file of the store or of its payload is created.
Status check_remains(const std::string& dir) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(dir + "/CURRENT", error)) return {};
  for (const std::string& folder : {dir, dir + "/payload"}) {
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      const fs::path suffix = entry->path().extension();
      if (suffix != ".sst" && suffix != ".log" && suffix != ".extents") continue;
      const std::string number = entry->path().stem().string();
      if (number.find_first_not_of("0123456789") != std::string::npos) continue;
      return Status::corruption(
          "opening the store in " + dir + ": " + entry->path().string() +
          " exists, but the file CURRENT, which names the files of the store, is missing");
    }
    if (error && error != std::errc::no_such_file_or_directory) {
      return not_listed(error.value(), folder);
    }
  }
  return {};
}

Status make_room_to_open(SpaceGuard& guard, const std::string& dir) {
  const std::uint64_t bytes = bytes_to_open(dir);
  Status admitted = guard.admit(WriteUse::kMakeRoom, bytes);
  if (admitted.code() != StatusCode::kOutOfSpace) return admitted;
  remove_information_logs(dir);
  admitted = guard.admit(WriteUse::kMakeRoom, bytes);
  if (admitted.code() != StatusCode::kOutOfSpace) return admitted;
  PRECIS_ASSIGN(const SpaceGuard::Room room, guard.room());
  const std::uint64_t needed = bytes + guard.budget().smallest_free_bytes();
  return Status::out_of_space("opening the store in " + dir + " needs up to " +
                              std::to_string(needed) + " B, its disk has " +
                              std::to_string(room.free_bytes) + " B free: free at least " +
                              std::to_string(needed - std::min(needed, room.free_bytes)) +
                              " B more there, or make the disk larger");
}

std::uint64_t bytes_of_files(const std::string& dir) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator file(dir, error), end; !error && file != end;
       file.increment(error)) {
    if (file->path().filename() == kReserveName) continue;
    std::error_code gone;  // a file may be removed meanwhile; then it does not count
    const auto size_bytes = file->file_size(gone);
    if (!gone) bytes += size_bytes;
  }
  return bytes;
}

Status check_stored_format(const std::string& dir, Bytes stored) {
  std::uint32_t format = 0;
  if (stored.size() != sizeof format) {
    return Status::corruption("store in " + dir + ": its format row has " +
                              std::to_string(stored.size()) + " B, not 4");
  }
  std::memcpy(&format, stored.data(), sizeof format);
  if (format < kStoreFormat) {
    return Status::version("store in " + dir + " has format " + std::to_string(format) +
                           " of an older build, this one reads " + std::to_string(kStoreFormat) +
                           ": use that build, or another data directory");
  }
  if (format > kStoreFormat) {
    return Status::version("store in " + dir + " has format " + std::to_string(format) +
                           ", this build reads up to " + std::to_string(kStoreFormat) +
                           ": use the newer build that wrote it");
  }
  return {};
}

}  // namespace precis

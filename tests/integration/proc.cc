#include "tests/integration/proc.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "precis/status.h"

namespace precis::testing {
namespace {

std::string folder(pid_t pid) { return "/proc/" + std::to_string(pid); }

// Reads a line such as "VmRSS:     1234 kB".
std::uint64_t status_bytes(pid_t pid, std::string_view name) {
  std::ifstream file(folder(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return std::stoull(line.substr(name.size() + 1)) * 1024;
  }
  PRECIS_CHECK(!"the process is gone, or its status has no such line");
  return 0;
}

}  // namespace

std::uint64_t resident_bytes(pid_t pid) { return status_bytes(pid, "VmRSS"); }
std::uint64_t peak_resident_bytes(pid_t pid) { return status_bytes(pid, "VmHWM"); }

std::uint64_t open_links(pid_t pid) {
  std::uint64_t count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder(pid) + "/fd", error)) {
    std::error_code gone;  // it may be closed while the folder is read
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    // A client's memory is a file without a folder.
    if (!gone && (!target.starts_with('/') || target.starts_with("/memfd:"))) ++count;
  }
  return count;
}

std::uint64_t mapped_memory_files(pid_t pid) {
  std::ifstream file(folder(pid) + "/maps");
  std::uint64_t count = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.find(" /memfd:") != std::string::npos) ++count;
  }
  return count;
}

}  // namespace precis::testing

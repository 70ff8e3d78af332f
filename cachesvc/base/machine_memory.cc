#include "cachesvc/base/machine_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string_view>

namespace precis {
namespace {

std::uint64_t physical_bytes() {
  const auto pages = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES));
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// Returns for example "/system.slice/precisd.service", or an empty string if there is no group.
std::string group_of(const std::string& proc) {
  constexpr std::string_view kVersion2 = "0::";
  std::ifstream file(proc);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kVersion2)) return line.substr(kVersion2.size());
  }
  return {};
}

}  // namespace

std::uint64_t machine_memory_bytes(const std::string& proc, const std::string& groups) {
  std::uint64_t bytes = physical_bytes();
  std::string group = group_of(proc);
  for (;;) {
    std::uint64_t limit = 0;  // stays 0 for "max", which is not a number
    if (std::ifstream file(groups + group + "/memory.max"); file >> limit) {
      bytes = std::min(bytes, limit);
    }
    const auto end = group.rfind('/');
    if (end == std::string::npos) return bytes;
    group.resize(end);
  }
}

}  // namespace precis

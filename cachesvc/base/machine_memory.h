// The memory that a process may use: the machine's, or less if a control group limits it.
#pragma once

#include <cstdint>
#include <string>

namespace precis {

// Returns the machine's memory, or the smallest `memory.max` of the process's control group
// (version 2) and its parents, if that is less. A file that cannot be read sets no limit.
std::uint64_t machine_memory_bytes(const std::string& proc = "/proc/self/cgroup",
                                   const std::string& groups = "/sys/fs/cgroup");

}  // namespace precis

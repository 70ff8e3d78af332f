// What memory a process may take: the machine's, or less where a control group says so.
#pragma once

#include <cstdint>
#include <string>

namespace precis {

// The machine's memory, or the least `memory.max` of the process's control group (version 2) and of
// those around it. What can't be read limits nothing.
std::uint64_t machine_memory_bytes(const std::string& proc = "/proc/self/cgroup",
                                   const std::string& groups = "/sys/fs/cgroup");

}  // namespace precis

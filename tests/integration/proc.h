// The kernel's data about a process of ours.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace precis::testing {

// Bytes in RAM now, and their maximum so far.
std::uint64_t resident_bytes(pid_t pid);
std::uint64_t peak_resident_bytes(pid_t pid);

// The most memory that a sanitizer keeps, around live memory and of freed memory.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr std::uint64_t kSanitizerBytes = std::uint64_t{3} << 30;
#else
inline constexpr std::uint64_t kSanitizerBytes = 0;
#endif
// The most memory that precisd needs besides memory_bytes, according to deploy/precisd.toml: three
// times max_message_bytes of 256 MiB, and 256 MiB.
inline constexpr std::uint64_t kBesideMemoryBytes =
    4 * (std::uint64_t{256} << 20) + kSanitizerBytes;

// Open descriptors that are not files on disk: sockets, pipes, watches, memory of others.
std::uint64_t open_links(pid_t pid);
// The number of memory ranges that the process shares with other processes.
std::uint64_t mapped_memory_files(pid_t pid);

}  // namespace precis::testing

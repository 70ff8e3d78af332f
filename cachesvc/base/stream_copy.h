// A copy of memory to memory that leaves the caches alone: the fastest there is where neither side
// is in them.
#pragma once

#include <cstddef>

namespace precis {

// Copies `size_bytes` bytes, which do not overlap. When it returns, other threads may be told.
// Chosen for the machine when the program runs; std::memcpy() where there is nothing better.
void stream_copy(std::byte* to, const std::byte* from, std::size_t size_bytes);

}  // namespace precis

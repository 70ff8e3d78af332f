// A copy that bypasses the caches: the fastest copy if neither side is cached.
#pragma once

#include <cstddef>

namespace precis {

// Copies `size_bytes` bytes; the ranges must not overlap. When it returns, the copy is visible to
// other threads that are then notified. It chooses instructions at run time, or std::memcpy() if
// there are no better ones.
void stream_copy(std::byte* to, const std::byte* from, std::size_t size_bytes);

}  // namespace precis

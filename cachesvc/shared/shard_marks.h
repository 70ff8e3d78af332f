// The bytes of marks in the shared storage. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "cachesvc/shared/shared_tier.h"

namespace precis {

// The same mark always gives the same bytes, because the storage compares bytes. Never empty.
std::vector<std::byte> encode(const ShardMark& mark);
// kCorruption if the bytes are not those that encode() gives for some mark.
Result<ShardMark> decode_mark(Bytes bytes);

}  // namespace precis

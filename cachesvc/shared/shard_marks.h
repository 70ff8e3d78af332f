// The bytes of marks in the shared storage, and what is said about them. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "cachesvc/shared/shared_tier.h"

namespace precis {

// The same mark always gives the same bytes, because the storage compares bytes. Never empty.
std::vector<std::byte> encode(const ShardMark& mark);
// kCorruption if the bytes are not those that encode() gives for some mark.
Result<ShardMark> decode_mark(Bytes bytes);

// The errors of SharedTier::change_marks() and write(), if the shard's mark is `now`.
Status other_mark(std::uint32_t shard, const std::optional<ShardMark>& now);
Status other_holder(std::uint32_t shard, const std::optional<ShardMark>& now);

}  // namespace precis

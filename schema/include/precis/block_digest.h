// Digests that name paths and segments: fingerprints, roots, block digests, segment ids. All use
// SHA-256, never a process-seeded hash. schema/block_digest_vectors.json has test vectors.
//
// All hashed strings are length-prefixed (u32 little endian), all integers little endian.
//   fingerprint = SHA-256("precis.model.v1"  | every field of ModelSpec in declaration order)
//   root        = SHA-256("precis.root.v1"   | tenant | salt | fingerprint | adapter)
//   in a shard  = SHA-256("precis.in_shard.v1" | root | shard): the root of paths in a cluster
//   block k     = SHA-256(digest of block k-1, or the root | block_tokens token ids as u32)
//   tip         = SHA-256("precis.tip.v1"    | last whole block's digest or the root | tail ids)
//   segment id  = SHA-256("precis.segment.v1"| tip at begin | begin | tip at end | end |
//                         parent id | u8(parent_read is known) | its kind or 0 | its value or 0 |
//                         canonical recipe | budget kind | budget value)[0..16)
//   projections = SHA-256("precis.projection.v1" | tenant | fingerprint | u8 is_gram)[0..16)
// and for shards.h:
//   space       = SHA-256("precis.space.v1"  | tenant | salt), which the service tells its clients
//   shard root  = SHA-256("precis.shards.v1" | space | fingerprint | adapter)
//   session     = SHA-256("precis.session.v1"| space | the part of its name that decides)
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "precis/recipe.h"
#include "precis/types.h"

namespace precis {

Digest model_fingerprint(const ModelSpec& model);

Digest path_root(std::string_view tenant, std::string_view salt, const Digest& fingerprint,
                 std::string_view adapter);

// In a cluster, the root of the paths of one shard: no chain of segments crosses shards.
Digest root_in_shard(const Digest& root, std::uint32_t shard);

// For shards.h.
Digest shard_space(std::string_view tenant, std::string_view salt);
Digest shard_root(const Digest& space, const Digest& fingerprint, std::string_view adapter);
Digest session_digest(const Digest& space, std::string_view deciding_part);

// The digest of one block, chained from `previous`: the digest of the block before, or the root.
Digest block_digest(const Digest& previous, std::span<const TokenId> block);

// One digest per whole block of `tokens`, chained from `previous` (the root, or the digest of the
// block before). A tail of fewer than `block_tokens` ids is ignored.
std::vector<Digest> block_digests(const Digest& previous, std::span<const TokenId> tokens,
                                  std::uint32_t block_tokens);

// Names a whole path, including its tail.
Digest path_tip(const Digest& root, std::span<const TokenId> tokens, std::uint32_t block_tokens);

// path_tip() of a path that ends with this whole block.
Digest boundary_tip(const Digest& block);

// A path with the digests of its whole blocks. Hashing takes longer than the rest of a lookup, so
// callers hash a path once and reuse this. Borrows the tokens.
struct TokenPath {
  Digest root;
  std::span<const TokenId> tokens;
  std::uint32_t block_tokens = 1;
  std::vector<Digest> blocks;  // blocks[k] covers the first (k + 1) * block_tokens tokens

  // path_tip() of the first `end` tokens. Requires end <= tokens.size().
  Digest tip(std::size_t end) const;
};
TokenPath hash_path(const Digest& root, std::span<const TokenId> tokens,
                    std::uint32_t block_tokens);

// A segment's place on its path and its parent. At the root, `parent` is null and `parent_read` is
// absent.
struct SegmentPlace {
  Digest tip_at_begin;
  std::uint32_t begin = 0;
  Digest tip_at_end;
  std::uint32_t end = 0;
  SegmentId parent;
  std::optional<Budget> parent_read;  // the budget at which the parent was read
};
// Pushed scores are not part of the id: a repeated put with other scores has the same id.
SegmentId segment_id(const SegmentPlace& place, const Recipe& recipe, const Budget& budget);

// The id of the first part of a segment that is split at token `end`. The second part keeps the
// segment's id.
SegmentId part_id(const SegmentId& segment, std::uint32_t end);

// The id under which the store keeps a model's output projections (is_gram: their Gram matrices),
// like a segment id for a segment's layers.
SegmentId projection_id(std::string_view tenant, const Digest& fingerprint, bool is_gram);

// SHA-256 of `data`, used for credentials, fitting texts and weights.
Digest sha256(std::span<const std::byte> data);

}  // namespace precis

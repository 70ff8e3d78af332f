// The catalog's rows and their stored bytes (Cap'n Proto; schema/catalog.capnp defines them).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "precis/messages.h"
#include "precis/recipe.h"
#include "precis/types.h"

namespace precis {

// One stored segment.
struct SegmentRow {
  std::uint32_t format_version = 1;
  SegmentId id, parent;  // parent is null at the root
  std::string tenant;
  Digest model;
  std::string adapter;
  std::uint32_t begin = 0, end = 0;  // token positions on the path
  Digest root;                       // digest of the path's root
  Digest tip;                        // path_tip at `end`
  std::vector<Digest> blocks;        // digests of the blocks that end in (begin, end]
  std::vector<TokenId> tail;         // ids from the last whole block to `end`
  std::string recipe;                // canonical
  std::string preset;
  Budget budget;
  std::optional<Budget> parent_read;
  std::uint64_t parent_entries = 0;  // of its parents, used for its KV; 0: unknown
  Plan plan;
  std::vector<std::uint64_t> layer_bytes;  // size of each layer's records
  std::uint64_t original_bytes = 0, stored_bytes = 0;
  double compress_seconds = 0;
  std::uint64_t created_unix_ms = 0;
  std::uint64_t hits = 0;
  std::optional<Budget> trimmed;  // the budget it was trimmed to; none: never trimmed
  bool operator==(const SegmentRow&) const = default;

  const Budget& stored_budget() const { return trimmed ? *trimmed : budget; }
  // True if both rows are of one put, trimmed or not: entries that both store are equal bit for
  // bit.
  bool same_put(const SegmentRow& other) const;
};

struct StoredSession {
  std::string tenant;
  msg::SessionRow row;
  bool operator==(const StoredSession&) const = default;
};
struct StoredModel {
  std::string tenant;
  ModelSpec model;
  bool operator==(const StoredModel&) const = default;
};
struct StoredBudget {
  std::string tenant;
  std::optional<Digest> model;  // none: global
  std::string recipe;
  std::optional<Budget> keep;
  std::uint64_t version = 0;
  std::uint64_t set_unix_ms = 0;
  bool operator==(const StoredBudget&) const = default;
};
// One layer's output projection [num_q_heads, head_dim, width], and per query head its Gram matrix
// W W^T, f32. Both are payload, stored under projection_id() (block_digest.h) and checked by their
// SHA-256.
struct StoredProjection {
  std::string tenant;
  Digest model;
  std::uint32_t layer = 0;
  std::uint32_t width = 0;
  Dtype dtype = Dtype::kF32;
  std::uint64_t weights_bytes = 0, grams_bytes = 0;
  Digest weights, grams;
  bool operator==(const StoredProjection&) const = default;
};
struct StoredProfile {
  std::string tenant;
  std::string json;
  std::uint64_t added_unix_ms = 0;
  bool operator==(const StoredProfile&) const = default;
};

std::vector<std::byte> encode(const SegmentRow&);
std::vector<std::byte> encode(const StoredSession&);
std::vector<std::byte> encode(const StoredModel&);
std::vector<std::byte> encode(const StoredBudget&);
std::vector<std::byte> encode(const StoredProjection&);
std::vector<std::byte> encode(const StoredProfile&);
// Stored bytes may be damaged or from a newer build: kCorruption or kVersionMismatch, naming the
// field. The bytes contain their own XXH3-128, so damage is detected before the content is read.
Result<SegmentRow> decode_segment_row(Bytes);
Result<StoredSession> decode_stored_session(Bytes);
Result<StoredModel> decode_stored_model(Bytes);
Result<StoredBudget> decode_stored_budget(Bytes);
Result<StoredProjection> decode_stored_projection(Bytes);
Result<StoredProfile> decode_stored_profile(Bytes);

}  // namespace precis

// The keys of the catalog's rows, as they are stored: a change of them needs a new catalog format.
//
//   kSegments     segment id (16 B)
//   kPayload      segment id (16 B) | layer (u32 big endian): the layers of a segment are adjacent,
//                 in order; a projection has its payload id instead of a segment id
//   kModels       tenant | fingerprint (32 B)
//   kProjections  tenant | fingerprint (32 B) | layer (u32 big endian)
//   kProfiles     tenant | fingerprint (32 B) | name
//   kSessions     tenant | name
//   kBudgets      tenant | nothing (global), a fingerprint (32 B), or 32 zero bytes and a session
//   kMeta         "catalog.format": u32 little endian
//                 "quarantine/" | segment id (16 B): this segment's bytes failed a check; no value
//                 "budget revision/" | tenant | number (u64 big endian)
//                 "tenant/" | tenant
//                 "projection/" | as in kProjections: the row of a projection whose bytes are in
//                     the storage that nodes share
//                 "cluster.id": the id of the node's cluster, the same in all its nodes
//                 "restoring": a restore of a backup is in progress, or was interrupted
//
// A tenant is written as its length (u32 big endian) and its bytes. So two different pairs of a
// tenant and the rest never have the same key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "precis/catalog_row.h"
#include "precis/types.h"

namespace precis {

inline constexpr std::uint32_t kCatalogFormat = 1;
inline constexpr std::string_view kCatalogFormatKey = "catalog.format";
inline constexpr std::string_view kRestoringKey = "restoring";
inline constexpr std::string_view kClusterIdKey = "cluster.id";

std::string segment_key(const SegmentId& id);
std::string payload_key(const SegmentId& id, std::uint32_t layer);
// The name of a layer of a segment in a shard, in the storage that nodes share: SHARD in four
// hexadecimal digits, then SEGMENT-CREATED-ENTRIES-LAYER. Each version of a segment has names of
// its own.
std::string object_name(const SegmentRow& row, std::uint32_t layer);
// The meaning of such a name; none for any other name.
struct ObjectName {
  std::uint32_t shard = 0;
  SegmentId segment;
  std::uint64_t created_unix_ms = 0;
  std::uint32_t layer = 0;
};
std::optional<ObjectName> object_in(std::string_view name);
std::string model_key(std::string_view tenant, const Digest& fingerprint);
std::string projection_key(std::string_view tenant, const Digest& fingerprint, std::uint32_t layer);
std::string shared_projection_key(std::string_view tenant, const Digest& fingerprint,
                                  std::uint32_t layer);
bool is_shared_projection_key(std::string_view meta_key);
std::string profile_key(std::string_view tenant, const Digest& fingerprint, std::string_view name);
std::string session_key(std::string_view tenant, std::string_view name);
std::string budget_key(std::string_view tenant, const std::optional<Digest>& model,
                       std::string_view session = {});
std::string revision_key(std::string_view tenant, std::uint64_t number);
bool is_revision_key(std::string_view meta_key);
std::string stored_tenant_key(std::string_view name);
bool is_stored_tenant_key(std::string_view meta_key);
// The names in these keys; none if it is no such key.
struct ModelName {
  std::string tenant;
  Digest fingerprint;
  std::string rest;  // after the fingerprint
};
std::optional<ModelName> model_in(std::string_view key);  // of kModels and kProfiles
struct ProjectionName {
  std::string tenant;
  Digest model;
  std::uint32_t layer = 0;
};
std::optional<ProjectionName> shared_projection_in(std::string_view meta_key);
struct BudgetName {
  std::string tenant;
  msg::BudgetScope scope;
};
std::optional<BudgetName> budget_in(std::string_view key);
struct RevisionName {
  std::string tenant;
  std::uint64_t number = 0;
};
std::optional<RevisionName> revision_in(std::string_view meta_key);
std::optional<std::string> stored_tenant_in(std::string_view meta_key);
std::string quarantine_key(const SegmentId& id);
// Returns the segment that a kMeta key marks, or none for another kind of key.
std::optional<SegmentId> quarantined_segment(std::string_view meta_key);

// Returns the error of a request for a page of `of` whose `after` is not the end of a page.
Status bad_cursor(std::string_view after, std::string_view of);

}  // namespace precis

// Requests of a client as plain structs (messages.h explains the protocol): the alternatives of
// msg::RequestBody, in the order of schema/control.capnp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "precis/operation_requests.h"
#include "precis/remote_region.h"
#include "precis/types.h"

namespace precis {

namespace msg {

// ---- models ------------------------------------------------------------------------------------
struct RegisterModel {
  ModelSpec model;
  bool operator==(const RegisterModel&) const = default;
};
// One page. `after` of this and other lists is `next` of the page before (opaque), or empty for the
// first page.
struct ListModels {
  std::string after{};
  bool operator==(const ListModels&) const = default;
};
// One layer's output projection, [num_q_heads, head_dim, width] packed, for recipes that weigh
// values by their contribution to the output. A layer's projection never changes; pushing an equal
// one again is fine.
struct PushProjection {
  Digest model;
  std::uint32_t layer = 0;
  std::uint32_t width = 0;  // of the hidden state
  Dtype dtype = Dtype::kF32;
  RemoteRegion weights;
  bool operator==(const PushProjection&) const = default;
};
// Adds a profile (profile.h). Replaces a profile with the same model and name.
struct AddProfile {
  std::string json;
  bool operator==(const AddProfile&) const = default;
};
struct ListProfiles {
  std::optional<Digest> model;  // none: profiles of every model
  bool operator==(const ListProfiles&) const = default;
};
struct ShowProfile {
  Digest model;
  std::string name;
  bool operator==(const ShowProfile&) const = default;
};
struct RemoveProfile {
  Digest model;
  std::string name;
  bool operator==(const RemoveProfile&) const = default;
};

// ---- put ---------------------------------------------------------------------------------------
struct BeginPut {
  Digest model;                 // fingerprint of a registered model
  std::string adapter;          // LoRA or a similar adapter; empty for none
  std::vector<TokenId> tokens;  // the whole path from the root, ending with the new tokens
  // The new segment's begin. kAuto: the end of the longest stored proper prefix that serves a
  // reader at `parent_read` (without one: at all).
  enum class ParentKind : std::uint8_t { kAuto = 0, kRoot = 1, kSegment = 2 };
  ParentKind parent_kind = ParentKind::kAuto;
  SegmentId parent;                   // kSegment
  std::string recipe;                 // empty: the recipe of the budget in force
  std::optional<Budget> budget;       // none: the budget in force
  std::optional<Budget> parent_read;  // the budget at which the parent was read
  std::uint32_t writers = 1;          // connections that write this put together, with equal fields
  bool operator==(const BeginPut&) const = default;
};
// A piece of one layer: some heads and some tokens, [head_count, token_count, head_dim].
struct PushLayer {
  std::uint64_t put = 0;
  std::uint32_t layer = 0;
  std::uint32_t head_begin = 0, head_count = 0;
  std::uint32_t token_begin = 0, token_count = 0;  // relative to the segment's first token
  Dtype dtype = Dtype::kBf16;
  RemoteRegion keys, values;  // heads start every head_stride bytes; rows are contiguous
  std::uint64_t keys_head_stride = 0, values_head_stride = 0;
  // Observation queries of this head range, [head_count * group, num_queries, head_dim] packed,
  // with their log-sum-exp f32 [head_count * group, num_queries]. Sent with one piece of each head.
  std::uint32_t num_queries = 0;
  std::optional<RemoteRegion> queries, lse;
  // Statistics of future queries, f32: mean [head_count * group, head_dim] and covariance
  // [head_count * group, head_dim, head_dim]. Both or neither; sent with the queries if there are
  // any.
  std::optional<RemoteRegion> query_mean, query_covariance;
  std::optional<RemoteRegion> scores;  // f32 [head_count, token_count], for external scorers
  bool operator==(const PushLayer&) const = default;
};
struct CommitPut {
  std::uint64_t put = 0;
  Durability durability = Durability::kWal;
  bool operator==(const CommitPut&) const = default;
};
struct AbortPut {
  std::uint64_t put = 0;
  bool operator==(const AbortPut&) const = default;
};

// ---- get ---------------------------------------------------------------------------------------
struct Lookup {
  Digest model;
  std::string adapter;
  std::vector<TokenId> tokens;
  // Without `keep` and with align 1, the match reports the stored entries, without counts.
  // Otherwise the match has the counts of entries that a reader at `keep` gets, per (layer, head)
  // in whole pages of `align` entries. Segments computed over less of their parents do not match.
  std::optional<Budget> keep{};
  std::uint32_t align = 1;
  // Milliseconds for which a get of the match works whatever happens to its segments meanwhile; 0:
  // only while they are stored. The service grants at most limits::kLeaseMsMax.
  std::uint32_t lease_ms = 0;
  bool counts() const { return keep || align != 1; }
  bool operator==(const Lookup&) const = default;
};
struct GetLink {
  SegmentId segment;
  std::uint32_t matched_end = 0;  // the reader leaves out entries at or after this position
  // With budget kAll: the entries that matched, if the segment was trimmed since; 0: all stored
  // entries.
  std::uint64_t entries = 0;
  // [num_layers, served heads]: serve this many first entries of each. Empty: the budget decides.
  // Either all links have counts or none.
  std::vector<std::uint32_t> counts{};
  // Both as in the match: they identify the segment that a lease keeps. 0: unknown.
  std::uint64_t created_unix_ms = 0, stored_entries = 0;
  bool operator==(const GetLink&) const = default;
};
struct Get {
  std::vector<GetLink> links;  // from the root on; each is the parent of the next
  Budget budget;               // applied to every link by its own recipe; kAll with counts
  RemoteRegion destination;    // as large as served_layout.h says for the entries or counts
  std::uint32_t head_begin = 0, head_count = 0;  // KV heads; count 0: all from head_begin on
  bool operator==(const Get&) const = default;
};
struct Cancel {
  std::uint64_t request = 0;  // a Get in progress on this connection
  bool operator==(const Cancel&) const = default;
};

// ---- sessions ----------------------------------------------------------------------------------
struct OpenSession {  // finds or creates the session
  std::string name;
  std::optional<std::uint64_t> ttl_seconds;  // sets a new TTL; 0: no TTL
  bool operator==(const OpenSession&) const = default;
};
struct AdvanceSession {
  std::string name;
  SegmentId tip;  // the present tip or a descendant of it
  bool operator==(const AdvanceSession&) const = default;
};
struct PinSession {
  std::string name;
  bool pinned = true;
  bool operator==(const PinSession&) const = default;
};
struct ForkSession {
  std::string name, new_name;
  bool operator==(const ForkSession&) const = default;
};
struct ShowSession {
  std::string name;
  bool operator==(const ShowSession&) const = default;
};
struct ListSessions {  // one page
  std::string after{};
  bool operator==(const ListSessions&) const = default;
};
struct RemoveSession {
  std::string name;
  bool operator==(const RemoveSession&) const = default;
};

using RequestBody =
    std::variant<RegisterModel, ListModels, BeginPut, PushLayer, CommitPut, AbortPut, Lookup, Get,
                 Cancel, OpenSession, AdvanceSession, PinSession, ForkSession, ShowSession,
                 ListSessions, RemoveSession, ListPrefixes, ShowPrefix, RemovePrefix, ShowBudget,
                 SetBudget, GetStats, GetStatus, PushProjection, AddProfile, ListProfiles,
                 ShowProfile, RemoveProfile, CheckPrefix, TrimPrefix, Ping, FindPrefix>;
struct Request {
  std::uint64_t id = 0;
  RequestBody body;
  bool operator==(const Request&) const = default;
};

}  // namespace msg
}  // namespace precis

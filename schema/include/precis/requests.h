// What a client asks, as plain structs (messages.h tells the protocol). The alternatives of
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
// A page of them. `after` of this and other lists: `next` of the page before, which is opaque;
// empty for the first page.
struct ListModels {
  std::string after{};
  bool operator==(const ListModels&) const = default;
};
// One layer's output projection, [num_q_heads, head_dim, width] packed: what recipes need that
// weigh values by what they write. A layer has one for good; the same again is fine.
struct PushProjection {
  Digest model;
  std::uint32_t layer = 0;
  std::uint32_t width = 0;  // of the hidden state
  Dtype dtype = Dtype::kF32;
  RemoteRegion weights;
  bool operator==(const PushProjection&) const = default;
};
// A profile (profile.h); it takes the place of one with the same model and name.
struct AddProfile {
  std::string json;
  bool operator==(const AddProfile&) const = default;
};
struct ListProfiles {
  std::optional<Digest> model;  // none: of every model
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
  std::string adapter;          // LoRA or the like; empty for none
  std::vector<TokenId> tokens;  // the whole path from the root, the new tokens at its end
  // Where the new segment begins. kAuto: at the end of the longest stored proper prefix that suits
  // a reader at `parent_read`, none being all.
  enum class ParentKind : std::uint8_t { kAuto = 0, kRoot = 1, kSegment = 2 };
  ParentKind parent_kind = ParentKind::kAuto;
  SegmentId parent;                   // kSegment
  std::string recipe;                 // empty: the budget in force says
  std::optional<Budget> budget;       // none: the budget in force says
  std::optional<Budget> parent_read;  // provenance: the budget at which the parent was read
  std::uint32_t writers = 1;          // connections that begin this put alike and write it together
  bool operator==(const BeginPut&) const = default;
};
// One piece of one layer: some heads and some tokens, [head_count, token_count, head_dim].
struct PushLayer {
  std::uint64_t put = 0;
  std::uint32_t layer = 0;
  std::uint32_t head_begin = 0, head_count = 0;
  std::uint32_t token_begin = 0, token_count = 0;  // from the segment's first token
  Dtype dtype = Dtype::kBf16;
  RemoteRegion keys, values;  // heads stand head_stride bytes apart, rows are contiguous
  std::uint64_t keys_head_stride = 0, values_head_stride = 0;
  // Observation queries of this head range, [head_count * group, num_queries, head_dim] packed,
  // with their log-sum-exp f32 [head_count * group, num_queries]; sent with any one piece of each
  // head.
  std::uint32_t num_queries = 0;
  std::optional<RemoteRegion> queries, lse;
  // Statistics of queries to come, f32 [head_count * group, head_dim] and [head_count * group,
  // head_dim, head_dim]; both or none, with the queries where there are any.
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
  // None, with align 1: what is stored, and nothing is counted. Else the match has counts: of every
  // link the cut at `keep`, or what it stores where that is less, in whole pages of `align`; and
  // segments that were computed over less of their parents are passed over.
  std::optional<Budget> keep{};
  std::uint32_t align = 1;
  // What matched can be got for so long, whatever happens to it meanwhile; 0: as long as it is
  // stored. At most limits::kLeaseMsMax are granted.
  std::uint32_t lease_ms = 0;
  bool counts() const { return keep || align != 1; }
  bool operator==(const Lookup&) const = default;
};
struct GetLink {
  SegmentId segment;
  std::uint32_t matched_end = 0;  // entries at or past this position are left out by the reader
  // Of a budget of all: those that were matched, if it was trimmed since; 0: those that are stored.
  std::uint64_t entries = 0;
  // [num_layers, heads that are served] first entries of each; empty: by the budget. Of all links
  // or of none.
  std::vector<std::uint32_t> counts{};
  // The segment's, as it was matched: what a lease keeps is found by them. 0: not said.
  std::uint64_t created_unix_ms = 0, stored_entries = 0;
  bool operator==(const GetLink&) const = default;
};
struct Get {
  std::vector<GetLink> links;  // from the root on, each the parent of the next
  Budget budget;               // of every link, by its own recipe's arithmetic; all with counts
  RemoteRegion destination;    // of served_layout.h's size for its entries or counts
  std::uint32_t head_begin = 0, head_count = 0;  // KV heads; count 0: all from head_begin on
  bool operator==(const Get&) const = default;
};
struct Cancel {
  std::uint64_t request = 0;  // a Get under way on this connection
  bool operator==(const Cancel&) const = default;
};

// ---- sessions ----------------------------------------------------------------------------------
struct OpenSession {  // finds or makes
  std::string name;
  std::optional<std::uint64_t> ttl_seconds;  // set anew when given; 0 for none
  bool operator==(const OpenSession&) const = default;
};
struct AdvanceSession {
  std::string name;
  SegmentId tip;  // must stand on the session's present tip
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
struct ListSessions {  // a page of them
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

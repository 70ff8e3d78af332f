// Every message of the protocol as a plain struct, and its bytes. The bytes are Cap'n Proto
// (schema/control.capnp tells the protocol in order); no Cap'n Proto header is needed to use this.
//
// A connection begins with one Hello and one HelloReply, which fix the protocol version, the tenant
// and nothing else. After that the client sends Requests, each with an id of its own choice, and
// the server answers every Request with exactly one Reply of the same id; a Get's Reply comes after
// one LayerServed per layer, and a cancelled request is still answered. Bulk bytes are never in
// messages: the server pulls and pushes them (cachesvc/transport/transport.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "precis/types.h"
#include "precis/view.h"

namespace precis {

inline constexpr std::uint32_t kProtocolVersion = 1;

// Client memory that the server may pull from or push into while the request that names it is
// unanswered. Made by the client's transport; opaque but for its size.
struct RemoteRegion {
  std::uint64_t id = 0;       // unique in the client's connection
  std::uint64_t address = 0;  // in the client's address space
  std::uint64_t size_bytes = 0;
  std::string key;  // the transport's access key, empty where it has none
  bool operator==(const RemoteRegion&) const = default;
};

namespace msg {

struct Hello {
  std::uint32_t protocol_version = kProtocolVersion;
  std::string client;  // name and version, for logs
  std::string tenant;  // empty: "default"
  std::string token;
  bool operator==(const Hello&) const = default;
};
struct HelloReply {
  Status status;  // kVersionMismatch and kPermissionDenied end the connection
  std::uint32_t protocol_version = kProtocolVersion;
  std::string server;  // name and version
  bool operator==(const HelloReply&) const = default;
};

// ---- models ------------------------------------------------------------------------------------
struct RegisterModel {
  ModelSpec model;
  bool operator==(const RegisterModel&) const = default;
};
struct ListModels {
  bool operator==(const ListModels&) const = default;
};

// ---- put ---------------------------------------------------------------------------------------
struct BeginPut {
  Digest model;                 // fingerprint of a registered model
  std::string adapter;          // LoRA or the like; empty for none
  std::vector<TokenId> tokens;  // the whole path from the root, the new tokens at its end
  // Where the new segment begins. kAuto: at the end of the longest stored proper prefix.
  enum class ParentKind : std::uint8_t { kAuto = 0, kRoot = 1, kSegment = 2 };
  ParentKind parent_kind = ParentKind::kAuto;
  SegmentId parent;                   // kSegment
  std::string recipe;                 // empty: the budget in force says
  std::optional<Budget> budget;       // none: the budget in force says
  std::optional<Budget> parent_read;  // provenance: the budget at which the parent was read
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
  bool operator==(const Lookup&) const = default;
};
struct GetLink {
  SegmentId segment;
  std::uint32_t matched_end = 0;  // entries at or past this position are left out by the reader
  bool operator==(const GetLink&) const = default;
};
struct Get {
  std::vector<GetLink> links;  // from the root on, each the parent of the next
  Budget budget;               // of every link, by its own recipe's arithmetic
  RemoteRegion destination;    // at least served_capacity_bytes() (served_layout.h)
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
struct ListSessions {
  bool operator==(const ListSessions&) const = default;
};
struct RemoveSession {
  std::string name;
  bool operator==(const RemoveSession&) const = default;
};

// ---- operations --------------------------------------------------------------------------------
struct ListPrefixes {
  std::optional<Digest> model;
  std::uint32_t limit = 1000;
  bool operator==(const ListPrefixes&) const = default;
};
struct ShowPrefix {
  SegmentId segment;
  bool operator==(const ShowPrefix&) const = default;
};
struct RemovePrefix {
  SegmentId segment;
  bool recursive = false;  // with all segments that stand on it; else refused where there are any
  bool operator==(const RemovePrefix&) const = default;
};
// Defaults for puts that name no recipe or no budget; the narrowest scope that says wins:
// the request, then the model, then the tenant's global one.
struct BudgetScope {
  std::optional<Digest> model;  // none: global
  bool operator==(const BudgetScope&) const = default;
};
struct ShowBudget {
  BudgetScope scope;
  bool operator==(const ShowBudget&) const = default;
};
struct SetBudget {
  BudgetScope scope;
  std::optional<std::string> recipe;  // an empty one unsets
  std::optional<Budget> keep;         // kAll unsets
  bool operator==(const SetBudget&) const = default;
};
struct GetStats {
  bool operator==(const GetStats&) const = default;
};
struct GetStatus {
  bool operator==(const GetStatus&) const = default;
};

using RequestBody =
    std::variant<RegisterModel, ListModels, BeginPut, PushLayer, CommitPut, AbortPut, Lookup, Get,
                 Cancel, OpenSession, AdvanceSession, PinSession, ForkSession, ShowSession,
                 ListSessions, RemoveSession, ListPrefixes, ShowPrefix, RemovePrefix, ShowBudget,
                 SetBudget, GetStats, GetStatus>;
struct Request {
  std::uint64_t id = 0;
  RequestBody body;
  bool operator==(const Request&) const = default;
};

// ---- replies -----------------------------------------------------------------------------------
struct Done {  // success with nothing to say
  bool operator==(const Done&) const = default;
};
struct ModelRow {
  ModelSpec model;
  Digest fingerprint;
  std::uint64_t segments = 0;
  bool operator==(const ModelRow&) const = default;
};
struct Models {
  std::vector<ModelRow> rows;
  bool operator==(const Models&) const = default;
};
struct PutBegun {
  std::uint64_t put = 0;
  std::uint32_t begin = 0, end = 0;  // the tokens whose KV is to be pushed
  SegmentId parent;                  // null at the root
  SegmentId segment;
  bool already_stored = false;  // push nothing; commit answers with what is there
  std::string recipe;           // canonical
  std::uint64_t entries = 0;    // T of the segment
  bool operator==(const PutBegun&) const = default;
};
struct SegmentInfo {
  SegmentId id, parent;
  Digest model;
  std::string adapter;
  std::uint32_t begin = 0, end = 0;
  std::string recipe;  // canonical
  std::string preset;
  Budget budget;
  std::optional<Budget> parent_read;
  std::uint64_t entries = 0;         // kept, over all layers and heads
  std::uint64_t original_bytes = 0;  // K and V of the segment's tokens
  std::uint64_t stored_bytes = 0;    // of all records
  double compress_seconds = 0;       // compute time of the put's stages, all layers added up
  std::uint64_t created_unix_ms = 0;
  std::uint64_t hits = 0;
  std::uint32_t children = 0;
  bool in_memory = false;    // every layer is in the hot tier
  std::optional<Plan> plan;  // where asked for: commit, show
  bool operator==(const SegmentInfo&) const = default;
};
struct Segments {
  std::vector<SegmentInfo> rows;
  bool operator==(const Segments&) const = default;
};
struct MatchLink {
  SegmentInfo segment;
  std::uint32_t matched_end = 0;  // at most segment.end
  bool operator==(const MatchLink&) const = default;
};
struct Match {
  std::uint32_t matched_tokens = 0;  // 0: nothing, and no links
  std::vector<MatchLink> links;
  Plan plan;                // stored entries per (layer, head), added up over the links
  std::uint64_t bytes = 0;  // what a get at the stored budget moves
  double predicted_seconds = 0;
  bool operator==(const Match&) const = default;
};
struct GetDone {
  std::uint64_t bytes = 0;
  bool operator==(const GetDone&) const = default;
};
struct SessionRow {
  std::string name;
  SegmentId tip;  // null before the first turn
  std::uint32_t tip_end = 0;
  std::uint32_t turns = 0;
  std::uint64_t ttl_seconds = 0;      // 0: none
  std::uint64_t expires_unix_ms = 0;  // 0: never
  bool pinned = false;
  std::uint64_t updated_unix_ms = 0;
  bool operator==(const SessionRow&) const = default;
};
struct Sessions {
  std::vector<SessionRow> rows;
  bool operator==(const Sessions&) const = default;
};
struct Removed {
  std::uint64_t segments = 0;
  std::uint64_t bytes = 0;
  bool operator==(const Removed&) const = default;
};
struct BudgetRow {
  std::string scope;           // "built-in", "config", "global", or "model NAME"
  std::string recipe;          // empty: says nothing
  std::optional<Budget> keep;  // none: says nothing
  std::uint64_t version = 0;
  std::uint64_t set_unix_ms = 0;
  bool operator==(const BudgetRow&) const = default;
};
struct Budgets {
  std::vector<BudgetRow> layers;  // widest first
  BudgetRow effective;
  bool operator==(const Budgets&) const = default;
};
struct Stat {
  std::string name;  // precis_<noun>_<unit>[_total]
  double value = 0;
  std::string help;
  bool operator==(const Stat&) const = default;
};
struct Stats {
  std::vector<Stat> rows;
  bool operator==(const Stats&) const = default;
};
struct ServerStatus {
  std::string server;  // name and version
  std::string tenant;  // of this connection
  std::string data_dir;
  std::string transport;  // what this connection's bulk bytes travel over
  std::string device;     // where compression runs
  double uptime_seconds = 0;
  std::uint64_t segments = 0, sessions = 0, models = 0;
  std::uint64_t stored_bytes = 0, memory_bytes = 0, memory_limit_bytes = 0;
  bool operator==(const ServerStatus&) const = default;
};

using ReplyBody =
    std::variant<Done, ModelRow, Models, PutBegun, SegmentInfo, Segments, Match, GetDone,
                 SessionRow, Sessions, Removed, Budgets, Stats, ServerStatus>;
struct Reply {
  std::uint64_t id = 0;
  Status status;  // on error `body` is Done
  ReplyBody body;
  bool operator==(const Reply&) const = default;
};
// One layer of a Get is in place, laid out from `offset` of the destination as ServedLayout
// (served_layout.h) says for these counts.
struct LayerServed {
  std::uint64_t id = 0;  // of the Get
  std::uint32_t layer = 0;
  std::uint64_t offset = 0;
  std::vector<std::uint32_t> counts;  // [num_links, num_kv_heads]
  // Of the last, partial checksum block of each cut [num_links, num_kv_heads]; zero where none.
  std::vector<std::array<std::uint8_t, 16>> tail_checksums;
  bool operator==(const LayerServed&) const = default;
};
using ServerMessage = std::variant<Reply, LayerServed>;

}  // namespace msg

// Encoders cannot fail: limits are the caller's to keep. Decoders take bytes from outside:
// truncated, oversize, unknown or out-of-range content is kInvalidArgument naming the field.
std::vector<std::byte> encode(const msg::Hello&);
std::vector<std::byte> encode(const msg::HelloReply&);
std::vector<std::byte> encode(const msg::Request&);
std::vector<std::byte> encode(const msg::ServerMessage&);
Result<msg::Hello> decode_hello(Bytes);
Result<msg::HelloReply> decode_hello_reply(Bytes);
Result<msg::Request> decode_request(Bytes);
Result<msg::ServerMessage> decode_server_message(Bytes);
// The id of a Request that decode_request refuses, so that its sender can be told what is wrong
// with it; none where not even that can be read.
std::optional<std::uint64_t> request_id(Bytes);

}  // namespace precis

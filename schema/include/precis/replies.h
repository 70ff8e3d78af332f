// What the service answers, as plain structs (messages.h tells the protocol).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "precis/types.h"

namespace precis::msg {

struct Done {  // success with nothing to say
  bool operator==(const Done&) const = default;
};
struct ModelRow {
  ModelSpec model;
  Digest fingerprint;
  std::uint64_t segments = 0;
  std::uint32_t projections = 0;  // layers whose output projection is stored
  bool operator==(const ModelRow&) const = default;
};
struct Models {
  std::vector<ModelRow> rows;
  // Every list names where the next page begins, for `after`. Empty: this is the last page.
  std::string next{};
  bool operator==(const Models&) const = default;
};
struct ProfileRow {
  std::string name;
  std::string kind;  // "curves" or "weights"
  Digest model;
  std::string scorer;            // canonical recipe of the scores it was built over
  Digest digest;                 // of its content, without the name
  std::uint32_t num_tokens = 0;  // of the fitting contexts
  std::string text_digest;
  std::uint64_t added_unix_ms = 0;
  std::string json;  // empty where it was not asked for
  bool operator==(const ProfileRow&) const = default;
};
struct Profiles {
  std::vector<ProfileRow> rows;
  bool operator==(const Profiles&) const = default;
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
  double compress_seconds = 0;       // compute time of all layers' stages, added up: they overlap
  std::uint64_t created_unix_ms = 0;
  std::uint64_t hits = 0;
  std::uint32_t children = 0;
  bool in_memory = false;         // every layer is in the hot tier
  bool out_of_service = false;    // damaged, or standing on what is: not served
  std::optional<Plan> plan;       // where asked for: commit, show
  std::optional<Budget> trimmed;  // what it was trimmed to; none: it is as it was put
  const Budget& stored_budget() const { return trimmed ? *trimmed : budget; }
  bool operator==(const SegmentInfo&) const = default;
};
struct Segments {
  std::vector<SegmentInfo> rows;
  std::string next{};  // a page may have no row and still not be the last one
  bool operator==(const Segments&) const = default;
};
struct MatchLink {
  SegmentInfo segment;
  std::uint32_t matched_end = 0;  // at most segment.end
  // [num_layers, num_kv_heads] first entries to be served of each; empty: nothing was counted.
  std::vector<std::uint32_t> counts{};
  bool operator==(const MatchLink&) const = default;
};
struct Match {
  std::uint32_t matched_tokens = 0;  // 0: nothing, and no links
  std::vector<MatchLink> links;
  // Entries per (layer, head), added up over the links: those that are stored, or, where the links
  // have counts, exactly those that a reader gets.
  Plan plan;
  std::uint64_t bytes = 0;  // what a get of all, or of the counts, moves
  double predicted_seconds = 0;
  std::uint32_t lease_ms = 0;  // that were granted; 0: none
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
  std::string next{};
  bool operator==(const Sessions&) const = default;
};
struct Removed {
  std::uint64_t segments = 0;
  std::uint64_t bytes = 0;
  bool operator==(const Removed&) const = default;
};
// Of one segment, read from the store in whole.
struct Checked {
  std::uint64_t bytes = 0;  // that are as they were written
  std::string damage;       // what is not; empty: nothing
  bool operator==(const Checked&) const = default;
};
// A segment as trimming left it.
struct Trimmed {
  std::uint64_t entries = 0, stored_bytes = 0;  // now
  std::uint64_t freed_bytes = 0;
  bool operator==(const Trimmed&) const = default;
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
  std::string rdma;       // the service's RDMA device in words, or "off"
  double uptime_seconds = 0;
  std::uint64_t segments = 0, sessions = 0, models = 0;
  std::uint64_t stored_bytes = 0, memory_bytes = 0, memory_limit_bytes = 0;
  std::uint64_t segments_out_of_service = 0;  // damaged, or standing on what is
  // The disk of the data directory. Puts that would leave less free than the minimum are refused.
  std::uint64_t disk_free_bytes = 0, disk_min_free_bytes = 0;
  bool disk_low = false;   // puts are being refused for want of space
  std::string disk_fault;  // why changes fail until an operator acts; empty: nothing is wrong
  // Why others on the network may read or change what is stored; empty where they may not.
  std::string exposed;
  // True while acknowledged changes are missing, or may be, and nobody has accepted that: how many
  // (0 where that is not known), and bytes of payload that no row means, kept for them at the
  // start.
  bool doubtful_recovery = false;
  std::uint64_t lost_changes = 0, kept_bytes = 0;
  std::uint64_t kept_log_bytes = 0;  // of logs from before the recovery, kept as well
  bool operator==(const ServerStatus&) const = default;
};

using ReplyBody = std::variant<Done, ModelRow, Models, PutBegun, SegmentInfo, Segments, Match,
                               GetDone, SessionRow, Sessions, Removed, Budgets, Stats, ServerStatus,
                               ProfileRow, Profiles, Checked, Trimmed>;
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
  std::vector<std::uint32_t> counts;  // [num_links, heads that are served]
  // Of the last, partial checksum block of each cut, shaped as counts; zero where there is none.
  std::vector<std::array<std::uint8_t, 16>> tail_checksums;
  bool operator==(const LayerServed&) const = default;
};
using ServerMessage = std::variant<Reply, LayerServed>;

}  // namespace precis::msg

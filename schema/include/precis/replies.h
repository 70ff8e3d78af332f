// Replies of the service as plain structs (messages.h explains the protocol).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "precis/types.h"

namespace precis::msg {

struct Done {  // success without further data
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
  // The position of the next page, for `after`, in this and other lists. Empty: this is the last
  // page.
  std::string next{};
  bool operator==(const Models&) const = default;
};
struct ProfileRow {
  std::string name;
  std::string kind;  // "curves" or "weights"
  Digest model;
  std::string scorer;            // canonical recipe of the scores that it was built over
  Digest digest;                 // of its content without the name
  std::uint32_t num_tokens = 0;  // tokens of the fitting contexts
  std::string text_digest;
  std::uint64_t added_unix_ms = 0;
  std::string json;  // empty unless requested
  bool operator==(const ProfileRow&) const = default;
};
struct Profiles {
  std::vector<ProfileRow> rows;
  bool operator==(const Profiles&) const = default;
};
struct PutBegun {
  std::uint64_t put = 0;
  std::uint32_t begin = 0, end = 0;  // the range of tokens whose KV is to be pushed
  SegmentId parent;                  // null at the root
  SegmentId segment;
  bool already_stored = false;  // push nothing: commit answers with the stored segment
  std::string recipe;           // canonical
  std::uint64_t entries = 0;    // the segment's budget T
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
  std::uint64_t entries = 0;         // kept entries over all layers and heads
  std::uint64_t original_bytes = 0;  // K and V of the segment's tokens
  std::uint64_t stored_bytes = 0;    // of all records
  double compress_seconds = 0;       // compute time summed over all layers' stages, which overlap
  std::uint64_t created_unix_ms = 0;
  std::uint64_t hits = 0;
  std::uint32_t children = 0;
  bool in_memory = false;         // every layer is in the hot tier
  bool out_of_service = false;    // it or an ancestor is damaged: not served
  std::optional<Plan> plan;       // only in answers to commit and show
  std::optional<Budget> trimmed;  // the budget it was trimmed to; none: never trimmed
  const Budget& stored_budget() const { return trimmed ? *trimmed : budget; }
  bool operator==(const SegmentInfo&) const = default;
};
struct Segments {
  std::vector<SegmentInfo> rows;
  std::string next{};  // a page without rows may still not be the last one
  bool operator==(const Segments&) const = default;
};
struct MatchLink {
  SegmentInfo segment;
  std::uint32_t matched_end = 0;  // at most segment.end
  // [num_layers, num_kv_heads] first entries that a get serves; empty: not counted.
  std::vector<std::uint32_t> counts{};
  bool operator==(const MatchLink&) const = default;
};
struct Match {
  std::uint32_t matched_tokens = 0;  // 0: no match, and no links
  std::vector<MatchLink> links;
  // Entries per (layer, head), summed over the links: the stored entries, or if the links have
  // counts, exactly the entries that a reader gets.
  Plan plan;
  std::uint64_t bytes = 0;  // bytes that a get of all entries, or of the counts, transfers
  double predicted_seconds = 0;
  std::uint32_t lease_ms = 0;  // granted duration of the lease; 0: none
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
// The check of one segment, read completely from the store.
struct Checked {
  std::uint64_t bytes = 0;  // that were read and are intact
  std::string damage;       // the damage found; empty: none
  bool operator==(const Checked&) const = default;
};
// A segment after a trim.
struct Trimmed {
  std::uint64_t entries = 0, stored_bytes = 0;  // of the segment now
  std::uint64_t freed_bytes = 0;
  bool operator==(const Trimmed&) const = default;
};
struct BudgetRow {
  std::string scope;           // "built-in", "config", "global", or "model NAME"
  std::string recipe;          // empty: this scope sets no recipe
  std::optional<Budget> keep;  // none: this scope sets no budget
  std::uint64_t version = 0;
  std::uint64_t set_unix_ms = 0;
  bool operator==(const BudgetRow&) const = default;
};
struct Budgets {
  std::vector<BudgetRow> layers;  // from the widest scope to the narrowest
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
  std::string transport;  // transport of this connection's bulk bytes
  std::string device;     // device that compresses
  std::string rdma;       // the service's RDMA device in words, or "off"
  double uptime_seconds = 0;
  std::uint64_t segments = 0, sessions = 0, models = 0;
  std::uint64_t stored_bytes = 0, memory_bytes = 0, memory_limit_bytes = 0;
  std::uint64_t segments_out_of_service = 0;  // damaged, or with a damaged ancestor
  // Free space on the data directory's disk. A put that would leave less than the minimum is
  // refused.
  std::uint64_t disk_free_bytes = 0, disk_min_free_bytes = 0;
  bool disk_low = false;   // puts are refused for lack of space
  std::string disk_fault;  // why changes fail until an operator acts; empty: no fault
  // Why others on the network may read or change stored data; empty: they may not.
  std::string exposed;
  // True if acknowledged changes are missing or may be missing, and no operator has accepted the
  // loss. lost_changes: their number, 0 if unknown. kept_bytes: payload without a row, kept at
  // start because of the missing changes.
  bool doubtful_recovery = false;
  std::uint64_t lost_changes = 0, kept_bytes = 0;
  std::uint64_t kept_log_bytes = 0;  // logs from before the recovery, kept as well
  bool operator==(const ServerStatus&) const = default;
};

using ReplyBody = std::variant<Done, ModelRow, Models, PutBegun, SegmentInfo, Segments, Match,
                               GetDone, SessionRow, Sessions, Removed, Budgets, Stats, ServerStatus,
                               ProfileRow, Profiles, Checked, Trimmed>;
struct Reply {
  std::uint64_t id = 0;
  Status status;  // if it is an error, `body` is Done
  ReplyBody body;
  bool operator==(const Reply&) const = default;
};
// One layer of a Get is in place. Its layout from `offset` of the destination is the ServedLayout
// (served_layout.h) of these counts.
struct LayerServed {
  std::uint64_t id = 0;  // id of the Get
  std::uint32_t layer = 0;
  std::uint64_t offset = 0;
  std::vector<std::uint32_t> counts;  // [num_links, served heads]
  // Checksums of the last, partial block of each cut, in the shape of counts; zero if the cut has
  // none.
  std::vector<std::array<std::uint8_t, 16>> tail_checksums;
  bool operator==(const LayerServed&) const = default;
};
using ServerMessage = std::variant<Reply, LayerServed>;

}  // namespace precis::msg

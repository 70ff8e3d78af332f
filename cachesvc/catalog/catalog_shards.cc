// The shared storage has the rows of shards; the local store has copies of some, and possibly
// segments that were not shared yet.
#include "cachesvc/catalog/catalog_shards.h"

#include <algorithm>

#include "cachesvc/catalog/catalog_keys.h"

namespace precis {
namespace {

// The most blocks that leave the index while lookups wait, or one segment with more.
constexpr std::size_t kBlocksOfDrop = 65'536;

// Everybody's limits count the stored bytes, also those of a row that fits no model.
bool has_its_bytes(const SegmentRow& row) {
  std::uint64_t left = row.stored_bytes;
  for (const std::uint64_t bytes : row.layer_bytes) {
    if (bytes > left) return false;
    left -= bytes;
  }
  return left == 0;
}

Catalog::Row with_use(const SegmentNode& node) {
  if (node.last_used_unix_ms <= node.row->last_used_unix_ms) return node.row;
  auto row = std::make_shared<SegmentRow>(*node.row);
  node.copy_use(*row);
  return row;
}

}  // namespace

struct CatalogShards::Read {
  std::vector<std::pair<Table, std::string>> bad;
  std::map<SegmentId, Row> segments;
  std::vector<StoredSession> sessions;
};

CatalogShards::Read CatalogShards::read_rows(const LoadedShard& shard) {
  Read read;
  for (const StoredRow& stored : shard.rows) {
    bool is_good = false;
    if (stored.table == Table::kSegments) {
      auto row = decode_segment_row(stored.value);
      is_good = row.ok() && segment_key(row->id) == stored.key && row->shard == shard.shard &&
                has_its_bytes(*row);
      if (is_good) {
        const SegmentId id = row->id;
        read.segments[id] = std::make_shared<const SegmentRow>(std::move(row).value());
      }
    } else if (stored.table == Table::kSessions) {
      auto row = decode_stored_session(stored.value);
      is_good = row.ok() && session_key(row->tenant, row->row.name) == stored.key &&
                row->row.shard == shard.shard;
      if (is_good) read.sessions.push_back(std::move(row).value());
    }
    if (!is_good) read.bad.emplace_back(stored.table, stored.key);
  }
  return read;
}

// Removes older copies and damaged ones, and returns the segments that only the local store has.
// Others get the last use that is known here.
std::vector<Catalog::Row> CatalogShards::take_kept_here(const LoadedShard& shard, Read& read) {
  std::vector<Row> only_here, gone;
  const auto first = kept_here_.lower_bound({shard.shard, SegmentId()});
  auto last = first;
  for (; last != kept_here_.end() && last->first.first == shard.shard; ++last) {
    const Row& here = last->second;
    const auto there = read.segments.find(here->id);
    const bool is_good = !is_marked(here->id);
    const bool is_shared = there != read.segments.end();
    using Version = SegmentLeases::Version;
    if (is_good && is_shared && Version::of(*here) == Version::of(*there->second)) {
      if (here->last_used_unix_ms > there->second->last_used_unix_ms) {
        auto used = std::make_shared<SegmentRow>(*there->second);
        used->last_used_unix_ms = here->last_used_unix_ms;
        used->hits = std::max(used->hits, here->hits);
        there->second = std::move(used);
      }
      continue;
    }
    const bool is_latest = !is_shared || is_newer(*here, *there->second);
    // Its layers were evicted if the shared storage had it once, and has lost it.
    if (is_good && is_latest && shard.was_holder && is_whole_here(*here)) {
      only_here.push_back(here);
    } else {
      gone.push_back(here);
      if (is_latest) ++lost_segments_;
    }
  }
  kept_here_.erase(first, last);
  for (std::span<const Row> left(gone); !left.empty();) {
    if (!erase_some(left).ok()) break;
  }
  std::ranges::sort(only_here, {}, [](const Row& row) { return row->begin; });  // parents first
  return only_here;
}

bool CatalogShards::is_whole_here(const SegmentRow& row) const {
  for (std::uint32_t l = 0; l < row.layer_bytes.size(); ++l) {
    if (store_.held_bytes(payload_key(row.id, l)) != row.layer_bytes[l]) return false;
  }
  return true;
}

Status CatalogShards::load_shard(LoadedShard shard) {
  Read read = read_rows(shard);
  std::lock_guard changing(changes_);
  const std::vector<Row> only_here = take_kept_here(shard, read);
  held_.at(shard.shard) = true;
  {
    std::unique_lock lock(state_);
    bad_rows_.insert(read.bad.begin(), read.bad.end());
    for (const auto& [id, row] : read.segments) tree_.put(row, Durability::kFsync, commits_);
    for (StoredSession& session : read.sessions) {
      sessions_.put(session.tenant, std::move(session.row));
    }
    tell(msg::KvEvent::Cause::kMoved);
  }
  Status status;
  for (const Row& row : only_here) {
    if (const Status shared = share(row); status.ok()) status = shared;
  }
  return status;
}

Status CatalogShards::share(const Row& row) {
  Change change;
  if (const SegmentNode* const older = tree_.find(row->id)) change.remove_objects_of(*older->row);
  change.share_segment(*row);
  PRECIS_TRY(write(std::move(change), Durability::kWal));
  std::unique_lock lock(state_);
  tree_.put(row, Durability::kFsync, commits_);
  tell(msg::KvEvent::Cause::kMoved);
  return {};
}

// The local store's rows and kept_here_ have the last use of segments, for the order in which their
// copies go.
std::vector<SegmentId> CatalogShards::drop_shards(const std::vector<bool>& shards) {
  std::lock_guard changing(changes_);
  std::size_t left = 0;
  {
    std::lock_guard lock(hits_mutex_);
    left = unsaved_hits_.size();
  }
  while (left > 0) {
    if (!write({}, Durability::kMemory).ok()) break;  // then some are lost
    left -= std::min(left, kHitRowsPerChange);
  }
  for (std::size_t shard = 0; shard < held_.size(); ++shard) {
    if (shards.at(shard)) held_[shard] = false;
  }
  std::vector<Row> rows;
  for (const auto& [id, node] : tree_.nodes()) {
    if (node.row->shard && shards.at(*node.row->shard)) rows.push_back(node.row);
  }
  std::ranges::sort(rows, std::greater(), [](const Row& row) { return row->begin; });
  SegmentLeases::Removal removal(leases_, rows, /*may_wait=*/true);
  {
    std::unique_lock lock(state_);
    removal.applied();
    for (const Sessions::Key& key : sessions_.in_shards(shards)) sessions_.erase(key);
  }
  std::vector<SegmentId> ids;
  for (auto row = rows.begin(); row != rows.end();) {  // children first
    std::unique_lock lock(state_);
    for (std::size_t blocks = 0; row != rows.end() && blocks <= kBlocksOfDrop; ++row) {
      blocks += (*row)->blocks.size() + 1;
      kept_here_[{*(*row)->shard, (*row)->id}] = with_use(*tree_.find((*row)->id));
      tree_.erase((*row)->id);
      ids.push_back((*row)->id);
    }
    tell(msg::KvEvent::Cause::kMoved);
  }
  return ids;
}

// A guest that is still the same version stays the same row, so that its layers in memory are
// found. Decoding takes long, so it is done without a lock.
void CatalogShards::keep_guests(std::string_view tenant, std::vector<StoredRow> rows,
                                std::uint64_t until_ns) {
  for (const StoredRow& stored : rows) {
    auto row = decode_segment_row(stored.value);
    const bool is_its = row.ok() && segment_key(row->id) == stored.key && row->tenant == tenant;
    if (!is_its || !row->shard || !has_its_bytes(*row)) continue;
    guests_.keep(std::move(*row), until_ns, clock_.monotonic_ns());
  }
}

std::vector<SegmentId> CatalogShards::end_guests() { return guests_.end(clock_.monotonic_ns()); }

}  // namespace precis

// Commits, trims and splits: the checks, the writes, and the updates in memory. Commits that wait
// for a sync together become one batch of the store (commit_queue.h).
#include <algorithm>
#include <array>
#include <cstring>

#include "cachesvc/base/counted.h"
#include "cachesvc/catalog/catalog_impl.h"
#include "cachesvc/catalog/catalog_keys.h"
#include "cachesvc/catalog/faithful.h"
#include "precis/limits.h"

namespace precis {
namespace {

// Returns the tip that remains for a session after the segments in `gone` are dropped.
const SegmentNode* tip_without(const SegmentNode* tip, const std::set<SegmentId>& gone) {
  const SegmentNode* left = tip;
  for (const SegmentNode* node = tip; node; node = node->parent) {
    if (gone.contains(node->row->id)) left = node->parent;
  }
  return left;
}

// Checks that the memory for segments has room for this one.
Status check_kept(const SegmentTree& tree, const SegmentRow& row, std::uint64_t promised_bytes,
                  std::uint64_t max_bytes) {
  const SegmentNode* const present = tree.find(row.id);
  const std::uint64_t of_others =
      tree.kept_bytes() + promised_bytes - (present ? kept_bytes(*present->row) : 0);
  const std::uint64_t wanted = kept_bytes(row);
  if (of_others <= max_bytes && wanted <= max_bytes - of_others) return {};
  return Status::out_of_space(
      "segment " + row.id.hex() + ": the catalog needs " + std::to_string(wanted) +
      " B of memory for its " + counted(row.blocks.size(), "block") + " and " +
      counted(row.layer_bytes.size(), "layer") + ", and the stored segments take " +
      std::to_string(of_others) + " of the " + std::to_string(max_bytes) +
      " B for that; remove prefixes, use a larger block_tokens, or raise memory_bytes");
}

}  // namespace

Status CatalogCommits::harden_all() {
  PRECIS_TRY(store_.harden());
  hardened_ = commits_;
  return {};
}

// A repeated commit may ask for more durability than the first.
Status CatalogCommits::harden_again(const SegmentNode& present, Durability durability) {
  const bool weaker = present.commit > hardened_ && present.durability < durability;
  const bool lost_with_parents = durability != Durability::kMemory && chain_is_volatile(&present);
  return weaker || lost_with_parents ? harden_all() : Status();
}

// A replacement is at least as durable as the acknowledged segment that it replaces.
Durability CatalogCommits::at_least_as(const SegmentNode* present, Durability asked) const {
  if (!present || !present->in_service) return asked;
  const bool hardened = present->commit <= hardened_;
  return std::max(asked, hardened ? Durability::kFsync : present->durability);
}

Status CatalogCommits::harden(std::string_view tenant, const SegmentId& id, Durability durability) {
  if (durability == Durability::kShared) durability = Durability::kWal;
  std::lock_guard changing(changes_);
  const SegmentNode* const current = tree_.find_current(id);
  PRECIS_ASSIGN(const SegmentNode* const node, find_node(tenant, current ? current->row->id : id));
  return harden_again(*node, durability);
}

Result<const SegmentNode*> CatalogCommits::find_parent(const SegmentRow& row) const {
  if (row.parent.is_null()) return static_cast<const SegmentNode*>(nullptr);
  const SegmentNode* const parent = tree_.find(row.parent);
  if (!parent || !parent->in_service || parent->row->tenant != row.tenant) {
    return Status::not_found("segment " + row.id.hex() + ": its parent " + row.parent.hex() +
                             " is no longer stored; put the whole path again");
  }
  if (parent->depth >= limits::kChainSegmentsMax) {
    return Status::invalid("segment " + row.id.hex() + ": its chain has " +
                           std::to_string(parent->depth) + " segments, at most " +
                           std::to_string(limits::kChainSegmentsMax) +
                           " are allowed; put the whole path as one segment");
  }
  return parent;
}

Status CatalogCommits::check_row(const Commit& commit, const ModelSpec& model,
                                 const SegmentRow* parent) {
  PRECIS_TRY(check_segment_row(commit.row, model, parent));
  if (std::ranges::equal(commit.layers, commit.row.layer_bytes,
                         [](const Layer& layer, std::uint64_t size_bytes) {
                           return layer.records.size() == size_bytes;
                         })) {
    return {};
  }
  return Status::invalid("segment " + commit.row.id.hex() +
                         ": its payload does not have the sizes in layer_bytes");
}

Status CatalogCommits::check_commit(Commit& commit, std::uint64_t promised_bytes) {
  const SegmentRow& row = commit.row;
  commit.durability = at_least_as(tree_.find(row.id), commit.durability);
  const auto model = models_.find({row.tenant, row.model});
  if (model == models_.end()) {
    return Status::not_found("segment " + row.id.hex() + ": model " + row.model.hex() +
                             " is not registered");
  }
  PRECIS_ASSIGN(const SegmentNode* const parent, find_parent(row));
  PRECIS_TRY(check_row(commit, model->second.spec, parent ? parent->row.get() : nullptr));
  if (!commit.makes_room) PRECIS_TRY(check_kept(tree_, row, promised_bytes, kept_bytes_max_));
  // A put restores what a trim removed.
  const SegmentNode* const present = tree_.find(row.id);
  if (present && present->pins > 0 && row.stored_bytes > present->row->stored_bytes) {
    PRECIS_TRY(check_pinned_room(row.tenant, row.stored_bytes - present->row->stored_bytes,
                                 "segment " + row.id.hex() + " of a pinned session can't grow"));
  }
  const bool rests_on_less = commit.durability != Durability::kMemory && chain_is_volatile(parent);
  return rests_on_less ? harden_all() : Status();
}

Status CatalogCommits::store_segments(std::span<Commit* const> commits) {
  Change change;
  Durability durability = Durability::kMemory;  // the strongest requested
  std::vector<Row> replaced, rows;
  for (const Commit* const commit : commits) {
    durability = std::max(durability, commit->durability);
    if (const auto* const present = tree_.find(commit->row.id)) replaced.push_back(present->row);
  }
  // A commit at kMemory must not wait for the disk.
  SegmentLeases::Removal removal(leases_, std::move(replaced), durability != Durability::kMemory);
  for (const Commit* const commit : commits) {
    const auto stored = std::make_shared<SegmentRow>(commit->row);
    SegmentRow& row = *stored;
    rows.push_back(stored);
    // Two versions can have the same millisecond, and the clock can step back.
    const SegmentNode* const before = tree_.find(row.id);
    // The storage that nodes share has both versions for a moment, and a node that returns keeps
    // the later one.
    if (before && row.shard) {
      row.created_unix_ms = std::max(row.created_unix_ms, before->row->created_unix_ms + 1);
    }
    while (leases_.knows(SegmentLeases::Version::of(row))) ++row.created_unix_ms;
    if (commit->makes_room) change.makes_room();
    if (before) change.remove_objects_of(*before->row);
    change.put_segment(row);
    for (std::uint32_t l = 0; l < commit->layers.size(); ++l) {
      change.put_layer(row, l, commit->layers[l].records, commit->layers[l].staged);
    }
    // New bytes end the quarantine of a segment with bad bytes.
    if (is_marked(row.id)) change.erase(Table::kMeta, quarantine_key(row.id));
  }
  // Only batches at kMemory can be dropped, and each of them holds a single commit.
  if (commits.size() == 1) change.is_of(commits[0]->row.id, commits[0]->row.parent);
  const Status written = write(std::move(change), durability);
  erase_dropped();
  PRECIS_TRY(written);

  std::unique_lock lock(state_);
  removal.applied();
  for (const Row& row : rows) {
    marks_.erase(row->id);
    marks_to_save_.erase(row->id);  // write() at kMemory does not clear it
    tree_.put(row, durability, ++commits_);
  }
  tell(msg::KvEvent::Cause::kAsked);
  return {};
}

Result<bool> CatalogCommits::trim(const SegmentRow& from, const SegmentRow& to,
                                  std::span<const Layer> layers, Durability durability) {
  std::lock_guard changing(changes_);
  const SegmentNode* const present = tree_.find(from.id);
  if (!present || !present->in_service || *present->row != from) return false;
  SegmentRow row = to;
  present->copy_use(row);
  if (durability == Durability::kShared) durability = Durability::kWal;
  Commit commit{row, layers, durability, /*makes_room=*/true};
  PRECIS_TRY(check_commit(commit));
  Commit* const alone = &commit;
  PRECIS_TRY(store_segments({&alone, 1}));
  return true;
}

Result<bool> CatalogCommits::split(const SegmentRow& from, const Part& head, const Part& tail) {
  std::lock_guard changing(changes_);
  const SegmentNode* const present = tree_.find(from.id);
  if (!present || !present->in_service || *present->row != from) return false;
  // The first part may be left from a split whose second part was put again as a whole.
  const SegmentNode* const left = tree_.find(head.row.id);
  if (left && (!left->in_service || left->row->parent != head.row.parent ||
               left->row->begin != head.row.begin || left->row->tip != head.row.tip)) {
    return Status::conflict("segment " + from.id.hex() + " can't be split at token " +
                            std::to_string(head.row.end) + ": segment " + head.row.id.hex() +
                            " is in the way; remove it");
  }
  for (const SegmentId& id : tree_.subtree(from.id)) {
    if (tree_.find(id)->depth >= limits::kChainSegmentsMax) {
      return Status::invalid("segment " + from.id.hex() + " can't be split: the chain to segment " +
                             id.hex() + " has as many segments as are allowed, " +
                             std::to_string(limits::kChainSegmentsMax));
    }
  }
  const ModelSpec& model = models_.at({from.tenant, from.model}).spec;
  const Durability durability = at_least_as(left, at_least_as(present, Durability::kWal));
  std::array<SegmentRow, 2> rows{head.row, tail.row};
  for (SegmentRow& row : rows) present->copy_use(row);
  // If another node makes this split again, its objects must have other names (orphans.h).
  if (!left && from.shard) rows[0].created_unix_ms = clock_.unix_ms();
  std::array<Commit, 2> commits{Commit{rows[0], head.layers, durability},
                                Commit{rows[1], tail.layers, durability}};
  PRECIS_TRY(check_row(commits[0], model, present->parent ? present->parent->row.get() : nullptr));
  PRECIS_TRY(check_row(commits[1], model, &rows[0]));
  if (!left) PRECIS_TRY(check_kept(tree_, rows[0], 0, kept_bytes_max_));
  if (chain_is_volatile(present->parent)) PRECIS_TRY(harden_all());
  const std::array<Commit*, 2> both{&commits[0], &commits[1]};
  PRECIS_TRY(store_segments(both));
  return true;
}

void CatalogCommits::erase_dropped() {
  std::set<SegmentId> gone;
  for (const std::string& name : store_.take_dropped()) {
    SegmentId id;
    PRECIS_CHECK(name.size() == id.bytes.size());
    std::memcpy(id.bytes.data(), name.data(), name.size());
    if (!tree_.find(id)) continue;
    for (const SegmentId& each : tree_.subtree(id)) gone.insert(each);
  }
  if (gone.empty()) return;
  std::vector<std::pair<std::string, msg::SessionRow>> moved;
  for (const SegmentId& id : gone) {
    const std::string& tenant = tree_.find(id)->row->tenant;
    sessions_.each_at(tenant, id, clock_.unix_ms(), [&](const msg::SessionRow& present) {
      const SegmentNode* const tip = tip_without(tree_.find(present.tip), gone);
      msg::SessionRow& session = moved.emplace_back(tenant, present).second;
      session.tip = tip ? tip->row->id : SegmentId();
      session.tip_end = tip ? tip->row->end : 0;
      session.updated_unix_ms = clock_.unix_ms();
    });
  }
  {
    std::unique_lock lock(state_);
    for (auto& [tenant, session] : moved) sessions_.put(tenant, session);
    erase_dropped(gone);
  }
  dropped_segments_ += gone.size();
  // The stored rows of these sessions were dropped too. If this write is lost, the stored row names
  // an earlier tip. These writes are at kMemory, because a commit at kMemory must not wait for the
  // disk.
  for (const auto& [tenant, session] : moved) {
    Change change;
    change.put_session(tenant, session);
    change.is_of({}, session.tip);
    (void)write(std::move(change), Durability::kMemory);
  }
}

// Callers hold both locks.
void CatalogCommits::erase_dropped(const std::set<SegmentId>& gone) {
  for (const SegmentId& id : gone) {
    marks_to_save_.erase(id);
    tree_.erase(id);
  }
  tell(msg::KvEvent::Cause::kDropped);
}

std::shared_ptr<StagedValue> CatalogCommits::stage(SharedBytes records) {
  return store_.stage(std::move(records));
}

Status CatalogCommits::commit(const SegmentRow& row, std::span<const Layer> layers,
                              Durability durability) {
  if (durability == Durability::kShared) durability = Durability::kWal;
  // A segment that is dropped here could be in the shared storage already.
  if (in_shards() && row.shard) durability = std::max(durability, Durability::kWal);
  // Waits for the payload before taking changes_, so that other changes do not wait for it. The
  // store retries a failed payload and reports the failure.
  for (const Layer& layer : layers) {
    if (durability != Durability::kMemory && layer.staged) (void)layer.staged->wait();
  }
  Commit commit{row, layers, durability};
  Commit* const alone = &commit;
  // Without a sync to share, waiting for each other costs more than it saves.
  if (durability != Durability::kFsync) {
    std::lock_guard changing(changes_);
    commit_all({&alone, 1});
    return commit.status;
  }
  if (!commits_waiting_.leads(commit)) return commit.status;
  std::vector<Commit*> all;
  {
    std::lock_guard changing(changes_);  // other commits join the queue until changes_ is locked
    all = commits_waiting_.take();
    commit_all(all);
  }
  commits_waiting_.done(all);
  return commit.status;
}

// Each commit has the same result as if the commits ran one after another. So a commit of the same
// segment as an earlier commit, or of a child of that segment, is checked after the earlier one is
// stored.
void CatalogCommits::commit_all(std::span<Commit* const> commits) {
  std::vector<Commit*> checked;  // in one batch, independent of each other
  std::uint64_t promised = 0;    // bytes of memory for the checked commits
  for (Commit* const commit : commits) {
    const bool depends = std::ranges::any_of(checked, [&](const Commit* other) {
      return other->row.id == commit->row.id || other->row.id == commit->row.parent;
    });
    if (depends) {
      store_each(std::exchange(checked, {}));
      promised = 0;
    }
    const SegmentNode* const present = tree_.find(commit->row.id);
    // The second part of a split segment has the id of the whole, which may be put again.
    if (present && present->in_service && present->row->begin == commit->row.begin &&
        is_as_good(*present->row, commit->row)) {
      commit->status = harden_again(*present, commit->durability);
      continue;
    }
    commit->status = check_commit(*commit, promised);
    if (!commit->status.ok()) continue;
    checked.push_back(commit);
    promised += kept_bytes(commit->row);
  }
  store_each(checked);
}

// A failed batch changes nothing, and its error does not tell which commit caused it: then each
// commit runs alone.
void CatalogCommits::store_each(std::span<Commit* const> commits) {
  if (commits.empty()) return;
  const Status status = store_segments(commits);
  if (status.ok()) return;
  for (Commit* const& commit : commits) {
    commit->status = commits.size() == 1 ? status : store_segments({&commit, 1});
  }
}

}  // namespace precis

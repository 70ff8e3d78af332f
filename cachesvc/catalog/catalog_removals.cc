#include <algorithm>
#include <chrono>
#include <thread>
#include <unordered_set>

#include "cachesvc/base/counted.h"
#include "cachesvc/catalog/catalog_impl.h"
#include "cachesvc/catalog/catalog_keys.h"

namespace precis {
namespace {

// The most layers and blocks that one change removes (or one segment with more), and the pause
// between two such changes, in which other changes can run. Layers are deletes in the store. Blocks
// leave the index while lookups wait.
constexpr std::size_t kLayersOfRemoval = 4096, kBlocksOfRemoval = 65'536;
constexpr std::chrono::milliseconds kBetweenRemovals{1};

}  // namespace

Status CatalogRemovals::check_unpinned(std::string_view tenant, const SegmentId& id,
                                       const std::vector<SegmentId>& all) const {
  const std::uint64_t now_ms = clock_.unix_ms();
  for (const SegmentId& each : all) {
    const msg::SessionRow* const session = sessions_.pinned_at(tenant, each, now_ms);
    if (!session) continue;
    return Status::conflict("segment " + id.hex() + ": session '" + session->name +
                            "' is pinned, and its tip " + session->tip.hex() +
                            " is this segment or its descendant; remove the session or unpin it "
                            "first (precisctl session unpin)");
  }
  return {};
}

// Takes ids from the end of `left`, which lists parents before children. A taken segment has no
// children except those taken before it. Together they have at most kLayersOfRemoval layers and
// kBlocksOfRemoval blocks, or are a single segment. Segments that are removed already are skipped.
// If a segment has a new child, `left` is cleared.
std::vector<SegmentId> CatalogRemovals::last_of(std::vector<SegmentId>& left) const {
  std::vector<SegmentId> some;
  std::unordered_set<SegmentId> going;
  for (std::size_t layers = 0, blocks = 0; !left.empty(); left.pop_back()) {
    const SegmentId& each = left.back();
    const SegmentNode* const node = tree_.find(each);
    if (!node) continue;
    layers += node->row->layer_bytes.size();
    blocks += node->row->blocks.size();
    const bool is_much = layers > kLayersOfRemoval || blocks > kBlocksOfRemoval;
    if (!some.empty() && is_much) break;
    const auto goes = [&](const SegmentId& child) { return going.contains(child); };
    if (!std::ranges::all_of(tree_.children(each), goes)) {
      left.clear();
      break;
    }
    some.push_back(each);
    going.insert(each);
  }
  return some;
}

// Removes leaves first, in changes of bounded size, so that other changes run in between. A crash
// or failure leaves a smaller, valid tree.
Result<msg::Removed> CatalogRemovals::remove(std::string_view tenant, const SegmentId& asked,
                                             bool recursive, std::vector<SegmentId>* gone,
                                             msg::KvEvent::Cause cause) {
  msg::Removed removed;
  std::vector<SegmentId> left, done;  // left: parents first; done: children first
  Status status;
  for (bool first = true; status.ok(); first = false) {
    if (!first) clock_.sleep(kBetweenRemovals);
    std::lock_guard changing(changes_);
    if (!first && !tree_.find_current(asked)) break;  // another request removed it
    PRECIS_ASSIGN(const SegmentNode* const node, find_any(tenant, asked));
    // Between two changes, the segment may be consolidated into another one.
    const SegmentId id = node->row->id;
    if (const auto& children = tree_.children(id); !recursive && !children.empty()) {
      return Status::conflict("segment " + id.hex() + " has " +
                              counted(children.size(), "child", "children") + ", the first is " +
                              children.front().hex() +
                              "; remove its descendants first, or with it (--recursive)");
    }
    std::vector<SegmentId> some;
    if (left.empty()) {
      left = tree_.subtree(id);
      status = check_unpinned(tenant, id, left);
      if (!status.ok()) break;
      some.assign(left.rbegin(), left.rend());
    }
    // Rows from disk may form a cycle of parents: then they are removed together.
    if (auto last = last_of(left); !last.empty() || some.empty()) some = std::move(last);
    if (some.empty()) continue;  // a put added a child meanwhile
    status = check_unpinned(tenant, id, some);
    if (status.ok()) status = remove_some(tenant, some, cause, removed);
    if (status.ok()) done.insert(done.end(), some.begin(), some.end());
    // A segment that was put again may also be a part of a consolidated one.
    const bool more = recursive && tree_.find_current(asked);
    if (!done.empty() && done.back() == id && !more) break;
  }
  if (gone) gone->assign(done.rbegin(), done.rend());
  if (status.ok()) return removed;
  if (done.empty()) return status;
  return status.with_context("removed " + counted(done.size(), "segment") + " below " +
                             asked.hex() + ", but not the segment itself");
}

// None of these segments has children except those earlier in `some`.
Status CatalogRemovals::remove_some(std::string_view tenant, const std::vector<SegmentId>& some,
                                    msg::KvEvent::Cause cause, msg::Removed& removed) {
  const std::uint64_t now_ms = clock_.unix_ms();
  Change change;
  std::vector<msg::SessionRow> without_tip;
  std::uint64_t bytes = 0;
  std::vector<Row> rows;
  for (const SegmentId& each : some) {
    rows.push_back(tree_.find(each)->row);
    const SegmentRow& row = *rows.back();
    change.erase_segment(row);
    if (is_marked(each)) change.erase(Table::kMeta, quarantine_key(each));
    bytes += row.stored_bytes;
    sessions_.each_at(tenant, each, now_ms, [&](const msg::SessionRow& present) {
      msg::SessionRow& session = without_tip.emplace_back(present);
      session.tip = {};
      session.tip_end = 0;
      session.updated_unix_ms = now_ms;
      change.put_session(tenant, session);
    });
  }
  SegmentLeases::Removal removal(leases_, std::move(rows), /*may_wait=*/true);
  // If a power loss brought a segment back here, it would be shared again.
  PRECIS_TRY(write(std::move(change), in_shards() ? Durability::kFsync : Durability::kWal));

  std::unique_lock lock(state_);
  removal.applied();
  for (msg::SessionRow& session : without_tip) sessions_.put(tenant, std::move(session));
  for (const SegmentId& each : some) {
    tree_.erase(each);
    marks_.erase(each);
    marks_to_save_.erase(each);
  }
  tell(cause);
  removed.segments += some.size();
  removed.bytes += bytes;
  return {};
}

bool CatalogRemovals::quarantine(const SegmentRow& row) {
  std::lock_guard changing(changes_);
  const SegmentNode* const node = tree_.find(row.id);
  if (!node || *node->row != row) return false;
  if (node->quarantined) return true;
  {
    std::unique_lock lock(state_);  // Take it out of service first, even if the store fails.
    tree_.quarantine(row.id);
    tell(msg::KvEvent::Cause::kDamaged);
  }
  marks_to_save_.insert(row.id);
  // If this write fails, the next successful change writes the mark.
  (void)write({}, Durability::kWal);
  return true;
}

}  // namespace precis

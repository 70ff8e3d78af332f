#include "cachesvc/catalog/segment_tree.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include "cachesvc/catalog/faithful.h"
#include "precis/limits.h"

namespace precis {

void SegmentTree::put(std::shared_ptr<const SegmentRow> row, Durability durability,
                      std::uint64_t commit) {
  const SegmentId id = row->id;
  const auto present = nodes_.find(id);
  const bool known = present != nodes_.end();
  if (known && keeps_place(present->second, *row)) {
    return replace(present->second, std::move(row), durability, commit);
  }
  quarantine(id);  // A row must not change while the index holds it.
  SegmentNode& node = nodes_[id];
  if (known) {
    subtract(node);
    leave_parent(*node.row);  // a split changes the parent
    if (node.pins > 0) add_pins(node.row->parent, -1);
  } else {
    const auto pinned = pinned_tips_.find(id);
    node.pins = pinned == pinned_tips_.end() ? 0 : pinned->second;
    for (const SegmentId& child : children(id)) node.pins += nodes_.at(child).pins > 0 ? 1 : 0;
  }
  if (!row->parent.is_null()) children_[row->parent].push_back(id);
  take(node, std::move(row), durability, commit);
  if (node.pins > 0) add_pins(node.row->parent, 1);
  refresh(id);
  const SegmentRow& own = *node.row;
  if (!own.parent.is_null() || node.in_service || find_model_(own.tenant, own.model)) return;
  waiting_[{own.tenant, own.model}].push_back(id);
}

// Whether the segment, with this row, stays in service and where it is in the index.
bool SegmentTree::keeps_place(const SegmentNode& node, const SegmentRow& row) const {
  const SegmentRow& old = *node.row;
  const bool is_same = node.in_service && old.tenant == row.tenant && old.model == row.model &&
                       old.root == row.root && old.parent == row.parent && old.begin == row.begin &&
                       old.end == row.end && old.blocks == row.blocks && old.tail == row.tail;
  const ModelSpec* const model = is_same ? find_model_(row.tenant, row.model) : nullptr;
  const SegmentRow* const parent = node.parent ? node.parent->row.get() : nullptr;
  return model && check_segment_row(row, *model, parent).ok();
}

// For a row with which the segment keeps its place. Its descendants stay in the index, and only
// their values that depend on the whole chain are updated. So a trim of a segment with a large
// subtree is cheap.
void SegmentTree::replace(SegmentNode& node, std::shared_ptr<const SegmentRow> row,
                          Durability durability, std::uint64_t commit) {
  note(node);
  const ModelSpec& model = *find_model_(row->tenant, row->model);
  const bool passes_on = node.row->plan.total() != row->plan.total() ||
                         node.faithful_ppm != faithful_ppm(*row, node.parent, model);
  std::vector<SegmentNode*> changed{&node};  // parents before children
  for (std::size_t i = 0; passes_on && i < changed.size(); ++i) {
    for (const SegmentId& id : children(changed[i]->row->id)) {
      if (SegmentNode& child = nodes_.at(id); child.in_service) changed.push_back(&child);
    }
  }
  for (const SegmentNode* const each : changed) index_.begin_change(*each);
  subtract(node);
  take(node, std::move(row), durability, commit);
  for (SegmentNode* const each : changed) follow_chain(*each, model);
  for (const SegmentNode* const each : changed) index_.end_change(*each);
}

void SegmentTree::take(SegmentNode& node, std::shared_ptr<const SegmentRow> row,
                       Durability durability, std::uint64_t commit) {
  stored_bytes_ += row->stored_bytes;
  original_bytes_ += row->original_bytes;
  kept_bytes_ += precis::kept_bytes(*row);
  node.hits = row->hits;
  node.last_used_unix_ms = row->last_used_unix_ms;
  node.priority = row->priority;
  node.ttl_seconds = row->ttl_seconds;
  node.expected_unix_ms = row->expected_unix_ms;
  node.row = std::move(row);
  for (const SegmentId& former : node.row->former) former_[former] = node.row->id;
  tenants_[node.row->tenant].take_in(node);
  node.quarantined = false;
  node.durability = durability;
  node.commit = commit;
}

void SegmentTree::quarantine(const SegmentId& id) {
  const auto at = nodes_.find(id);
  if (at == nodes_.end()) return;
  at->second.quarantined = true;
  refresh(id);
}

void SegmentTree::erase(const SegmentId& id) {
  quarantine(id);  // It and all its descendants leave the index.
  const auto at = nodes_.find(id);
  if (at == nodes_.end()) return;
  const auto row = at->second.row;
  const bool pinned = at->second.pins > 0;
  subtract(at->second);
  const auto tenant = tenants_.find(row->tenant);
  if (tenant->second.totals().segments == 0) tenants_.erase(tenant);
  leave_parent(*row);
  nodes_.erase(at);
  if (pinned) add_pins(row->parent, -1);
}

void SegmentTree::pin(const SegmentId& tip, int by) {
  if (tip.is_null()) return;
  const auto pinned = pinned_tips_.try_emplace(tip, 0).first;
  pinned->second += static_cast<std::uint64_t>(by);
  if (pinned->second == 0) pinned_tips_.erase(pinned);
  add_pins(tip, by);
}

// Changes the pins of a segment, and those of its ancestors up to the first that stays as pinned as
// it was.
void SegmentTree::add_pins(const SegmentId& id, int by) {
  for (auto at = nodes_.find(id); at != nodes_.end(); at = nodes_.find(at->second.row->parent)) {
    SegmentNode& node = at->second;
    const bool was = node.pins > 0;
    node.pins += static_cast<std::uint64_t>(by);
    if (was == (node.pins > 0)) return;
    const auto tenant = tenants_.find(node.row->tenant);
    if (tenant != tenants_.end()) tenant->second.pinned_or_not(node);
  }
}

std::uint64_t SegmentTree::pinned_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, segments] : tenants_) bytes += segments.totals().pinned_bytes;
  return bytes;
}

std::uint64_t SegmentTree::unpinned_bytes(const SegmentId& tip) const {
  std::uint64_t bytes = 0;
  const SegmentNode* node = find(tip);
  // Rows from disk may form a cycle of parents.
  for (std::uint32_t i = 0; node && node->pins == 0 && i < limits::kChainSegmentsMax; ++i) {
    bytes += node->row->stored_bytes;
    node = find(node->row->parent);
  }
  return bytes;
}

void SegmentTree::leave_parent(const SegmentRow& row) {
  const auto siblings = children_.find(row.parent);
  if (siblings == children_.end()) return;
  // Searches from the end, because a removal takes children in that order.
  auto& ids = siblings->second;
  const auto same = std::find(ids.rbegin(), ids.rend(), row.id);
  if (same != ids.rend()) ids.erase(std::next(same).base());
  if (ids.empty()) children_.erase(siblings);
}

void SegmentTree::subtract(const SegmentNode& node) {
  stored_bytes_ -= node.row->stored_bytes;
  original_bytes_ -= node.row->original_bytes;
  kept_bytes_ -= precis::kept_bytes(*node.row);
  for (const SegmentId& former : node.row->former) {
    const auto at = former_.find(former);
    if (at != former_.end() && at->second == node.row->id) former_.erase(at);
  }
  tenants_.find(node.row->tenant)->second.take_out(node);
}

const TenantSegments* SegmentTree::of_tenant(std::string_view tenant) const {
  const auto at = tenants_.find(tenant);
  return at == tenants_.end() ? nullptr : &at->second;
}

void SegmentTree::model_added(std::string_view tenant, const Digest& model) {
  const auto waiting = waiting_.extract({std::string(tenant), model});
  if (waiting.empty()) return;
  for (const SegmentId& id : waiting.mapped()) {
    if (nodes_.contains(id)) refresh(id);
  }
}

const SegmentNode* SegmentTree::find(const SegmentId& id) const {
  const auto at = nodes_.find(id);
  return at == nodes_.end() ? nullptr : &at->second;
}

const SegmentNode* SegmentTree::find_current(const SegmentId& id) const {
  if (const SegmentNode* const node = find(id)) return node;
  const auto at = former_.find(id);
  return at == former_.end() ? nullptr : find(at->second);
}

const std::vector<SegmentId>& SegmentTree::children(const SegmentId& id) const {
  static const std::vector<SegmentId> kNone;
  const auto at = children_.find(id);
  return at == children_.end() ? kNone : at->second;
}

std::vector<SegmentId> SegmentTree::subtree(const SegmentId& id) const {
  std::vector<SegmentId> all{id};
  std::unordered_set<SegmentId> seen{id};  // rows from disk may form a cycle of parents
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const SegmentId& next : children(all[i])) {
      if (seen.insert(next).second) all.push_back(next);
    }
  }
  return all;
}

const SegmentNode* SegmentTree::parent_in_service(const SegmentRow& row) const {
  const SegmentNode* const parent = find(row.parent);
  return parent && parent->in_service ? parent : nullptr;
}

bool SegmentTree::may_serve(const SegmentNode& node) const {
  const SegmentRow& row = *node.row;
  const SegmentNode* const parent = parent_in_service(row);
  if (node.quarantined || (!row.parent.is_null() && !parent)) return false;
  if (parent && parent->depth >= limits::kChainSegmentsMax) return false;
  const ModelSpec* const model = find_model_(row.tenant, row.model);
  return model && check_segment_row(row, *model, parent ? parent->row.get() : nullptr).ok();
}

void SegmentTree::note(const SegmentNode& node) {
  if (!recording_) return;
  const auto& row = node.row;
  if (before_.try_emplace(row->id, node.in_service ? row : nullptr).second) {
    changed_.push_back(row->id);
  }
}

std::vector<SegmentTree::Change> SegmentTree::take_changes() {
  std::vector<Change> changes;
  for (const SegmentId& id : std::exchange(changed_, {})) {
    const SegmentNode* const node = find(id);
    Change change{std::move(before_.at(id)), node && node->in_service ? node : nullptr};
    if (change.before != (change.after ? change.after->row : nullptr)) {
      changes.push_back(std::move(change));
    }
  }
  before_.clear();
  return changes;
}

void SegmentTree::enter_service(SegmentNode& node) {
  note(node);
  const SegmentRow& row = *node.row;
  node.parent = parent_in_service(row);
  node.depth = (node.parent ? node.parent->depth : 0) + 1;
  const ModelSpec& model = *find_model_(row.tenant, row.model);
  follow_chain(node, model);
  node.block_tokens = model.block_tokens;
  node.whole_only = model.hides_tokens(row.end - row.begin);
  if (!row.blocks.empty()) {
    node.boundary = row.blocks.back();
  } else {
    node.boundary = node.parent ? node.parent->boundary : row.root;
  }
  node.in_service = true;
  ++in_service_;
  tenants_.at(row.tenant).entered_service();
  index_.insert(node);
}

// Sets what depends on the rows of its whole chain.
void SegmentTree::follow_chain(SegmentNode& node, const ModelSpec& model) {
  const SegmentRow& row = *node.row;
  node.chain_entries = (node.parent ? node.parent->chain_entries : 0) + row.plan.total();
  node.faithful_ppm = faithful_ppm(row, node.parent, model);
}

void SegmentTree::leave_service(SegmentNode& node) {
  note(node);
  index_.erase(node);
  node.in_service = false;
  node.parent = nullptr;
  --in_service_;
  tenants_.find(node.row->tenant)->second.left_service();
}

// Updates the service state of `id` and its descendants by may_serve(), parents first.
void SegmentTree::refresh(const SegmentId& id) {
  std::vector<SegmentId> changed{id};
  for (std::size_t i = 0; i < changed.size(); ++i) {
    SegmentNode& node = nodes_.at(changed[i]);
    const bool serve = may_serve(node);
    if (serve == node.in_service) continue;
    if (serve) {
      enter_service(node);
    } else {
      leave_service(node);
    }
    const std::vector<SegmentId>& next = children(changed[i]);
    changed.insert(changed.end(), next.begin(), next.end());
  }
}

}  // namespace precis

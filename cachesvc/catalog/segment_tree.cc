#include "cachesvc/catalog/segment_tree.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include "cachesvc/base/counted.h"
#include "cachesvc/catalog/faithful.h"
#include "precis/limits.h"

namespace precis {
namespace {

Status bad_row(const SegmentRow& row, const std::string& problem) {
  return Status::invalid("segment " + row.id.hex() + ": " + problem);
}

std::string expected(std::string_view field, std::uint64_t is, std::uint64_t must_be) {
  return std::string(field) + " is " + std::to_string(is) + ", must be " + std::to_string(must_be);
}

// Measured with millions of each: a block's digest in its row and its boundary in the index, a
// layer's size and its location in the store, and the rest of a segment.
constexpr std::uint64_t kBlockBytes = 272, kLayerBytes = 160, kSegmentBytes = 2048;
constexpr std::uint64_t kFormerBytes = 96;  // in the row, and in the map of a node-based table

}  // namespace

std::uint64_t kept_bytes(const SegmentRow& row) {
  const std::size_t texts =
      row.tenant.size() + row.adapter.size() + row.recipe.size() + row.preset.size();
  return kSegmentBytes + texts + row.blocks.size() * kBlockBytes +
         2 * row.tail.size() * sizeof(TokenId) + row.layer_bytes.size() * kLayerBytes +
         row.plan.counts.size() * sizeof(std::uint32_t) + row.former.size() * kFormerBytes;
}

Status check_segment_row(const SegmentRow& row, const ModelSpec& model, const SegmentRow* parent) {
  if (row.begin >= row.end || row.end > limits::kPathTokensMax) {
    return bad_row(row, "tokens [" + std::to_string(row.begin) + ", " + std::to_string(row.end) +
                            ") are empty or end past " + std::to_string(limits::kPathTokensMax));
  }
  const std::uint32_t begin = parent ? parent->end : 0;
  if (row.begin != begin) return bad_row(row, expected("begin", row.begin, begin));
  if (parent &&
      (parent->root != row.root || parent->tenant != row.tenant || parent->model != row.model)) {
    return bad_row(row, "its parent " + parent->id.hex() + " has another root");
  }
  const std::uint32_t blocks = row.end / model.block_tokens - row.begin / model.block_tokens;
  if (row.blocks.size() != blocks) {
    return bad_row(row, expected("number of block digests", row.blocks.size(), blocks));
  }
  if (row.tail.size() != row.end % model.block_tokens) {
    return bad_row(
        row, expected("number of tail tokens", row.tail.size(), row.end % model.block_tokens));
  }
  if (row.layer_bytes.size() != model.num_layers) {
    return bad_row(row, expected("number of layers", row.layer_bytes.size(), model.num_layers));
  }
  if (row.plan.num_layers != model.num_layers || row.plan.num_kv_heads != model.num_kv_heads ||
      row.plan.counts.size() != std::size_t{model.num_layers} * model.num_kv_heads) {
    return bad_row(row, "its plan does not have " + counted(model.num_layers, "layer") + " and " +
                            counted(model.num_kv_heads, "KV head"));
  }
  return {};
}

void SegmentTree::put(std::shared_ptr<const SegmentRow> row, Durability durability,
                      std::uint64_t commit) {
  const SegmentId id = row->id;
  const bool known = nodes_.contains(id);
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
  stored_bytes_ += row->stored_bytes;
  original_bytes_ += row->original_bytes;
  kept_bytes_ += precis::kept_bytes(*row);
  node.hits = row->hits;
  node.last_used_unix_ms = row->last_used_unix_ms;
  node.priority = row->priority;
  node.ttl_seconds = row->ttl_seconds;
  node.expected_unix_ms = row->expected_unix_ms;
  node.row = std::move(row);
  for (const SegmentId& former : node.row->former) former_[former] = id;
  tenants_[node.row->tenant].take_in(node);
  if (node.pins > 0) add_pins(node.row->parent, 1);
  node.quarantined = false;
  node.durability = durability;
  node.commit = commit;
  refresh(id);
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
  const auto tenant = tenants_.find(node.row->tenant);
  tenant->second.take_out(node);
  if (tenant->second.totals().segments == 0) tenants_.erase(tenant);
}

const TenantSegments* SegmentTree::of_tenant(std::string_view tenant) const {
  const auto at = tenants_.find(tenant);
  return at == tenants_.end() ? nullptr : &at->second;
}

void SegmentTree::model_added(const Digest& model) {
  for (const auto& [id, node] : nodes_) {
    if (node.row->parent.is_null() && node.row->model == model) refresh(id);
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
  node.chain_entries = (node.parent ? node.parent->chain_entries : 0) + row.plan.total();
  const ModelSpec& model = *find_model_(row.tenant, row.model);
  node.faithful_ppm = faithful_ppm(row, node.parent, model);
  node.block_tokens = model.block_tokens;
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

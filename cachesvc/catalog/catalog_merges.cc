#include "cachesvc/catalog/catalog_merges.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "cachesvc/catalog/catalog_keys.h"
#include "cachesvc/catalog/faithful.h"
#include "precis/limits.h"

namespace precis {
namespace {

bool is_alike(const SegmentRow& a, const SegmentRow& b) {
  return a.model == b.model && a.adapter == b.adapter && a.recipe == b.recipe &&
         a.budget == b.budget && a.trimmed.has_value() == b.trimmed.has_value();
}

// Sets the values of `row` that readers change to the strongest of its former segments.
void take_use(std::span<const SegmentNode* const> run, SegmentRow& row) {
  bool decays = true;
  for (const SegmentNode* const node : run) {
    row.hits = std::max<std::uint64_t>(row.hits, node->hits);
    row.last_used_unix_ms = std::max<std::uint64_t>(row.last_used_unix_ms, node->last_used_unix_ms);
    row.priority = std::max<std::uint32_t>(row.priority, node->priority);
    row.ttl_seconds = std::max<std::uint64_t>(row.ttl_seconds, node->ttl_seconds);
    row.expected_unix_ms = std::max<std::uint64_t>(row.expected_unix_ms, node->expected_unix_ms);
    decays = decays && node->ttl_seconds != 0;
  }
  if (!decays) row.ttl_seconds = 0;  // a segment without a TTL does not decay
}

}  // namespace

bool CatalogMerges::has_session(const SegmentNode& node) const {
  bool found = false;
  sessions_.each_at(node.row->tenant, node.row->id, clock_.unix_ms(),
                    [&](const msg::SessionRow&) { found = true; });
  return found;
}

bool CatalogMerges::may_merge(const SegmentNode& node) const {
  const SegmentRow& row = *node.row;
  if (!node.in_service || is_volatile(node)) return false;
  const bool is_part = row.whole_entries != 0;
  if (is_part && (row.whole_begin != row.begin || row.whole_end != row.end)) return false;
  const Budget::Kind kind = row.trimmed.value_or(row.budget).kind;
  return kind == Budget::Kind::kRatio || kind == Budget::Kind::kAll;
}

bool CatalogMerges::is_faithful_from(const SegmentNode& node) const {
  std::vector<const SegmentNode*> nodes{&node};
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i]->faithful_ppm != kFaithful || i >= limits::kChainSegmentsMax) return false;
    const auto children = tree_.children(nodes[i]->row->id);
    if (nodes.size() + children.size() > limits::kChainSegmentsMax) return false;
    for (const SegmentId& child : children) {
      nodes.push_back(tree_.find(child));
    }
  }
  return true;
}

bool CatalogMerges::may_join(const SegmentNode& node, const SegmentNode& last, bool mixes) const {
  return may_merge(node) && is_alike(*node.row, *last.row) &&
         (mixes || node.row->trimmed == last.row->trimmed) &&
         node.faithful_ppm == last.faithful_ppm && tree_.children(node.row->id).size() == 1 &&
         !has_session(node);
}

std::vector<Catalog::Row> CatalogMerges::mergeable(std::string_view tenant, const SegmentId& tip) {
  std::lock_guard changing(changes_);
  const SegmentNode* const node = tree_.find(tip);
  if (!node || node->row->tenant != tenant || !node->in_service || !node->parent) return {};
  const SegmentNode& last = *node->parent;
  if (!may_merge(last)) return {};
  const auto recipe = parse_recipe(last.row->recipe);
  if (!recipe.ok() || recipe->partition_keep_ppm > 0) return {};
  const bool mixes = is_faithful_from(last);
  const ModelSpec& model = models_.at({last.row->tenant, last.row->model}).spec;
  std::vector<Row> run;
  for (const SegmentNode* each = &last; each; each = each->parent) {
    if (each->row->begin < recipe->min_entries) break;
    if (each != &last && !may_join(*each, last, mixes)) break;
    // A merged segment that hides tokens could not be matched where one of the run ends.
    if (model.hides_tokens(last.row->end - each->row->begin)) break;
    run.push_back(each->row);
  }
  std::reverse(run.begin(), run.end());
  return run.size() < 2 ? std::vector<Row>() : run;
}

Result<bool> CatalogMerges::merge(std::span<const Row> run, const Part& into) {
  std::lock_guard changing(changes_);
  std::vector<const SegmentNode*> nodes;
  for (const Row& row : run) {
    const SegmentNode* const node = tree_.find(row->id);
    if (!node || !node->in_service || *node->row != *row) return false;
    if (!nodes.empty() && node->parent != nodes.back()) return false;
    nodes.push_back(node);
  }
  const SegmentNode& last = *nodes.back();
  const bool mixes = is_faithful_from(last);
  for (const SegmentNode* const node : nodes) {
    if (node == &last ? !may_merge(last) : !may_join(*node, last, mixes)) return false;
  }
  const ModelSpec& model = models_.at({last.row->tenant, last.row->model}).spec;
  const SegmentNode* const parent = nodes.front()->parent;
  PRECIS_TRY(check_segment_row(into.row, model, parent ? parent->row.get() : nullptr));
  const auto is_size = [](const Layer& layer, std::uint64_t bytes) {
    return layer.records.size() == bytes;
  };
  if (into.row.id != last.row->id || into.row.tip != last.row->tip ||
      into.row.parent != nodes.front()->row->parent ||
      !std::ranges::equal(into.layers, into.row.layer_bytes, is_size)) {
    return Status::invalid("segment " + into.row.id.hex() + " is not what its run becomes");
  }
  PRECIS_TRY(store_merged(nodes, into));
  return true;
}

Status CatalogMerges::store_merged(std::span<const SegmentNode* const> run, const Part& into) {
  const auto stored = std::make_shared<SegmentRow>(into.row);
  SegmentRow& row = *stored;
  take_use(run, row);
  Durability durability = Durability::kWal;
  std::vector<Row> rows;
  for (const SegmentNode* const node : run) {
    rows.push_back(node->row);
    durability =
        std::max(durability, node->commit <= hardened_ ? Durability::kFsync : node->durability);
  }
  SegmentLeases::Removal removal(leases_, rows, /*may_wait=*/true);
  const auto is_known = [&](const SegmentLeases::Version& version) {
    return leases_.knows(version) ||
           (row.shard && SegmentLeases::Version::of(*rows.back()) == version);  // as in a commit
  };
  while (is_known(SegmentLeases::Version::of(row))) ++row.created_unix_ms;
  Change change;
  change.remove_objects_of(*rows.back());
  change.put_segment(row);
  for (std::uint32_t l = 0; l < into.layers.size(); ++l) {
    change.put_layer(row, l, into.layers[l].records, into.layers[l].staged);
  }
  rows.pop_back();  // the last one's id stays
  for (const Row& gone : rows) change.erase_segment(*gone);
  PRECIS_TRY(write(std::move(change), durability));

  std::unique_lock lock(state_);
  removal.applied();
  // In this order, no block is without a segment, and no pin is lost.
  tree_.put(stored, durability, ++commits_);
  for (auto gone = rows.rbegin(); gone != rows.rend(); ++gone) tree_.erase((*gone)->id);
  tell(msg::KvEvent::Cause::kConsolidated);
  return {};
}

}  // namespace precis

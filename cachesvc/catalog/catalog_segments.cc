// Segments: matching, reading, removal and quarantine. Commits: catalog_commits.cc.
#include <algorithm>
#include <chrono>
#include <thread>
#include <unordered_set>

#include "cachesvc/base/counted.h"
#include "cachesvc/catalog/catalog_impl.h"
#include "cachesvc/catalog/catalog_keys.h"

namespace precis {
namespace {

// Layers of the segments that one change removes, and the pause between two such changes, in which
// other changes can run.
constexpr std::size_t kLayersOfRemoval = 4096;
constexpr std::chrono::milliseconds kBetweenRemovals{1};

}  // namespace

// ---- paths --------------------------------------------------------------------------------------

std::vector<Catalog::Row> CatalogImpl::chain_of(const SegmentNode* tip) {
  std::vector<Row> chain;
  for (; tip; tip = tip->parent) chain.push_back(tip->row);
  std::reverse(chain.begin(), chain.end());
  return chain;
}

std::vector<Catalog::Link> CatalogImpl::match(std::string_view tenant, const TokenPath& path,
                                              std::uint32_t faithful_ppm) const {
  std::shared_lock lock(state_);
  const auto match = tree_.index().longest(path, faithful_ppm);
  std::vector<Link> links;
  if (!match || match->segment->row->tenant != tenant) return links;
  for (Row& row : chain_of(match->segment)) {
    const std::uint32_t end = row->end;
    links.push_back({std::move(row), end});
  }
  links.back().matched_end = match->end;
  return links;
}

std::vector<Catalog::Row> CatalogImpl::parents(std::string_view tenant, const TokenPath& path,
                                               std::uint32_t faithful_ppm) const {
  std::shared_lock lock(state_);
  const SegmentNode* const tip = tree_.index().last_whole(path, faithful_ppm);
  if (!tip || tip->row->tenant != tenant) return {};
  return chain_of(tip);
}

Result<const SegmentNode*> CatalogImpl::find_segment(std::string_view tenant,
                                                     const SegmentId& id) const {
  const SegmentNode* const node = tree_.find(id);
  if (!node || node->row->tenant != tenant) {
    return Status::not_found("segment " + id.hex() + " is not stored");
  }
  if (!node->in_service) {
    return Status::corruption("segment " + id.hex() +
                              " is out of service: its stored bytes, or those it stands on, failed "
                              "a check; put it again or remove it");
  }
  return node;
}

Result<Catalog::Row> CatalogImpl::segment(std::string_view tenant, const SegmentId& id) const {
  std::shared_lock lock(state_);
  PRECIS_ASSIGN(const SegmentNode* const node, find_segment(tenant, id));
  return node->row;
}

Result<Catalog::AnySegment> CatalogImpl::stored_segment(std::string_view tenant,
                                                        const SegmentId& id) const {
  std::shared_lock lock(state_);
  const SegmentNode* const node = tree_.find(id);
  if (!node || node->row->tenant != tenant) {
    return Status::not_found("segment " + id.hex() + " is not stored");
  }
  return AnySegment{node->row, node->quarantined};
}

Result<std::vector<Catalog::Row>> CatalogImpl::chain(std::string_view tenant,
                                                     const SegmentId& id) const {
  std::shared_lock lock(state_);
  PRECIS_ASSIGN(const SegmentNode* const node, find_segment(tenant, id));
  return chain_of(node);
}

// The shared lock on state_ keeps the rows unchanged until their leases are granted.
std::uint32_t CatalogImpl::lease(std::string_view tenant, std::span<const Link> links,
                                 std::uint32_t ms) {
  std::vector<Row> rows;
  std::shared_lock lock(state_);
  for (const Link& link : links) {
    const auto node = find_segment(tenant, link.row->id);
    if (!node.ok() || (*node)->row != link.row) return 0;
    rows.push_back(link.row);
  }
  return leases_.grant(rows, ms);
}

// ---- reading ------------------------------------------------------------------------------------

Status CatalogImpl::peek_layer(const SegmentRow& row, std::uint32_t layer, MutableBytes into) {
  if (layer >= row.layer_bytes.size() || into.size() != row.layer_bytes[layer]) {
    return Status::invalid("segment " + row.id.hex() + ": layer " + std::to_string(layer) + " of " +
                           std::to_string(row.layer_bytes.size()) + " into " +
                           std::to_string(into.size()) + " B");
  }
  return store_.read_into(payload_key(row.id, layer), into);
}

Status CatalogImpl::read_layer(const SegmentRow& row, std::uint32_t layer, MutableBytes into) {
  Status status = peek_layer(row, layer, into);
  if (status.code() != StatusCode::kNotFound) return status;
  // A removal may have reached the store but not yet memory, or another put may have followed it.
  // With changes_ held, store and memory agree.
  std::lock_guard changing(changes_);
  if (!tree_.find(row.id)) return Status::not_found("segment " + row.id.hex() + " was removed");
  status = peek_layer(row, layer, into);
  if (status.code() != StatusCode::kNotFound) return status;
  return Status::corruption("segment " + row.id.hex() + ": the payload of layer " +
                            std::to_string(layer) + " is missing");
}

// ---- remove and quarantine ----------------------------------------------------------------------

Status CatalogImpl::check_unpinned(std::string_view tenant, const SegmentId& id,
                                   const std::vector<SegmentId>& all) const {
  const std::uint64_t now_ms = clock_.unix_ms();
  for (const SegmentId& each : all) {
    const msg::SessionRow* const session = sessions_.pinned_at(tenant, each, now_ms);
    if (!session) continue;
    return Status::invalid(
        "segment " + id.hex() + ": session '" + session->name + "' is pinned and its tip " +
        session->tip.hex() +
        " stands on it; remove the session or unpin it first (precisctl session unpin)");
  }
  return {};
}

// Takes ids from the end of `left`, which lists parents before children. A taken segment has no
// children except those taken before it. Together they have at most kLayersOfRemoval layers, or are
// a single segment. Segments that are removed already are skipped. If a segment has a new child,
// `left` is cleared.
std::vector<SegmentId> CatalogImpl::last_of(std::vector<SegmentId>& left) const {
  std::vector<SegmentId> some;
  std::unordered_set<SegmentId> going;
  for (std::size_t layers = 0; !left.empty(); left.pop_back()) {
    const SegmentId& each = left.back();
    const SegmentNode* const node = tree_.find(each);
    if (!node) continue;
    layers += node->row->layer_bytes.size();
    if (!some.empty() && layers > kLayersOfRemoval) break;
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
Result<msg::Removed> CatalogImpl::remove(std::string_view tenant, const SegmentId& id,
                                         bool recursive, std::vector<SegmentId>* gone) {
  msg::Removed removed;
  std::vector<SegmentId> left, done;  // left: parents first; done: children first
  Status status;
  for (bool first = true; status.ok(); first = false) {
    if (!first) std::this_thread::sleep_for(kBetweenRemovals);
    std::lock_guard changing(changes_);
    const SegmentNode* const node = tree_.find(id);
    if (!node && !first) break;  // another request removed it
    if (!node || node->row->tenant != tenant) {
      return Status::not_found("segment " + id.hex() + " is not stored");
    }
    if (const auto& children = tree_.children(id); !recursive && !children.empty()) {
      return Status::invalid("segment " + id.hex() + ": " +
                             counted(children.size(), "segment stands", "segments stand") +
                             " directly on it, the first is " + children.front().hex() +
                             "; remove what stands on it first, or with it (--recursive)");
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
    if (status.ok()) status = remove_some(tenant, some, removed);
    if (status.ok()) done.insert(done.end(), some.begin(), some.end());
    if (!done.empty() && done.back() == id) break;
  }
  if (gone) gone->assign(done.rbegin(), done.rend());
  if (status.ok()) return removed;
  if (done.empty()) return status;
  return status.with_context(counted(done.size(), "segment") + " that stood on " + id.hex() +
                             " went, it stays");
}

// None of these segments has children except those earlier in `some`.
Status CatalogImpl::remove_some(std::string_view tenant, const std::vector<SegmentId>& some,
                                msg::Removed& removed) {
  const std::uint64_t now_ms = clock_.unix_ms();
  Change change;
  std::vector<msg::SessionRow> without_tip;
  std::uint64_t bytes = 0;
  std::vector<Row> rows;
  for (const SegmentId& each : some) {
    rows.push_back(tree_.find(each)->row);
    const SegmentRow& row = *rows.back();
    change.erase(Table::kSegments, segment_key(each));
    for (std::uint32_t l = 0; l < row.layer_bytes.size(); ++l) {
      change.erase(Table::kPayload, payload_key(each, l));
    }
    if (is_marked(each)) change.erase(Table::kMeta, quarantine_key(each));
    bytes += row.stored_bytes;
    sessions_.each_at(tenant, each, now_ms, [&](const msg::SessionRow& present) {
      msg::SessionRow& session = without_tip.emplace_back(present);
      session.tip = {};
      session.tip_end = 0;
      session.updated_unix_ms = now_ms;
      change.put(Table::kSessions, session_key(tenant, session.name),
                 encode(StoredSession{std::string(tenant), session}));
    });
  }
  SegmentLeases::Leaving leaving(leases_, std::move(rows), /*may_wait=*/true);
  PRECIS_TRY(write(std::move(change), Durability::kWal));

  std::unique_lock lock(state_);
  leaving.left();
  for (msg::SessionRow& session : without_tip) sessions_.put(tenant, std::move(session));
  for (const SegmentId& each : some) {
    const SegmentRow& row = *tree_.find(each)->row;
    const auto model = models_.find({row.tenant, row.model});
    if (model != models_.end()) --model->second.segments;
    tree_.erase(each);
    marks_.erase(each);
    marks_to_save_.erase(each);
  }
  removed.segments += some.size();
  removed.bytes += bytes;
  return {};
}

bool CatalogImpl::is_marked(const SegmentId& id) const {
  return marks_.contains(id) || marks_to_save_.contains(id);
}

bool CatalogImpl::quarantine(const SegmentRow& row) {
  std::lock_guard changing(changes_);
  const SegmentNode* const node = tree_.find(row.id);
  if (!node || *node->row != row) return false;
  if (node->quarantined) return true;
  {
    std::unique_lock lock(state_);  // Take it out of service first, even if the store fails.
    tree_.quarantine(row.id);
  }
  marks_to_save_.insert(row.id);
  // If this write fails, the next successful change writes the mark.
  (void)write({}, Durability::kWal);
  return true;
}

// ---- descriptions for users ---------------------------------------------------------------------

msg::SegmentInfo CatalogImpl::describe(const SegmentNode& node, bool with_plan) const {
  const SegmentRow& row = *node.row;
  msg::SegmentInfo info;
  info.id = row.id;
  info.parent = row.parent;
  info.model = row.model;
  info.adapter = row.adapter;
  info.begin = row.begin;
  info.end = row.end;
  info.recipe = row.recipe;
  info.preset = row.preset;
  info.budget = row.budget;
  info.trimmed = row.trimmed;
  info.parent_read = row.parent_read;
  info.entries = row.plan.total();
  info.original_bytes = row.original_bytes;
  info.stored_bytes = row.stored_bytes;
  info.compress_seconds = row.compress_seconds;
  info.created_unix_ms = row.created_unix_ms;
  info.hits = node.hits;
  info.children = static_cast<std::uint32_t>(tree_.children(row.id).size());
  info.out_of_service = !node.in_service;
  if (with_plan) info.plan = row.plan;
  return info;
}

Result<msg::SegmentInfo> CatalogImpl::info(std::string_view tenant, const SegmentId& id,
                                           bool with_plan) const {
  std::shared_lock lock(state_);
  const SegmentNode* const node = tree_.find(id);
  if (!node || node->row->tenant != tenant) {
    return Status::not_found("segment " + id.hex() + " is not stored");
  }
  return describe(*node, with_plan);
}

void CatalogImpl::count_hit(const SegmentId& id) {
  std::shared_lock lock(state_);
  const SegmentNode* const node = tree_.find(id);
  if (!node) return;
  ++node->hits;
  save_hits_later(*node, id);
}

}  // namespace precis

// Segments: matching, reading, removing, taking out of service. Commits: catalog_commits.cc.
#include <algorithm>

#include "cachesvc/base/counted.h"
#include "cachesvc/catalog/catalog_impl.h"
#include "cachesvc/catalog/catalog_keys.h"

namespace precis {

// ---- paths --------------------------------------------------------------------------------------

std::vector<Catalog::Row> CatalogImpl::chain_of(const SegmentNode* tip) {
  std::vector<Row> chain;
  for (; tip; tip = tip->parent) chain.push_back(tip->row);
  std::reverse(chain.begin(), chain.end());
  return chain;
}

std::vector<Catalog::Link> CatalogImpl::match(std::string_view tenant,
                                              const TokenPath& path) const {
  std::shared_lock lock(state_);
  const auto match = tree_.index().longest(path);
  std::vector<Link> links;
  if (!match || match->segment->row->tenant != tenant) return links;
  for (Row& row : chain_of(match->segment)) {
    const std::uint32_t end = row->end;
    links.push_back({std::move(row), end});
  }
  links.back().matched_end = match->end;
  return links;
}

std::vector<Catalog::Row> CatalogImpl::parents(std::string_view tenant,
                                               const TokenPath& path) const {
  std::shared_lock lock(state_);
  const SegmentNode* const tip = tree_.index().last_whole(path);
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

// ---- reading ------------------------------------------------------------------------------------

Status CatalogImpl::peek_layer(const SegmentRow& row, std::uint32_t layer, MutableBytes into) {
  if (layer >= row.layer_bytes.size() || into.size() != row.layer_bytes[layer]) {
    return Status::invalid("segment " + row.id.hex() + ": layer " + std::to_string(layer) + " of " +
                           std::to_string(row.layer_bytes.size()) + " into " +
                           std::to_string(into.size()) + " B");
  }
  return store_.read_into(Table::kPayload, payload_key(row.id, layer), into);
}

Status CatalogImpl::read_layer(const SegmentRow& row, std::uint32_t layer, MutableBytes into) {
  Status status = peek_layer(row, layer, into);
  if (status.code() != StatusCode::kNotFound) return status;
  // A removal may have reached the store and not yet memory, or be followed by another put. What
  // the two say while nothing changes is what counts.
  std::lock_guard changing(changes_);
  if (!tree_.find(row.id)) return Status::not_found("segment " + row.id.hex() + " was removed");
  status = peek_layer(row, layer, into);
  if (status.code() != StatusCode::kNotFound) return status;
  return Status::corruption("segment " + row.id.hex() + ": the payload of layer " +
                            std::to_string(layer) + " is missing");
}

// ---- remove and quarantine ----------------------------------------------------------------------

Status CatalogImpl::check_childless(const SegmentId& id) const {
  const auto& children = tree_.children(id);
  if (children.empty()) return {};
  return Status::invalid("segment " + id.hex() + ": " +
                         counted(children.size(), "segment stands", "segments stand") +
                         " directly on it, the first is " + children.front().hex() +
                         "; remove what stands on it first, or with it (--recursive)");
}

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

Result<msg::Removed> CatalogImpl::remove(std::string_view tenant, const SegmentId& id,
                                         bool recursive, std::vector<SegmentId>* gone) {
  std::lock_guard changing(changes_);
  const SegmentNode* const node = tree_.find(id);
  if (!node || node->row->tenant != tenant) {
    return Status::not_found("segment " + id.hex() + " is not stored");
  }
  if (!recursive) PRECIS_TRY(check_childless(id));
  const std::vector<SegmentId> all = tree_.subtree(id);
  PRECIS_TRY(check_unpinned(tenant, id, all));

  Change change;
  msg::Removed removed;
  for (const SegmentId& each : all) {
    const SegmentRow& row = *tree_.find(each)->row;
    change.erase(Table::kSegments, segment_key(each));
    for (std::uint32_t l = 0; l < row.layer_bytes.size(); ++l) {
      change.erase(Table::kPayload, payload_key(each, l));
    }
    if (is_marked(each)) change.erase(Table::kMeta, quarantine_key(each));
    ++removed.segments;
    removed.bytes += row.stored_bytes;
  }
  const std::uint64_t now_ms = clock_.unix_ms();
  std::vector<msg::SessionRow> without_tip;
  for (const SegmentId& each : all) {
    sessions_.each_at(tenant, each, now_ms, [&](const msg::SessionRow& present) {
      msg::SessionRow& session = without_tip.emplace_back(present);
      session.tip = {};
      session.tip_end = 0;
      session.updated_unix_ms = now_ms;
      change.put(Table::kSessions, session_key(tenant, session.name),
                 encode(StoredSession{std::string(tenant), session}));
    });
  }
  PRECIS_TRY(write(std::move(change), Durability::kWal));

  std::unique_lock lock(state_);
  for (msg::SessionRow& session : without_tip) sessions_.put(tenant, std::move(session));
  for (auto each = all.rbegin(); each != all.rend(); ++each) {  // Children before their parents.
    const SegmentRow& row = *tree_.find(*each)->row;
    const auto model = models_.find({row.tenant, row.model});
    if (model != models_.end()) --model->second.segments;
    tree_.erase(*each);
    marks_.erase(*each);
    marks_to_save_.erase(*each);
  }
  if (gone) *gone = all;
  return removed;
}

bool CatalogImpl::quarantine(const SegmentRow& row) {
  std::lock_guard changing(changes_);
  const SegmentNode* const node = tree_.find(row.id);
  if (!node || *node->row != row) return false;
  if (node->quarantined) return true;
  {
    std::unique_lock lock(state_);  // Out of service first, whatever the store says.
    tree_.quarantine(row.id);
  }
  marks_to_save_.insert(row.id);
  // If this write fails the mark waits for the next change that does not.
  (void)write({}, Durability::kWal);
  return true;
}

// ---- what people ask ----------------------------------------------------------------------------

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

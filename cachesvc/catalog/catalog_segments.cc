// A page of segments starts after the key of the last row that the previous page examined, so no
// state is kept for a client between pages.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <unordered_map>

#include "cachesvc/catalog/catalog_impl.h"
#include "cachesvc/catalog/catalog_keys.h"
#include "cachesvc/catalog/segment_info.h"
#include "precis/limits.h"

namespace precis {
namespace {

constexpr std::size_t kSegmentIdDigits = 32;
constexpr std::size_t kCandidatesTold = 5;

std::string to_cursor(const TenantSegments::Age& age) {
  std::string cursor(sizeof age.created_unix_ms + age.id.bytes.size(), 0);
  std::memcpy(cursor.data(), &age.created_unix_ms, sizeof age.created_unix_ms);
  std::memcpy(cursor.data() + sizeof age.created_unix_ms, age.id.bytes.data(), age.id.bytes.size());
  return cursor;
}

Result<TenantSegments::Age> to_age(std::string_view cursor) {
  TenantSegments::Age age;
  if (cursor.size() != sizeof age.created_unix_ms + age.id.bytes.size()) {
    return bad_cursor(cursor, "prefixes");
  }
  std::memcpy(&age.created_unix_ms, cursor.data(), sizeof age.created_unix_ms);
  std::memcpy(age.id.bytes.data(), cursor.data() + sizeof age.created_unix_ms, age.id.bytes.size());
  return age;
}

}  // namespace

std::vector<Catalog::Row> CatalogSegments::chain_of(const SegmentNode* tip) {
  std::vector<Row> chain;
  for (; tip; tip = tip->parent) chain.push_back(tip->row);
  std::reverse(chain.begin(), chain.end());
  return chain;
}

std::vector<Catalog::Link> CatalogSegments::match(std::string_view tenant, const TokenPath& path,
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

std::vector<Catalog::Row> CatalogSegments::parents(std::string_view tenant, const TokenPath& path,
                                                   std::uint32_t faithful_ppm) const {
  std::shared_lock lock(state_);
  const SegmentNode* const tip = tree_.index().last_whole(path, faithful_ppm);
  if (!tip || tip->row->tenant != tenant) return {};
  return chain_of(tip);
}

Result<Catalog::Row> CatalogSegments::segment(std::string_view tenant, const SegmentId& id) const {
  std::shared_lock lock(state_);
  PRECIS_ASSIGN(const SegmentNode* const node, find_node(tenant, id));
  return node->row;
}

Result<Catalog::AnySegment> CatalogSegments::stored_segment(std::string_view tenant,
                                                            const SegmentId& id) const {
  std::shared_lock lock(state_);
  PRECIS_ASSIGN(const SegmentNode* const node, find_any(tenant, id));
  return AnySegment{node->row, node->quarantined};
}

Result<std::vector<Catalog::Row>> CatalogSegments::chain(std::string_view tenant,
                                                         const SegmentId& id) const {
  std::shared_lock lock(state_);
  PRECIS_ASSIGN(const SegmentNode* const node, find_node(tenant, id));
  return chain_of(node);
}

// The shared lock on state_ keeps the rows unchanged until their leases are granted.
std::uint32_t CatalogSegments::lease(std::string_view tenant, std::span<const Link> links,
                                     std::uint32_t ms) {
  std::vector<Row> rows;
  std::shared_lock lock(state_);
  for (const Link& link : links) {
    const auto node = find_node(tenant, link.row->id);
    if (!node.ok() || (*node)->row != link.row) return 0;
    rows.push_back(link.row);
  }
  return leases_.grant(rows, ms);
}

Result<Catalog::Row> CatalogSegments::served_segment(std::string_view tenant,
                                                     const SegmentId& id) const {
  auto stored = segment(tenant, id);
  if (stored.status().code() != StatusCode::kNotFound || !in_shards()) return stored;
  Row guest = guests_.find(tenant, id, clock_.monotonic_ns());
  return guest ? std::move(guest) : std::move(stored);
}

Result<Catalog::Row> CatalogSegments::served_now(const Row& row) const {
  return is_guest(*row) ? row : served_segment(row->tenant, row->id);
}

bool CatalogSegments::is_guest(const SegmentRow& row) const {
  return in_shards() && guests_.knows(row);
}

Status CatalogSegments::peek_layer(const SegmentRow& row, std::uint32_t layer, MutableBytes into,
                                   bool* was_here) {
  bool here = true;
  const Status status = read_anywhere(row, layer, into, here);
  if (was_here != nullptr) *was_here = here;
  return status;
}

Status CatalogSegments::read_anywhere(const SegmentRow& row, std::uint32_t layer, MutableBytes into,
                                      bool& was_here) {
  if (layer >= row.layer_bytes.size() || into.size() != row.layer_bytes[layer]) {
    return Status::invalid("segment " + row.id.hex() + ": layer " + std::to_string(layer) + " of " +
                           std::to_string(row.layer_bytes.size()) + " into " +
                           std::to_string(into.size()) + " B");
  }
  was_here = !is_guest(row);
  // The local store may have another version of a guest.
  if (!was_here) return store_.read_shared(object_name(row, layer), into);
  const Status here = store_.read_into(payload_key(row.id, layer), into);
  was_here = here.ok() || !in_shards() || !row.shard;
  if (was_here) return here;
  const Status there = store_.read_shared(object_name(row, layer), into);
  return there.code() == StatusCode::kNotFound ? here : there;
}

// The layer is written before other changes have to wait. If it fails, the next read tries again.
void CatalogSegments::keep_layer(const SegmentRow& row, std::uint32_t layer, Bytes records) {
  if (is_guest(row) || store_.payload_bytes() + records.size() > local_bytes_max_) return;
  const std::shared_ptr<StagedValue> staged = store_.stage({records, nullptr});
  if (!staged->wait().ok()) return;
  std::lock_guard changing(changes_);
  const SegmentNode* const node = tree_.find(row.id);
  if (!node || *node->row != row) return;
  Change change;
  change.put_segment_here(row);
  change.put_borrowed(Table::kPayload, payload_key(row.id, layer), records, staged);
  (void)store_.write(change.batch(), Durability::kMemory);
}

Status CatalogSegments::read_layer(const SegmentRow& row, std::uint32_t layer, MutableBytes into) {
  bool was_here = true;
  Status status = read_anywhere(row, layer, into, was_here);
  if (status.code() != StatusCode::kNotFound) return status;
  // A removal may have reached the store but not yet memory, or another put may have followed it.
  // With changes_ held, store and memory agree.
  std::lock_guard changing(changes_);
  if (!tree_.find(row.id)) return Status::not_found("segment " + row.id.hex() + " was removed");
  status = store_.read_into(payload_key(row.id, layer), into);
  if (status.code() != StatusCode::kNotFound) return status;
  return Status::corruption("segment " + row.id.hex() + ": the payload of layer " +
                            std::to_string(layer) + " is missing");
}

msg::SegmentInfo CatalogSegments::describe(const SegmentNode& node, bool with_plan) const {
  return segment_info(node, tree_.children(node.row->id).size(), with_plan);
}

Result<msg::SegmentInfo> CatalogSegments::info(std::string_view tenant, const SegmentId& id,
                                               bool with_plan) const {
  std::shared_lock lock(state_);
  PRECIS_ASSIGN(const SegmentNode* const node, find_any(tenant, id));
  return describe(*node, with_plan);
}

Result<msg::Segments> CatalogSegments::segments_page(std::string_view tenant,
                                                     const msg::ListPrefixes& request) const {
  std::optional<TenantSegments::Age> after;
  if (!request.after.empty()) {
    PRECIS_ASSIGN(after, to_age(request.after));
  }
  msg::Segments page;
  std::shared_lock lock(state_);
  const TenantSegments* const all = tree_.of_tenant(tenant);
  if (!all) return page;
  const auto& rows = all->by_age();
  const std::size_t limit = std::min(request.limit, limits::kListPageRowsMax);
  std::uint32_t looked_at = 0;
  for (auto row = after ? rows.upper_bound(*after) : rows.begin();
       row != rows.end() && page.rows.size() < limit; ++row) {
    const SegmentNode& node = *row->second;
    if (!request.model || node.row->model == *request.model) {
      page.rows.push_back(describe(node, /*with_plan=*/false));
    }
    const bool full = page.rows.size() == limit || ++looked_at == limits::kListPageScanMax;
    if (!full) continue;
    if (std::next(row) != rows.end()) page.next = to_cursor(row->first);
    break;
  }
  return page;
}

Result<msg::SegmentInfo> CatalogSegments::find_segment(std::string_view tenant,
                                                       std::string_view id_beginning) const {
  const std::string digits(id_beginning);
  const bool is_hex = digits.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (digits.empty() || digits.size() > kSegmentIdDigits || !is_hex) {
    return Status::invalid("'" + digits + "' is not the beginning of a prefix id: give 1 to " +
                           std::to_string(kSegmentIdDigits) + " lower-case hexadecimal digits");
  }
  const std::size_t missing = kSegmentIdDigits - digits.size();
  PRECIS_ASSIGN(const SegmentId first, parse_segment_id(digits + std::string(missing, '0')));
  PRECIS_ASSIGN(const SegmentId last, parse_segment_id(digits + std::string(missing, 'f')));
  std::shared_lock lock(state_);
  std::vector<SegmentId> found;
  if (const TenantSegments* const all = tree_.of_tenant(tenant)) {
    found = all->ids_between(first, last, kCandidatesTold + 1);
  }
  if (found.empty() && first == last) {
    const SegmentNode* const current = tree_.find_current(first);
    if (current && current->row->tenant == tenant) found.push_back(current->row->id);
  }
  if (found.empty()) {
    return Status::not_found("no prefix id begins with '" + digits +
                             "': `precisctl prefix ls` lists them");
  }
  if (found.size() == 1) return describe(*tree_.find(found.front()), /*with_plan=*/false);
  const bool more = found.size() > kCandidatesTold;
  std::string list;
  for (std::size_t i = 0; i < std::min(found.size(), kCandidatesTold); ++i) {
    list += "\n  " + found[i].hex();
  }
  return Status::invalid(
      (more ? "more than " + std::to_string(kCandidatesTold) : std::to_string(found.size())) +
      " prefix ids begin with '" + digits + "', give more digits of one:" + list +
      (more ? "\n  ..." : ""));
}

void CatalogSegments::count_hit(const SegmentId& id) {
  std::shared_lock lock(state_);
  const SegmentNode* const node = tree_.find(id);
  if (!node) return;
  ++node->hits;
  node->last_used_unix_ms = clock_.unix_ms();
  save_use_later(*node, id);
}

void CatalogSegments::hint(std::string_view tenant, const SegmentId& id, const msg::Hints& hints) {
  if (hints == msg::Hints{}) return;
  std::shared_lock lock(state_);
  const SegmentNode* const node = tree_.find(id);
  if (!node || node->row->tenant != tenant) return;
  take_hints(hints, clock_.unix_ms(), *node);
  save_use_later(*node, id);
}

Result<msg::SegmentInfo> CatalogSegments::set_retention(std::string_view tenant,
                                                        const msg::SetRetention& request) {
  std::lock_guard changing(changes_);
  PRECIS_ASSIGN(const SegmentNode* const node, find_node(tenant, request.segment));
  const msg::Hints hints{request.priority, request.ttl_seconds, {}};
  // A crash could lose the payload of a volatile segment, and leave a row that was written now.
  if (!is_volatile(*node)) {
    SegmentRow row = *node->row;
    node->copy_use(row);
    take_hints(hints, clock_.unix_ms(), row);
    Change change;
    change.put_segment(row);
    PRECIS_TRY(write(std::move(change), Durability::kWal));
  }
  take_hints(hints, clock_.unix_ms(), *node);
  save_use_later(*node, node->row->id);
  return describe(*node, /*with_plan=*/false);
}

std::vector<StoredUse> CatalogSegments::stored_uses(std::string_view tenant) const {
  const std::uint64_t now_ms = clock_.unix_ms();
  std::vector<StoredUse> uses;
  std::unordered_map<SegmentId, std::size_t> at;
  std::shared_lock lock(state_);
  // Adds the segment after its ancestors. Rows from disk may form a cycle of parents, so a segment
  // counts as added before its ancestors are.
  std::vector<const SegmentNode*> path;
  const auto add = [&](const SegmentNode& first) {
    for (const SegmentNode* node = &first; node && at.try_emplace(node->row->id, 0).second;) {
      path.push_back(node);
      node = node->row->parent.is_null() ? nullptr : tree_.find(node->row->parent);
    }
    for (; !path.empty(); path.pop_back()) {
      const SegmentNode& node = *path.back();
      at[node.row->id] = uses.size();
      uses.push_back({node.row,
                      node.hits,
                      node.last_used_unix_ms,
                      {node.priority, node.ttl_seconds, node.expected_unix_ms},
                      node.in_service});
    }
  };
  if (tenant.empty()) {
    for (const auto& [id, node] : tree_.nodes()) add(node);
  } else if (const TenantSegments* const own = tree_.of_tenant(tenant)) {
    for (const auto& [age, node] : own->by_age()) add(*node);
  }
  // Children come after their parents: what holds for a child passes on to its parent.
  for (auto use = uses.rbegin(); use != uses.rend(); ++use) {
    sessions_.each_at(use->row->tenant, use->row->id, now_ms, [&](const msg::SessionRow& session) {
      use->in_session = true;
      use->pinned = use->pinned || session.pinned;
    });
    const auto parent = at.find(use->row->parent);
    if (parent == at.end()) continue;
    StoredUse& above = uses[parent->second];
    above.in_session = above.in_session || use->in_session;
    above.pinned = above.pinned || use->pinned;
  }
  return uses;
}

}  // namespace precis

// Paged lists, and the look-up of a segment by the beginning of its id. A page starts after the key
// of the last row that the previous page examined, so no state is kept for a client between pages.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>

#include "cachesvc/catalog/catalog_impl.h"
#include "precis/limits.h"

namespace precis {
namespace {

constexpr std::size_t kSegmentIdDigits = 32;
constexpr std::size_t kCandidatesTold = 5;

Status bad_cursor(std::string_view after, std::string_view of) {
  return Status::invalid("after has " + std::to_string(after.size()) + " B, which no page of " +
                         std::string(of) + " ended with; give `next` of the page before");
}

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

Result<msg::Segments> CatalogImpl::segments_page(std::string_view tenant,
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

Result<msg::SegmentInfo> CatalogImpl::find_segment(std::string_view tenant,
                                                   std::string_view id_beginning) const {
  const std::string digits(id_beginning);
  const bool is_hex = digits.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (digits.empty() || digits.size() > kSegmentIdDigits || !is_hex) {
    return Status::invalid("'" + digits + "' is no beginning of a prefix id: give 1 to " +
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

Result<msg::Sessions> CatalogImpl::sessions_page(std::string_view tenant,
                                                 const msg::ListSessions& request) const {
  msg::Sessions page;
  std::shared_lock lock(state_);
  page.rows = sessions_.page(tenant, request.after, limits::kListPageRowsMax, clock_.unix_ms());
  if (page.rows.size() == limits::kListPageRowsMax) page.next = page.rows.back().name;
  return page;
}

Result<msg::Models> CatalogImpl::models_page(std::string_view tenant,
                                             const msg::ListModels& request) const {
  Digest after{};
  if (!request.after.empty()) {
    if (request.after.size() != after.bytes.size()) return bad_cursor(request.after, "models");
    std::memcpy(after.bytes.data(), request.after.data(), after.bytes.size());
  }
  msg::Models page;
  std::shared_lock lock(state_);
  auto [model, last] = models_of(tenant);
  if (!request.after.empty()) model = models_.upper_bound({std::string(tenant), after});
  for (; model != last; ++model) {
    if (page.rows.size() == limits::kModelPageRowsMax) {
      const Digest& end = page.rows.back().fingerprint;
      page.next.assign(reinterpret_cast<const char*>(end.bytes.data()), end.bytes.size());
      break;
    }
    page.rows.push_back(describe(model->first.second, model->second));
  }
  return page;
}

}  // namespace precis

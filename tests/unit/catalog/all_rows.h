// All rows of a tenant's lists, read page by page.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "cachesvc/catalog/catalog.h"
#include "precis/limits.h"

namespace precis::testing {

inline std::vector<msg::ModelRow> models_of(const Catalog& catalog, std::string_view tenant) {
  std::vector<msg::ModelRow> rows;
  msg::ListModels request;
  do {
    msg::Models page = catalog.models_page(tenant, request).value();
    rows.insert(rows.end(), page.rows.begin(), page.rows.end());
    request.after = page.next;
  } while (!request.after.empty());
  return rows;
}

inline std::vector<msg::SessionRow> sessions_of(const Catalog& catalog, std::string_view tenant) {
  std::vector<msg::SessionRow> rows;
  msg::ListSessions request;
  do {
    msg::Sessions page = catalog.sessions_page(tenant, request).value();
    rows.insert(rows.end(), page.rows.begin(), page.rows.end());
    request.after = page.next;
  } while (!request.after.empty());
  return rows;
}

// Newest first, at most `limit`.
inline std::vector<msg::SegmentInfo> segments_of(
    const Catalog& catalog, std::string_view tenant, std::optional<Digest> model = {},
    std::size_t limit = std::numeric_limits<std::uint32_t>::max()) {
  std::vector<msg::SegmentInfo> rows;
  msg::ListPrefixes request;
  request.model = model;
  do {
    request.limit = static_cast<std::uint32_t>(
        std::min<std::size_t>(limit - rows.size(), limits::kListPageRowsMax));
    msg::Segments page = catalog.segments_page(tenant, request).value();
    rows.insert(rows.end(), page.rows.begin(), page.rows.end());
    request.after = page.next;
  } while (!request.after.empty() && rows.size() < limit);
  return rows;
}

}  // namespace precis::testing

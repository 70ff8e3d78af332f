#include "cachesvc/server/purge.h"

#include "precis/block_digest.h"

namespace precis {
namespace {

constexpr std::uint32_t kSegmentsPerStep = 64;

// An object that is gone already needs no removal.
Status unless_gone(const Status& status) {
  return status.code() == StatusCode::kNotFound ? Status() : status;
}

}  // namespace

Status purge_some(Catalog& catalog, const std::string& tenant, Purged& purged) {
  PRECIS_ASSIGN(const msg::Sessions sessions, catalog.sessions_page(tenant, {}));
  for (const msg::SessionRow& row : sessions.rows) {
    PRECIS_TRY(unless_gone(catalog.remove_session(tenant, row.name)));
    ++purged.rows;
  }
  if (purged.rows > 0) return {};
  msg::ListPrefixes list;
  list.limit = kSegmentsPerStep;
  PRECIS_ASSIGN(const msg::Segments segments, catalog.segments_page(tenant, list));
  for (const msg::SegmentInfo& row : segments.rows) {
    std::vector<SegmentId> gone;
    const auto removed = catalog.remove(tenant, row.id, /*recursive=*/true, &gone);
    purged.payload.insert(purged.payload.end(), gone.begin(), gone.end());
    PRECIS_TRY(unless_gone(removed.status()));
    ++purged.rows;
    if (!removed.ok()) continue;  // an ancestor was removed with it
    purged.removed.segments += removed->segments;
    purged.removed.bytes += removed->bytes;
  }
  if (purged.rows > 0) return {};
  PRECIS_ASSIGN(const msg::Models models, catalog.models_page(tenant, {}));
  for (const msg::ModelRow& row : models.rows) {
    PRECIS_TRY(unless_gone(catalog.remove_model(tenant, row.fingerprint)));
    for (const bool is_gram : {false, true}) {
      purged.payload.push_back(projection_id(tenant, row.fingerprint, is_gram));
    }
    ++purged.rows;
  }
  if (purged.rows > 0) return {};
  PRECIS_ASSIGN(purged.rows, catalog.remove_budgets(tenant));
  return {};
}

}  // namespace precis

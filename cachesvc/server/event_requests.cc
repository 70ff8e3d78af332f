#include "cachesvc/server/event_requests.h"

#include <algorithm>
#include <utility>

namespace precis {

Task<Answer> EventRequests::on(msg::ListEvents request) {
  EventLog& log = caller_.parts.events;
  const std::string& tenant = caller_.tenant.name;
  const std::size_t limit = std::clamp<std::size_t>(request.limit, 1, limits::kListPageRowsMax);
  PRECIS_CO_ASSIGN(EventLog::Place place, log.find(tenant, request.position));
  // The rows that are read now may already show later events. The reader gets these events too,
  // which is harmless: an event states the result of its change.
  while (place.listed && !place.lost) {
    Catalog::StoredPage stored = co_await caller_.listed(
        [&] { return caller_.parts.catalog.stored_events(tenant, *place.listed, limit); });
    const bool is_last = stored.last.is_null();
    msg::Events page{std::move(stored.rows), is_last ? log.position(place.number)
                                                     : log.position(place.number, stored.last)};
    for (msg::KvEvent& row : page.rows) row.position = log.position(place.number, row.segment);
    if (!page.rows.empty()) co_return msg::ReplyBody(std::move(page));
    // A page without rows would tell the reader that it has everything.
    PRECIS_CO_ASSIGN(place, log.find(tenant, page.next));
  }
  if (!place.lost) co_return msg::ReplyBody(log.read(tenant, place.number, limit));
  ++caller_.parts.metrics.events_lost;
  co_return msg::ReplyBody(log.lost(tenant, *place.lost));
}

}  // namespace precis

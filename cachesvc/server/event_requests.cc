#include "cachesvc/server/event_requests.h"

#include <algorithm>
#include <utility>

namespace precis {

Task<Answer> EventRequests::on(msg::ListEvents request) {
  EventLog& log = caller_.parts.events;
  const std::string& tenant = caller_.tenant.name;
  const std::size_t limit = std::clamp<std::size_t>(request.limit, 1, limits::kListPageRowsMax);
  PRECIS_CO_ASSIGN(const EventLog::Place place, log.find(tenant, request.position));
  if (place.lost) {
    ++caller_.parts.metrics.events_lost;
    co_return msg::ReplyBody(log.lost(tenant, *place.lost));
  }
  if (!place.listed) co_return msg::ReplyBody(log.read(tenant, place.number, limit));
  // The rows that are read now may have later events in them. The reader gets these again, which
  // changes nothing: an event says what is so after it.
  Catalog::StoredPage stored = co_await caller_.listed(
      [&] { return caller_.parts.catalog.stored_events(tenant, *place.listed, limit); });
  msg::Events page{std::move(stored.rows), {}};
  for (msg::KvEvent& row : page.rows) row.position = log.position(place.number, row.segment);
  const bool is_last = stored.last.is_null();
  page.next = is_last ? log.position(place.number) : log.position(place.number, stored.last);
  co_return msg::ReplyBody(std::move(page));
}

}  // namespace precis

#include "cachesvc/server/event_log.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <utility>

namespace precis {
namespace {

constexpr std::size_t kEpochDigits = 16;

std::size_t bytes_of(const msg::KvEvent& event) {
  return sizeof event + event.adapter.size() + event.blocks.size() * sizeof(Digest);
}

template <typename Number>
bool parse(std::string_view text, Number& into, int base) {
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, into, base);
  return error == std::errc() && end == last && !text.empty();
}

Status bad_position(std::string_view text, const std::string& why = "") {
  return Status::invalid("the position is '" + std::string(text) + "'" + why +
                         ", must be empty, \"oldest\", \"newest\", or the position of an event or "
                         "of a page");
}

}  // namespace

void EventLog::drop_oldest(Tenant& of) {
  const std::size_t size = bytes_of(*of.kept.front());
  of.kept.pop_front();
  of.bytes -= size;
  bytes_ -= size;
}

void EventLog::forget(const std::string& tenant) {
  const auto at = tenants_.find(tenant);
  if (at == tenants_.end()) return;
  while (!at->second.kept.empty()) drop_oldest(at->second);
  ++activity_;
}

void EventLog::add(const std::string& tenant, msg::KvEvent event) {
  Tenant& of = tenants_[tenant];
  const std::size_t size = bytes_of(event);
  of.kept.push_back(std::make_shared<const msg::KvEvent>(std::move(event)));
  ++of.newest;
  of.bytes += size;
  bytes_ += size;
  while (of.kept.size() > bounds_.events_per_tenant || of.bytes > bounds_.bytes_per_tenant) {
    drop_oldest(of);
  }
  while (bytes_ > bounds_.bytes) {
    drop_oldest(std::ranges::max_element(tenants_, {}, [](const auto& each) {
                  return each.second.bytes;
                })->second);
  }
  ++activity_;
  if (added_ && !of.kept.empty()) added_(tenant, of.newest, of.kept.back());
}

const EventLog::Tenant& EventLog::of(const std::string& tenant) const {
  static const Tenant kNone;
  const auto at = tenants_.find(tenant);
  return at == tenants_.end() ? kNone : at->second;
}

std::string EventLog::position(std::uint64_t number, const std::optional<SegmentId>& listed) const {
  char epoch[kEpochDigits + 1];
  std::snprintf(epoch, sizeof epoch, "%016llx", static_cast<unsigned long long>(epoch_));
  return std::string(epoch) + ":" + std::to_string(number) + (listed ? ":" + listed->hex() : "");
}

Result<EventLog::Place> EventLog::find(const std::string& tenant, std::string_view text) const {
  const Tenant& known = of(tenant);
  if (text.empty()) return Place{known.newest, SegmentId()};
  if (text == "oldest") return Place{known.before_first()};
  if (text == "newest") return Place{known.newest};
  std::uint64_t epoch = 0;
  Place place;
  const std::string_view rest = text.substr(std::min(kEpochDigits, text.size()));
  if (!parse(text.substr(0, kEpochDigits), epoch, 16) || !rest.starts_with(':')) {
    return bad_position(text);
  }
  const std::size_t colon = rest.find(':', 1);
  if (!parse(rest.substr(1, colon - 1), place.number, 10)) return bad_position(text);
  if (colon != rest.npos) {
    auto listed = parse_segment_id(rest.substr(colon + 1));
    if (!listed.ok()) return bad_position(text);
    place.listed = *listed;
  }
  if (epoch != epoch_) {
    place.lost = 0;
  } else if (place.number > known.newest) {
    return bad_position(text, " and the newest event is " + position(known.newest));
  } else if (place.number < known.before_first()) {
    place.lost = known.before_first() - place.number;
  }
  return place;
}

msg::Events EventLog::read(const std::string& tenant, std::uint64_t number,
                           std::size_t limit) const {
  const Tenant& known = of(tenant);
  msg::Events page;
  std::size_t bytes = 0;
  for (; number < known.newest && page.rows.size() < limit; ++number) {
    const msg::KvEvent& event = *known.kept[number - known.before_first()];
    bytes += event.blocks.size() * sizeof(Digest);
    if (!page.rows.empty() && bytes > limits::kEventPageBytes) break;
    page.rows.push_back(event);
    page.rows.back().position = position(number + 1);
  }
  page.next = position(number);
  return page;
}

msg::Events EventLog::lost(const std::string& tenant, std::uint64_t events) const {
  msg::Events page;
  page.next = position(of(tenant).newest, SegmentId());
  msg::KvEvent& told = page.rows.emplace_back();
  told.kind = msg::KvEvent::Kind::kLost;
  told.lost = events;
  told.position = page.next;
  return page;
}

void record_events(Catalog& catalog, EventLoop& loop, Metrics& metrics, EventLog& log) {
  // Changes follow one another, and the loop runs what they post in that order.
  catalog.tell_events([&](std::vector<Catalog::TenantEvent> told) {
    loop.post([&metrics, &log, told = std::move(told)]() mutable {
      for (auto& [tenant, event] : told) {
        ++(event.kind == msg::KvEvent::Kind::kStored    ? metrics.events_stored
           : event.kind == msg::KvEvent::Kind::kTrimmed ? metrics.events_trimmed
                                                        : metrics.events_removed);
        log.add(tenant, std::move(event));
      }
    });
  });
}

}  // namespace precis

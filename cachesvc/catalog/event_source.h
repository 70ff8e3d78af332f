// The catalog's events: what lookups can find, and how it changes.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "precis/messages.h"

namespace precis {

class EventSource {
 public:
  virtual ~EventSource() = default;

  struct TenantEvent {
    std::string tenant;
    msg::KvEvent event;  // without its position
  };
  using EventSink = std::function<void(std::vector<TenantEvent>)>;
  // Calls `sink` after each change of the segments that lookups can find, in the order of the
  // changes. The sink must not wait or call the catalog, whose locks are held. Set it before the
  // first change.
  virtual void tell_events(EventSink sink) = 0;
  struct StoredPage {
    std::vector<msg::KvEvent> rows;  // kind stored
    SegmentId last;                  // the page ends here; null: it is the last page
  };
  // The segments that lookups can find whose id is greater than `after`, by id. A segment that
  // stays in service while the pages are read is on one of them.
  virtual StoredPage stored_events(std::string_view tenant, const SegmentId& after,
                                   std::size_t limit) const = 0;
};

}  // namespace precis

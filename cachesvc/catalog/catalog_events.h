// The part of the catalog that tells what lookups can find. Private to this folder.
#pragma once

#include "cachesvc/catalog/catalog_state.h"

namespace precis {

class CatalogEvents : public virtual CatalogState {
 public:
  void tell_events(EventSink sink) override;
  StoredPage stored_events(std::string_view tenant, const SegmentId& after,
                           std::size_t limit) const override;

 protected:
  void tell(msg::KvEvent::Cause cause) override;

 private:
  EventSink event_sink_;  // none: nobody is told. Written with both locks held
};

}  // namespace precis

// Visits the payload that rows name, in key order.
#pragma once

#include <string>

#include "cachesvc/store/store.h"

namespace precis::testing {

inline Status scan_payload(Store& store, const RowStore::VisitRow& visit) {
  return store.scan(Table::kPayload, [&](std::string_view key, Bytes) -> Status {
    PRECIS_ASSIGN(const std::vector<std::byte> value, store.read(std::string(key)));
    return visit(key, value);
  });
}

}  // namespace precis::testing

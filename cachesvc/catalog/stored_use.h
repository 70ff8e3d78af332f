// The use of a stored segment so far, for decisions about capacity.
#pragma once

#include <cstdint>
#include <memory>

#include "precis/catalog_row.h"

namespace precis {

struct StoredUse {
  std::shared_ptr<const SegmentRow> row;
  std::uint64_t hits = 0;
  std::uint64_t last_used_unix_ms = 0;  // 0: never
  bool in_service = false;
  bool in_session = false;  // it, or a descendant, is the tip of a session
  bool pinned = false;      // and that session is pinned
};

}  // namespace precis

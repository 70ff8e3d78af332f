// The use of stored segments so far, for decisions about capacity and about the totals of sessions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "precis/catalog_row.h"

namespace precis {

// The values that hints have set (SegmentRow has their meaning).
struct Retention {
  std::uint32_t priority = 0;
  std::uint64_t ttl_seconds = 0, expected_unix_ms = 0;
};

// Sets what the hints name in a row, a message or a node of the catalog. Hints count from `now_ms`.
template <typename Segment>
void take_hints(const msg::Hints& hints, std::uint64_t now_ms, Segment& segment) {
  if (hints.priority) segment.priority = *hints.priority;
  if (hints.ttl_seconds) segment.ttl_seconds = *hints.ttl_seconds;
  if (const auto& seconds = hints.expect_reuse_in_seconds) {
    segment.expected_unix_ms = *seconds == 0 ? 0 : now_ms + *seconds * 1000;
  }
}

struct StoredUse {
  std::shared_ptr<const SegmentRow> row;
  std::uint64_t hits = 0;
  std::uint64_t last_used_unix_ms = 0;  // 0: never
  Retention retention;
  bool in_service = false;
  bool in_session = false;  // it, or a descendant, is the tip of a session
  bool pinned = false;      // and that session is pinned
};

// A session's path, for its total.
struct SessionTurns {
  struct Turn {
    std::shared_ptr<const SegmentRow> row;
    bool is_shared = false;  // it is on the path of another session, or several paths continue it
    // It is pinned, out of service, the tip of another session, or several segments continue it.
    bool is_held = false;
  };
  std::optional<Budget> total;
  std::vector<Turn> turns;  // from the root on
};

}  // namespace precis

// A segment as the catalog holds it in memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "precis/catalog_row.h"

namespace precis {

struct SegmentNode {
  std::shared_ptr<const SegmentRow> row;  // shared with readers, which may outlive a removal
  bool quarantined = false;               // its own bytes failed a check
  // The acknowledged durability of the commit, and its number among this process's commits; 0 if
  // the segment was read when the catalog was opened.
  Durability durability = Durability::kFsync;
  std::uint64_t commit = 0;

  // Set while the segment is in service: the segment and its ancestors may be matched and read.
  bool in_service = false;
  const SegmentNode* parent = nullptr;  // null at the root
  std::uint32_t depth = 0;              // segments on its chain, including itself
  std::uint64_t chain_entries = 0;      // kept entries over its chain
  std::uint32_t faithful_ppm = 0;       // of its chain (faithful.h)
  std::uint32_t block_tokens = 0;       // of its model
  bool whole_only = false;              // it can't be matched in part (ModelSpec::hides_tokens())
  Digest boundary;                      // digest of the last whole block on its path, or the root
  std::uint64_t pins = 0;               // pinned sessions at it, and children that have pins
  // Kept by PrefixIndex: false only if no other segment is a candidate where this one is.
  mutable bool has_rivals = false;

  // Updated under a shared lock. They replace those of the row, which is written with later
  // changes.
  mutable std::atomic<std::uint64_t> hits{0};
  mutable std::atomic<std::uint64_t> last_used_unix_ms{0};
  mutable std::atomic<std::uint32_t> priority{0};
  mutable std::atomic<std::uint64_t> ttl_seconds{0}, expected_unix_ms{0};
  mutable std::atomic<bool> use_unsaved{false};

  // Works for a row and for a message.
  template <typename Segment>
  void copy_use(Segment& to) const {
    to.hits = hits;
    to.last_used_unix_ms = last_used_unix_ms;
    to.priority = priority;
    to.ttl_seconds = ttl_seconds;
    to.expected_unix_ms = expected_unix_ms;
  }
};

}  // namespace precis

// One segment as the catalog holds it in memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "precis/catalog_row.h"

namespace precis {

struct SegmentNode {
  std::shared_ptr<const SegmentRow> row;  // shared with readers, who outlive a removal
  bool quarantined = false;               // its own bytes failed a check
  // How well the commit was acknowledged, and its number among this process's commits; 0: read at
  // open.
  Durability durability = Durability::kFsync;
  std::uint64_t commit = 0;

  // Set while the segment is in service: it and all it stands on may be matched and read.
  bool in_service = false;
  const SegmentNode* parent = nullptr;  // null at the root
  std::uint32_t depth = 0;              // segments on its chain, itself included
  std::uint64_t chain_entries = 0;      // kept, over its chain
  std::uint32_t faithful_ppm = 0;       // its chain (faithful.h)
  std::uint32_t block_tokens = 0;       // of its model
  Digest boundary;                      // last whole block's digest on its path, or the root

  // Counted under a shared lock.
  mutable std::atomic<std::uint64_t> hits{0};
  mutable std::atomic<bool> hits_unsaved{false};
};

}  // namespace precis

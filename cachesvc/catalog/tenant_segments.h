// The segments of one tenant, in the orders that requests need, and their totals. So neither a page
// of a list nor a total looks at all segments.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "cachesvc/catalog/segment_node.h"

namespace precis {

// Not thread-safe. Borrows its nodes. Take a node out before its row changes.
class TenantSegments {
 public:
  // Newest first; within one millisecond by id.
  struct Age {
    std::uint64_t created_unix_ms = 0;
    SegmentId id;
    bool operator<(const Age& other) const {
      if (created_unix_ms != other.created_unix_ms) return created_unix_ms > other.created_unix_ms;
      return id < other.id;
    }
  };
  struct Totals {
    std::uint64_t segments = 0, in_service = 0, stored_bytes = 0, original_bytes = 0;
    std::uint64_t pinned_bytes = 0;  // the stored bytes of segments with pins
  };

  void take_in(const SegmentNode& node);
  void take_out(const SegmentNode& node);
  void pinned_or_not(const SegmentNode& node);  // the node has its first pins, or none any more
  void entered_service() { ++totals_.in_service; }
  void left_service() { --totals_.in_service; }

  const Totals& totals() const { return totals_; }
  // The totals of one model's segments, without `in_service` and `pinned_bytes`.
  Totals totals_of(const Digest& model) const;
  const std::map<Age, const SegmentNode*>& by_age() const { return by_age_; }
  // Ids in [first, last], in order, at most `limit` of them.
  std::vector<SegmentId> ids_between(const SegmentId& first, const SegmentId& last,
                                     std::size_t limit) const;

 private:
  static Age age_of(const SegmentNode& node) { return {node.row->created_unix_ms, node.row->id}; }

  Totals totals_;
  std::map<Digest, Totals> of_models_;
  std::map<Age, const SegmentNode*> by_age_;
  std::map<SegmentId, const SegmentNode*> by_id_;
};

}  // namespace precis

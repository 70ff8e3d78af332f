// Finds where on its token path the segment of a put begins: its parent and its id.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "cachesvc/catalog/catalog.h"
#include "cachesvc/pipeline/open_put.h"
#include "cachesvc/pipeline/tenant.h"
#include "precis/block_digest.h"

namespace precis {

class PutPlaces {
 public:
  // `arena_bytes`: the memory that all splits and puts share.
  PutPlaces(const Catalog& catalog, std::size_t arena_bytes)
      : catalog_(catalog), arena_bytes_(arena_bytes) {}

  struct Split {
    SegmentId segment;
    std::uint32_t position = 0;
    SegmentRow row;  // the put's, if the split is done
  };
  struct Found {
    std::optional<Split> split;  // only if the put should begin inside a stored segment
    bool must_split = false;     // because the request names the position
  };
  // Sets the row's place: without a split, or with the one that must be done. `put` has its recipe,
  // the budget that it asks for, and the limit. Any thread, for a put that no other thread knows
  // yet.
  Status find(const Tenant& tenant, const msg::BeginPut& request, const TokenPath& path,
              OpenPut& put, Found& found) const;
  // Returns whether a put of this row adds nothing to what is stored: the segment, or the parts
  // that it was split into, none of them trimmed.
  bool is_stored(const SegmentRow& row) const;
  // Sets the row's place to that of the split, which is done. Changes nothing if it fails.
  Status after_split(const msg::BeginPut& request, OpenPut& put, Found& found) const;

 private:
  std::optional<Split> split_of(const std::vector<Catalog::Link>& links, std::uint32_t end,
                                std::uint32_t begin, const ModelSpec& model) const;
  Status place(const msg::BeginPut& request, const TokenPath& path, const SegmentId& parent,
               std::uint32_t begin, const OpenPut& put, SegmentRow& row) const;

  const Catalog& catalog_;
  const std::size_t arena_bytes_;
};

}  // namespace precis

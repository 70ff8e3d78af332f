// Leases the layers of a chain of segments one after another: from the RAM tier, or read from the
// store, checked whole, and inserted into the RAM tier. Loop thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "cachesvc/base/metrics.h"
#include "cachesvc/base/task.h"
#include "cachesvc/catalog/catalog.h"
#include "cachesvc/pipeline/cold_reads.h"
#include "cachesvc/pipeline/payload_memory.h"
#include "cachesvc/store/hot_tier.h"

namespace precis {

class ChainLayers {
 public:
  // All must outlive this object.
  struct Parts {
    ColdReads& cold;
    PayloadMemory& memory;
    Catalog& catalog;
    HotTier& hot_tier;
    Metrics& metrics;
  };
  using Leases = std::vector<HotTier::Lease>;  // of one layer, one per link
  // Returns whether `now`, the row that replaced a link's row, still holds what the caller reads.
  using Follows = std::function<bool(std::size_t link, const SegmentRow& now)>;

  // `links`: from the root on. `ahead`: how many further layers are leased or read ahead, as far as
  // memory for them is free. Without `follows`, no replacing row is accepted.
  ChainLayers(const Parts& parts, std::vector<Catalog::Row> links, std::uint32_t num_layers,
              Owner owner, std::uint32_t ahead, Follows follows);

  // The rows that are read now. If `follows` accepted a replacing row, that row is here.
  const std::vector<Catalog::Row>& links() const { return links_; }

  // Returns whether a part of a layer that lease() has returned was read from the disk.
  bool was_cold(std::uint32_t layer) const { return cold_[layer]; }

  // Leases the layers in order, and after doubt() the same layer again. kNotFound if a link was
  // removed, or replaced by a row that `follows` does not accept.
  Task<Result<Leases>> lease(std::uint32_t layer);
  // Call this if the layer's leased bytes failed a check. Removes the links from the RAM tier and
  // drops the layers read ahead, so that lease() reads this layer from the store. Returns false if
  // that was done before for this layer.
  Task<bool> doubt(std::uint32_t layer, Leases& leases, const Status& why);
  // Waits for the layers being read ahead and drops them. Required before destruction unless
  // `ahead` is 0.
  Task<void> end();

 private:
  Task<Status> begin(std::uint32_t layer);
  // One lease per link, null if the link's layer is not in the RAM tier.
  Leases find_hot(std::uint32_t layer) const;
  // Reads and checks the layer of every link without a lease, several at a time, each into its own
  // piece of `room`.
  Task<Result<Leases>> fill(std::uint32_t layer, Leases leases, PayloadMemory::Pieces room);
  Task<Status> read(std::uint32_t layer, std::size_t link, PayloadMemory::Pieces::value_type piece,
                    HotTier::Lease& lease);
  bool follow(std::size_t link);

  const Parts parts_;
  std::vector<Catalog::Row> links_;
  const std::uint32_t num_layers_;
  const Owner owner_;
  const std::uint32_t ahead_;
  const Follows follows_;
  std::deque<Started<Result<Leases>>> begun_;  // the next layer, then those read ahead
  std::vector<bool> cold_;                     // [num_layers]
  std::optional<std::uint32_t> doubted_;       // the layer that is read again after doubt()
};

}  // namespace precis

// The layers of a chain of segments, for who walks over them: leased in the RAM tier, or read from
// the store, checked whole, and put into it. On the loop's thread only.
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
  // All outlive it.
  struct Parts {
    ColdReads& cold;
    PayloadMemory& memory;
    Catalog& catalog;
    HotTier& hot_tier;
    Metrics& metrics;
  };
  using Leases = std::vector<HotTier::Lease>;  // of one layer, of every link
  // Whether `now`, which has taken the place of a link's row, does as well.
  using Follows = std::function<bool(std::size_t link, const SegmentRow& now)>;

  // `links`: from the root on. `ahead`: so many further layers are leased, or read, where memory
  // for them is free.
  ChainLayers(const Parts& parts, std::vector<Catalog::Row> links, std::uint32_t num_layers,
              Owner owner, std::uint32_t ahead, Follows follows);

  // As they are read now: where a link was trimmed or put anew, and that does as well, the new row.
  const std::vector<Catalog::Row>& links() const { return links_; }

  // One layer after the other, or the same one again after doubt(). kNotFound where a link has
  // gone, or become what does not do as well.
  Task<Result<Leases>> lease(std::uint32_t layer);
  // What was leased of the layer failed a check: it goes from the RAM tier, and what was read ahead
  // is given back, so that lease() reads it from the store. False where that was done already.
  Task<bool> doubt(std::uint32_t layer, Leases& leases, const Status& why);
  // Waits for what is read ahead and gives it back. Before this goes, wherever `ahead` is not 0.
  Task<void> end();

 private:
  Task<Status> begin(std::uint32_t layer);
  // Null where a link's is cold.
  Leases find_hot(std::uint32_t layer) const;
  // Reads and checks into `room`, a piece each, the links of which there is no lease yet.
  Task<Result<Leases>> fill(std::uint32_t layer, Leases leases, PayloadMemory::Pieces room);
  bool follow(std::size_t link);

  const Parts parts_;
  std::vector<Catalog::Row> links_;
  const std::uint32_t num_layers_;
  const Owner owner_;
  const std::uint32_t ahead_;
  const Follows follows_;
  std::deque<Started<Result<Leases>>> begun_;  // the layer asked for, then those read ahead
  std::optional<std::uint32_t> doubted_;       // a layer that is taken from the disk once more
};

}  // namespace precis

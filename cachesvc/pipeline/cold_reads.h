// Layers from the store, whole and checked: for gets, and to look over what is stored. All methods
// on the loop's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "cachesvc/base/clock.h"
#include "cachesvc/base/log.h"
#include "cachesvc/base/metrics.h"
#include "cachesvc/base/task.h"
#include "cachesvc/catalog/catalog.h"
#include "cachesvc/pipeline/fair_executor.h"
#include "cachesvc/pipeline/payload_memory.h"
#include "cachesvc/pipeline/restore_rate.h"
#include "cachesvc/store/hot_tier.h"

namespace precis {

class ColdReads {
 public:
  // All outlive it.
  struct Parts {
    EventLoop& loop;
    FairExecutor& reads;    // reads and checks
    FairExecutor& storage;  // changes of the catalog
    PayloadMemory& memory;
    Catalog& catalog;
    HotTier& hot_tier;
    RestoreRate& rate;
    Metrics& metrics;
    Log& log;
    const Clock& clock;
  };
  explicit ColdReads(Parts parts) : parts_(std::move(parts)) {}

  // The layer's records. Where they fail a check their segment is out of service before this
  // returns, and the error is kCorruption.
  Task<Result<std::unique_ptr<Arena::Buffer>>> read(const Catalog::Row& row, std::uint32_t layer,
                                                    Owner owner);
  // The same, into memory of row->layer_bytes[layer]. kNotFound if `row` is no longer what is
  // stored, nor leased.
  Task<Status> read_into(const Catalog::Row& row, std::uint32_t layer, MutableBytes into,
                         Owner owner);

  // What is in memory of a prefix failed a check at `layer`: it goes, to be read anew. It was sound
  // when it was read or made, and what the disk has may still be.
  void forget(const std::vector<Catalog::Row>& links, std::uint32_t layer, const Status& why);

  // Reads all of a segment, in service or not, and says what is wrong with its own bytes, if
  // anything is. kNotFound where there is no such segment; other errors where it could not be read
  // for now.
  Task<Result<msg::Checked>> check(Owner owner, SegmentId segment);

 private:
  enum class Of : std::uint8_t { kServed, kAll };  // segments in service alone, or all
  Task<Result<std::unique_ptr<Arena::Buffer>>> read(const Catalog::Row& row, std::uint32_t layer,
                                                    Owner owner, Of of);
  Task<Status> read_into(const Catalog::Row& row, std::uint32_t layer, MutableBytes into,
                         Owner owner, Of of);
  // As the public read_into(), by the lease of a segment that has left; none where there is no
  // such lease.
  Task<std::optional<Status>> read_leased(const Catalog::Row& row, std::uint32_t layer,
                                          MutableBytes into, Owner owner);
  // The row that is stored under the id of `row`.
  Result<Catalog::Row> stored(const SegmentRow& row, Of of) const;
  void report(std::string_view event, const SegmentRow& row, std::uint32_t layer,
              const Status& why);

  const Parts parts_;
  std::size_t under_way_ = 0;  // reads
};

}  // namespace precis

// Reads layers from the store, whole and checked, for gets and for checks of stored segments. Loop
// thread only.
#pragma once

#include <atomic>
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
  // All must outlive this object.
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

  // Reads the layer's records into `into` of row->layer_bytes[layer] bytes. If they fail a check,
  // the segment is out of service before this returns, and the error is kCorruption. kNotFound if
  // `row` is neither the stored row nor leased.
  Task<Status> read_into(const Catalog::Row& row, std::uint32_t layer, MutableBytes into,
                         Owner owner);

  // As read_into(), for a change that replaces the segment: the node's disk keeps no copy of what
  // it reads from the shared storage.
  Task<Status> read_to_change(const Catalog::Row& row, std::uint32_t layer, MutableBytes into,
                              Owner owner);

  // Removes a prefix from the RAM tier, because its bytes there failed a check at `layer`, so that
  // it is read again. The segments stay in service: their bytes were sound when they were read or
  // made, and the bytes on disk may still be.
  void invalidate(const std::vector<Catalog::Row>& links, std::uint32_t layer, const Status& why);

  // Reads all of a segment, in service or not, and returns what is wrong with its own bytes, if
  // anything. kNotFound if there is no such segment; other errors if it cannot be read now.
  Task<Result<msg::Checked>> check(Owner owner, SegmentId segment);

 private:
  // Only segments in service, for a reader or for a change; or all.
  enum class Scope : std::uint8_t { kServed, kChanged, kAll };
  Task<Result<std::unique_ptr<Arena::Buffer>>> read_any(const Catalog::Row& row,
                                                        std::uint32_t layer, Owner owner);
  Task<Status> read_into(const Catalog::Row& row, std::uint32_t layer, MutableBytes into,
                         Owner owner, Scope scope);
  // As the public read_into(), for a removed or replaced segment that a lease keeps readable. None
  // if there is no such lease.
  Task<std::optional<Status>> read_leased(const Catalog::Row& row, std::uint32_t layer,
                                          MutableBytes into, Owner owner);
  // The stored row with the id of `row`.
  Result<Catalog::Row> stored(const Catalog::Row& row, Scope scope) const;
  void report(std::string_view event, const SegmentRow& row, std::uint32_t layer,
              const Status& why);

  const Parts parts_;
  std::atomic<std::size_t> under_way_ = 0;  // reads in progress, on the threads of `reads`
};

}  // namespace precis

// The state of a put in progress, which its stages share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cachesvc/base/metrics.h"
#include "cachesvc/catalog/catalog.h"
#include "cachesvc/pipeline/disk_quota.h"
#include "cachesvc/pipeline/fair_queue.h"
#include "cachesvc/pipeline/joint_put.h"
#include "cachesvc/pipeline/projections.h"
#include "cachesvc/pipeline/put_layer.h"
#include "cachesvc/pipeline/put_room.h"
#include "cachesvc/pipeline/put_times.h"
#include "precis/joiner.h"
#include "precis/kernels.h"

namespace precis {

// Counts a put as in progress, and at its end as committed or aborted.
class PutCount {
 public:
  explicit PutCount(Metrics& metrics) : metrics_(metrics), open_(metrics.puts_open, 1) {
    ++metrics_.puts_begun;
  }
  ~PutCount() { ++(committed ? metrics_.puts_committed : metrics_.puts_aborted); }
  PutCount(const PutCount&) = delete;
  PutCount& operator=(const PutCount&) = delete;
  bool committed = false;

 private:
  Metrics& metrics_;
  const GaugeHold open_;
};

class OpenPut : public std::enable_shared_from_this<OpenPut> {
 public:
  // ---- set when the put begins
  Owner owner;  // the tenant, and the connection that began the put
  ModelSpec model;
  Recipe recipe;
  SegmentRow row;               // for the commit, which sets plan and sizes
  std::uint64_t entries = 0;    // the entries to keep
  Budget asked;                 // by the request, or the default; row.budget is within the limit
  std::optional<Budget> limit;  // in force
  bool takes_fitting_rows = false;  // with_fitting_rows() decides once its tokens are known
  bool already_stored = false;
  Digest joint_name{};                           // by which further writers find the put
  std::shared_ptr<const Profile> profile;        // only if the recipe needs one
  std::vector<Catalog::Projection> projections;  // [num_layers], only if the recipe needs them
  Projections::Part part = Projections::Part::kWeights;
  std::shared_ptr<JointPut> joint;       // shared with the writers that wait
  std::unique_ptr<PutRoom::Place> room;  // the memory reserved for it
  std::size_t observed_bytes = 0;        // see count_observations()
  // The part of the disk limits that its records may take; null once they are stored.
  std::unique_ptr<DiskQuota::Place> disk_quota;
  Clock::Time begun{};  // when it was admitted
  std::unique_ptr<PutCount> count;

  // ---- its layers
  std::vector<PutLayer> layers;
  // Guards what compute threads share: the joiner, and the records and counts of encoded layers.
  std::mutex joining;
  std::unique_ptr<kernels::Joiner> joiner;
  std::atomic<std::uint64_t> compress_ns{0};
  std::shared_ptr<PutTimes> times;  // null unless its first writer is traced

  // ---- its progress, on the loop's thread
  Status failure;  // the first error of any stage; it ends the put
  // When a request of any writer last succeeded, or was rejected for lack of memory. Other refused
  // requests do not count, so that they do not keep the put's memory.
  Clock::Time last_activity{};
  std::size_t requests = 0;        // in progress
  std::size_t compressing = 0;     // compressions in progress
  std::function<void(bool)> idle;  // set while the commit waits until `compressing` is 0
  bool placed = false;             // place_seats() is done
  bool committing = false;
  Durability durability = Durability::kMemory;  // of the commit

  // Counts a request as in progress.
  class Busy {
   public:
    explicit Busy(OpenPut& put) : put_(put) { ++put_.requests; }
    ~Busy() { --put_.requests; }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    OpenPut& put_;
  };

  void fail(const Status& why) {
    if (failure.ok()) failure = why;
  }
  std::uint32_t num_tokens() const { return row.end - row.begin; }
  EntryForm entry_form() const { return EntryForm::of(model, recipe.encoding); }
  // Returns whether a layer's records are final once they are encoded, because no other layer
  // changes them.
  bool final_when_encoded() const { return !recipe.joins_layers() && !recipe.is_cut(); }
  // Returns whether compression reads each row only a few times, so that it takes about as long as
  // a copy.
  bool is_quick() const {
    return !recipe.needs_queries() && !recipe.needs_query_stats() && !recipe.needs_o_proj() &&
           entry_form().values().code != RowCode::kInt4;  // whose transform takes longer
  }
  // The layers that are not complete, for example "layer 3 (queries of only 2 of 8 KV heads),
  // layers 5-29". Empty if all are complete.
  std::string missing_layers() const;

  // ---- sizes in bytes
  // The most that a layer's records take, however its heads share the layer's slots.
  std::size_t records_bytes_max(std::uint32_t layer) const;
  std::size_t projection_bytes(std::uint32_t layer) const;
  // The most that the records of the whole budget take, however layers and heads share it.
  std::size_t entries_bytes_max() const;
  // The most that the put stages at a time: one layer as pushed, with the observations that the
  // recipe reads, one layer's records and projection, and the records of the whole budget.
  std::size_t staged_bytes_max() const;
  // Counts the claimed observations of a layer in `room`, before memory is acquired for them. The
  // client decides how many queries it pushes: those that exceed staged_bytes_max(), and the most
  // that a layer had before, are added.
  void count_observations(const StagedLayer& claimed);
  // The digests, token tail and counts, which the put keeps in addition until it is committed or
  // has failed.
  std::size_t kept_bytes() const;
  void drop_kept();
};

}  // namespace precis

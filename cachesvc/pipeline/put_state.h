// One put under way, as PutPath keeps it between its requests.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "cachesvc/pipeline/joint_put.h"
#include "cachesvc/pipeline/put_path.h"

namespace precis {

// Counts a put as under way, and in the end as aborted unless it was committed.
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

class PutPath::Put : public std::enable_shared_from_this<Put> {
 public:
  struct Layer {
    std::unique_ptr<StagedLayer> staged;  // until compressed
    // Room from the first piece on, filled by compression; shared with the store while it writes.
    std::shared_ptr<Arena::Buffer> records;
    std::shared_ptr<StagedValue> stored;  // of records that the store writes ahead
    // Whether it still reads them; shared with it, which may outlive the put.
    std::shared_ptr<std::atomic<bool>> being_written;
    HotTier::Lease projection;  // of recipes that need one, until compressed
    bool compressed = false;
    // [num_kv_heads], once the records are encoded: from then on they may move.
    std::vector<std::uint32_t> counts;
    bool allocating = false;  // a piece waits for the layer's memory
    std::vector<std::function<void(bool)>> waiting_for_memory;
  };

  Owner owner;  // its tenant, and the connection that began it
  ModelSpec model;
  Recipe recipe;
  SegmentRow row;             // what commit will write; plan and sizes are filled in as layers come
  std::uint64_t entries = 0;  // T, or what a quality target is capped at
  // Over all that layers share while they are compressed: joiner and records, but for those that
  // are being encoded and that no other layer changes.
  std::mutex joining;
  std::unique_ptr<kernels::Joiner> joiner;
  std::vector<std::vector<float>> floors;  // [num_layers], of a quality target
  std::vector<double> mass;                // [num_layers], of a quality target
  bool already_stored = false;
  bool placed = false;  // seats, cut and checksums of what depends on all layers: done once
  bool committing = false;
  Durability durability = Durability::kMemory;  // once committed
  std::shared_ptr<JointPut> joint;              // shared with who waits on it
  Digest joint_name{};                          // by which further writers find it
  std::unique_ptr<PutRoom::Place> room;         // what it was promised, until its layers are gone
  std::vector<Layer> layers;
  Status failure;                  // of any stage behind; ends the put
  std::size_t behind = 0;          // compressions and moves of records under way
  std::function<void(bool)> idle;  // commit waits for them
  std::atomic<std::uint64_t> compress_ns{0};
  // When something of it was taken, from any who write it: what is refused does not keep its
  // memory.
  std::chrono::steady_clock::time_point heard = std::chrono::steady_clock::now();
  std::size_t requests = 0;  // under way
  std::unique_ptr<PutCount> count;
  std::shared_ptr<const Profile> profile;        // of recipes that need one
  std::vector<Catalog::Projection> projections;  // [num_layers], of recipes that need them
  Projections::Part part = Projections::Part::kWeights;

  // A request of it is under way.
  class Busy {
   public:
    explicit Busy(Put& put) : put_(put) { ++put_.requests; }
    ~Busy() { --put_.requests; }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    Put& put_;
  };

  std::uint32_t num_tokens() const { return row.end - row.begin; }
  // No layer to come, and no look at the whole, changes a layer's records.
  bool final_when_encoded() const {
    return !recipe.joins_layers() && !recipe.is_cut() && row.budget.kind != Budget::Kind::kQuality;
  }
  // Compression looks at every row a few times and no more: who pushed it may wait for that as well
  // as for a copy.
  bool is_quick() const {
    return !recipe.needs_queries() && !recipe.needs_query_stats() && !recipe.needs_o_proj();
  }
  // Room for a layer's records, whatever its heads keep of what the layer may keep.
  std::size_t records_bytes_max(std::uint32_t layer) const {
    return kernels::encoded_bytes_max(joiner->slots_wanted(layer), model.num_kv_heads,
                                      model.head_dim, model.dtype);
  }
  std::size_t projection_bytes(std::uint32_t layer) const {
    return projections.empty() ? 0 : Projections::part_bytes(*projections[layer], part);
  }
  // All that the put stages at once: one layer as pushed, one with room for its records, and the
  // budget spread over the others. Observations come on top, as many as the client pushes.
  std::size_t staged_bytes_max() const {
    const StagedLayer pushed(model, recipe, 0, num_tokens());
    const std::size_t scores =
        recipe.needs_scores() ? std::size_t{model.num_kv_heads} * num_tokens() * sizeof(float) : 0;
    std::size_t records = 0;
    for (std::uint32_t l = 0; l < model.num_layers; ++l)
      records = std::max(records, records_bytes_max(l) + projection_bytes(l));
    return pushed.size_bytes(StagedLayer::Part::kEntries) + scores + records + entries_bytes_max();
  }
  // Digests, tail and counts, which it keeps beside that until it is committed or has failed.
  std::size_t kept_bytes() const {
    const std::size_t layer_bytes = sizeof(Layer) + sizeof(std::vector<float>) + sizeof(double) +
                                    3 * sizeof(std::uint32_t) * std::size_t{model.num_kv_heads};
    return row.blocks.size() * sizeof(Digest) + row.tail.size() * sizeof(TokenId) +
           layers.size() * layer_bytes + model.rope_scaling.size();
  }
  void drop_kept() {
    std::vector<Digest>().swap(row.blocks);
    std::vector<TokenId>().swap(row.tail);
    std::vector<Layer>().swap(layers);
    joiner.reset();
  }
  // Of it the budget's part, however it is dealt out.
  std::size_t entries_bytes_max() const {
    return kernels::encoded_bytes_max(entries, model.num_layers * model.num_kv_heads,
                                      model.head_dim, model.dtype);
  }
};

}  // namespace precis

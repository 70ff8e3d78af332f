// One layer of a put: its state, and the memory that it has in that state. A layer passes through
// the states in order, each once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cachesvc/base/arena.h"
#include "cachesvc/pipeline/gate.h"
#include "cachesvc/pipeline/staged_layer.h"
#include "cachesvc/store/hot_tier.h"
#include "cachesvc/store/store.h"

namespace precis {

enum class LayerState : std::uint8_t {
  kAwaited,     // no piece has been pushed
  kClaimed,     // pieces are being pushed
  kStaged,      // all rows are here, or are read in the client's memory; compression runs
  kCompressed,  // the records are encoded; later layers may still cut them back
  kWritten,     // the store writes the final records, or has written them
  kCommitted    // the segment is visible; the hot tier has the records
};

// The event loop's thread moves a layer from state to state. Compute threads fill the records of a
// staged layer, its counts and `stored`; they hold the put's lock.
class PutLayer {
 public:
  LayerState state() const { return state_; }
  bool takes_pieces() const { return state_ <= LayerState::kClaimed; }
  bool is_compressed() const { return state_ >= LayerState::kCompressed; }

  // kAwaited -> kClaimed, before the first piece. `rows` are the memory that pieces fill.
  void begin(std::unique_ptr<StagedLayer> rows, EventLoop& loop);
  // kClaimed -> kStaged, once every piece has arrived, or can be read in the client's memory.
  void stage();
  // kStaged -> kCompressed. Frees the rows and the projection.
  void compress();
  // kCompressed -> kWritten, once the store has the final records.
  void write();
  // kWritten -> kCommitted. Returns the records.
  std::shared_ptr<Arena::Buffer> commit();
  // Frees the rows and the projection of a layer whose compression failed.
  void drop_rows();

  std::unique_ptr<StagedLayer> rows;    // kClaimed and kStaged
  std::unique_ptr<Gate> taking_memory;  // from kClaimed on: one piece at a time takes memory
  HotTier::Lease projection;            // kClaimed and kStaged, if the recipe needs one
  // Memory for the records, from the first piece on. Shared with the store while it writes.
  std::shared_ptr<Arena::Buffer> records;
  std::vector<std::uint32_t> counts;    // [num_kv_heads], once the records are encoded
  std::shared_ptr<StagedValue> stored;  // the records in the store; null until it writes them

 private:
  void advance(LayerState from);

  LayerState state_ = LayerState::kAwaited;
};

}  // namespace precis

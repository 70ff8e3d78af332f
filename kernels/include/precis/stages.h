// The stages of one layer as types, so that they can only be called in order: score() gives a
// ScoredLayer, its order() an OrderedLayer, whose encode() writes the records. They call the
// LayerCompressor (kernels.h) of a backend.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "precis/kernels.h"

namespace precis::kernels {

// A layer whose entries are in their retention order.
class OrderedLayer {
 public:
  OrderedLayer(LayerCompressor& compressor, LayerTurns turns)
      : compressor_(&compressor), turns_(std::move(turns)) {}

  // For the joiner, once.
  LayerTurns take_turns() { return std::move(turns_); }
  // As LayerCompressor::encode(). The last stage.
  Status encode(std::span<const std::uint32_t> counts,
                const std::vector<std::vector<std::uint32_t>>& seats, const SegmentId& segment,
                MutableBytes out) && {
    return compressor_->encode(counts, seats, segment, out);
  }

 private:
  LayerCompressor* compressor_;
  LayerTurns turns_;
};

// A layer whose entries have their scores.
class ScoredLayer {
 public:
  explicit ScoredLayer(LayerCompressor& compressor) : compressor_(&compressor) {}

  // The retention orders, and the layer's first `slots` turns (Joiner::slots_wanted()).
  Result<OrderedLayer> order(std::uint64_t slots) && {
    LayerTurns turns;
    PRECIS_TRY(compressor_->select(slots));
    PRECIS_TRY(compressor_->allocate(turns));
    return OrderedLayer(*compressor_, std::move(turns));
  }

 private:
  LayerCompressor* compressor_;
};

// Checks a layer and scores it. `compressor`, `recipe` and the memory that `input` views must stay
// until encode(), or a stage that fails, has returned. Errors: LayerCompressor::check().
inline Result<ScoredLayer> score(LayerCompressor& compressor, const Recipe& recipe,
                                 const LayerInput& input) {
  PRECIS_TRY(compressor.check(recipe, input));
  PRECIS_TRY(compressor.score());
  return ScoredLayer(compressor);
}

}  // namespace precis::kernels

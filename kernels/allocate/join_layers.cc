#include "kernels/allocate/join_layers.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/allocate/protected_counts.h"
#include "kernels/allocate/turns.h"

namespace precis::kernels {
namespace {

// How many of a layer's entries are protected, and how many are ranked.
struct Capacity {
  std::vector<std::uint64_t> guarded, ranked;  // [num_layers]

  Capacity(const Recipe& recipe, const SegmentDims& dims) {
    const std::vector<std::uint32_t> counts = protected_counts(recipe, dims);
    for (std::uint32_t l = 0; l < dims.num_layers; ++l) {
      guarded.push_back(std::uint64_t{dims.num_kv_heads} * counts[l]);
      ranked.push_back(std::uint64_t{dims.num_kv_heads} * (dims.tokens(l) - counts[l]));
    }
  }
};

// How many seats the first `layers` take.
std::uint64_t dealt(const Deal& deal, std::size_t layers) {
  std::uint64_t seats = 0;
  for (std::size_t l = 0; l < layers; ++l) seats += deal.count(l);
  return seats;
}

class LayersJoiner : public Joiner {
 public:
  LayersJoiner(const Recipe& recipe, const SegmentDims& dims, std::uint64_t entries)
      : recipe_(recipe),
        dims_(dims),
        entries_(entries),
        capacity_(recipe, dims),
        turns_(dims.num_layers),
        counts_(dims.num_layers) {}

  const std::vector<std::uint32_t>& counts(std::uint32_t layer) const override {
    return counts_[layer];
  }

 protected:
  // Keeps the layer's first `slots` turns.
  void cut(std::uint32_t layer, std::uint64_t slots) {
    std::vector<std::uint16_t>& heads = turns_[layer].heads;
    PRECIS_CHECK(slots <= heads.size());
    heads.resize(slots);
    counts_[layer].assign(dims_.num_kv_heads, 0);
    for (const std::uint16_t head : heads) ++counts_[layer][head];
  }

  // The seats of a layer's slots: first its seats in `guarded`, then its seats in `ranked`, which
  // are numbered after the last seat of `guarded`.
  std::vector<std::vector<std::uint32_t>> seats_of(std::uint32_t layer, const Deal& guarded,
                                                   const Deal& ranked) const {
    std::vector<std::uint32_t> slots;
    slots.reserve(turns_[layer].heads.size());
    guarded.append_seats(layer, 0, slots);
    ranked.append_seats(layer, dealt(guarded, dims_.num_layers), slots);
    std::vector<std::vector<std::uint32_t>> seats(dims_.num_kv_heads);
    for (std::uint32_t h = 0; h < dims_.num_kv_heads; ++h) seats[h].reserve(counts_[layer][h]);
    for (std::size_t i = 0; i < turns_[layer].heads.size(); ++i) {
      seats[turns_[layer].heads[i]].push_back(slots[i]);
    }
    return seats;
  }

  const Recipe recipe_;
  const SegmentDims dims_;
  const std::uint64_t entries_;
  const Capacity capacity_;
  std::vector<LayerTurns> turns_;                   // [num_layers]; `heads` shrinks as layers are
                                                    // added
  std::vector<std::vector<std::uint32_t>> counts_;  // [num_layers][num_kv_heads]
};

class KnownLayersJoiner final : public LayersJoiner {
 public:
  KnownLayersJoiner(const Recipe& recipe, const SegmentDims& dims, std::uint64_t entries)
      : LayersJoiner(recipe, dims, entries), guarded_(deal_in_turns(capacity_.guarded, entries)) {
    const std::uint64_t left = entries - dealt(*guarded_, dims.num_layers);
    ranked_ = recipe.layers == LayerAllocator::kUniform
                  ? deal_in_turns(capacity_.ranked, left)
                  : deal_by_averages(pyramid_weights(), capacity_.ranked, left);
  }

  std::uint64_t slots_wanted(std::uint32_t layer) const override {
    return guarded_->count(layer) + ranked_->count(layer);
  }

  void add(std::uint32_t layer, LayerTurns turns) override {
    turns_[layer] = std::move(turns);
    cut(layer, slots_wanted(layer));
  }

  std::vector<std::vector<std::uint32_t>> seats(std::uint32_t layer) const override {
    if (recipe_.is_cut()) return {};
    return seats_of(layer, *guarded_, *ranked_);
  }

 private:
  // D19: integers, so that equal recipes have equal plans everywhere.
  std::vector<float> pyramid_weights() const {
    const std::uint32_t last = dims_.num_layers - 1;
    std::vector<float> weights;
    for (std::uint32_t l = 0; l <= last; ++l) {
      const std::uint64_t e = (2 * std::uint64_t{recipe_.beta} - 1) * (last - l) + l;
      weights.push_back(last == 0 ? 1.0f : static_cast<float>(e));
    }
    return weights;
  }

  std::unique_ptr<Deal> guarded_, ranked_;
};

class WeighedLayersJoiner final : public LayersJoiner {
 public:
  using LayersJoiner::LayersJoiner;

  std::uint64_t slots_wanted(std::uint32_t layer) const override {
    return std::min(entries_, capacity_.guarded[layer] + capacity_.ranked[layer]);
  }

  // The cascade: cuts the segment as if the layers seen were all.
  void add(std::uint32_t layer, LayerTurns turns) override {
    turns_[layer] = std::move(turns);
    seen_.push_back(layer);
    std::sort(seen_.begin(), seen_.end());
    const Shares shares = this->shares();
    const auto guarded = deal_in_turns(shares.guarded, entries_);
    const auto ranked = highest_averages_counts(shares.weights, shares.ranked,
                                                entries_ - dealt(*guarded, seen_.size()));
    for (std::size_t i = 0; i < seen_.size(); ++i) cut(seen_[i], guarded->count(i) + ranked[i]);
  }

  std::vector<std::vector<std::uint32_t>> seats(std::uint32_t layer) const override {
    if (seen_.size() < dims_.num_layers || recipe_.is_cut()) return {};
    if (!guarded_) {
      const Shares shares = this->shares();
      guarded_ = deal_in_turns(shares.guarded, entries_);
      ranked_ = deal_by_averages(shares.weights, shares.ranked,
                                 entries_ - dealt(*guarded_, dims_.num_layers));
    }
    return seats_of(layer, *guarded_, *ranked_);
  }

 private:
  struct Shares {  // of the layers seen, ascending
    std::vector<std::uint64_t> guarded, ranked;
    std::vector<float> weights;
  };
  Shares shares() const {
    Shares shares;
    for (const std::uint32_t layer : seen_) {
      shares.guarded.push_back(capacity_.guarded[layer]);
      shares.ranked.push_back(capacity_.ranked[layer]);
      shares.weights.push_back(turns_[layer].weight);
    }
    return shares;
  }

  std::vector<std::uint32_t> seen_;                 // ascending
  mutable std::unique_ptr<Deal> guarded_, ranked_;  // set by the first seats() after all layers are
                                                    // added
};

}  // namespace

std::unique_ptr<Joiner> join_known_layers(const Recipe& recipe, const SegmentDims& dims,
                                          std::uint64_t entries) {
  return std::make_unique<KnownLayersJoiner>(recipe, dims, entries);
}

std::unique_ptr<Joiner> join_weighed_layers(const Recipe& recipe, const SegmentDims& dims,
                                            std::uint64_t entries) {
  return std::make_unique<WeighedLayersJoiner>(recipe, dims, entries);
}

}  // namespace precis::kernels

// Across layers: which layer's head takes each seat of a segment, and where the budget cuts
// (policies.md, "The joining order"). Layers come in any order. Adding one only takes seats away
// from those before it (the cascade), so what is staged never exceeds the budget (by one entry per
// head, where it ends within a step of ada's guarantee).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "precis/kernels.h"
#include "precis/profile.h"

namespace precis::kernels {

struct SegmentDims {
  std::uint32_t num_layers = 0, num_kv_heads = 0, num_tokens = 0;
  std::uint32_t begin = 0;  // absolute position of the first token
};

class Joiner {
 public:
  // `entries`: the budget T. `profile`: of recipes that need one, else null; it may go afterwards.
  // kInvalidArgument: the segment has more seats than 32 bits number, or the profile's table does
  // not fit its layers and heads.
  static Result<std::unique_ptr<Joiner>> make(const Recipe& recipe, const SegmentDims& dims,
                                              std::uint64_t entries, const Profile* profile);
  // True where make() takes a step for every entry.
  static bool walks_entries(const Recipe& recipe);
  virtual ~Joiner() = default;

  // The most entries that `layer` may keep; how many turns LayerCompressor::allocate is asked for.
  virtual std::uint64_t slots_wanted(std::uint32_t layer) const = 0;

  // Takes a layer in. Each once; the counts of layers before it may shrink.
  virtual void add(std::uint32_t layer, LayerTurns turns) = 0;

  // How many entries of each head's order an added layer keeps by what is known so far.
  virtual const std::vector<std::uint32_t>& counts(std::uint32_t layer) const = 0;

  // The seats of an added layer, [num_kv_heads][counts]. Empty while they depend on layers to come,
  // and for ever where the recipe is a cut (place_cut_seats()).
  virtual std::vector<std::vector<std::uint32_t>> seats(std::uint32_t layer) const = 0;
};

}  // namespace precis::kernels

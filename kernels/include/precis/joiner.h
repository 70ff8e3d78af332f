// The Joiner decides which layer's head takes each seat of a segment, and where the budget cuts
// (policies.md, "The joining order"). Layers may be added in any order. Adding a layer only takes
// entries away from the layers before it (the cascade). So the entries that are kept meanwhile
// never exceed the budget, except by one entry per head if the budget ends within a step of ada's
// guarantee.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "precis/kernels.h"
#include "precis/profile.h"

namespace precis::kernels {

struct SegmentDims {
  std::uint32_t num_layers = 0, num_kv_heads = 0, num_tokens = 0;
  std::uint32_t begin = 0;                  //  absolute position of the first token
  std::vector<std::uint32_t> windows = {};  // ModelSpec::windows

  static SegmentDims of(const ModelSpec& model, std::uint32_t num_tokens, std::uint32_t begin) {
    return {model.num_layers, model.num_kv_heads, num_tokens, begin, model.windows};
  }
  // How many of the segment's last tokens a layer ranks, and the position of the first of them.
  std::uint32_t tokens(std::uint32_t layer) const {
    return visible_tokens(windows, layer, num_tokens);
  }
  std::uint32_t first(std::uint32_t layer) const { return begin + num_tokens - tokens(layer); }
};

class Joiner {
 public:
  // `entries` is the budget T. `profile` is read only during the call, and may be null if the
  // recipe needs no profile. kInvalidArgument: the segment has more seats than 32 bits can number,
  // a needed profile is missing, or the profile's table does not fit the segment's layers and
  // heads.
  static Result<std::unique_ptr<Joiner>> make(const Recipe& recipe, const SegmentDims& dims,
                                              std::uint64_t entries, const Profile* profile);
  // Whether the time that make() takes grows with `entries`.
  static bool walks_entries(const Recipe& recipe);
  virtual ~Joiner() = default;

  // The most entries that `layer` may keep: the number of turns to request from
  // LayerCompressor::select() and allocate().
  virtual std::uint64_t slots_wanted(std::uint32_t layer) const = 0;

  // Adds a layer, each exactly once. The counts of layers added before may shrink.
  virtual void add(std::uint32_t layer, LayerTurns turns) = 0;

  // How many entries of each head's order an added layer keeps, given the layers added so far.
  virtual const std::vector<std::uint32_t>& counts(std::uint32_t layer) const = 0;

  // The seats of an added layer, [num_kv_heads][counts]. Empty while the seats depend on layers
  // that are not added yet, and always empty if the recipe is a cut (place_cut_seats()).
  virtual std::vector<std::vector<std::uint32_t>> seats(std::uint32_t layer) const = 0;
};

}  // namespace precis::kernels

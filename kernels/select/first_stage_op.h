// How many entries the first stage of two_stage chooses (policies/selection.md, "two_stage"; D7).
#pragma once

#include <cstdint>

#include "kernels/allocate/allocate_op.h"
#include "precis/kernels.h"

namespace precis::kernels {

// How many of a head's first `ranked` ranked entries are chosen by score alone. Grows by at most
// one when `ranked` does.
struct FirstStage {
  std::uint64_t share_ppm = 0;
  std::uint64_t counted = 0;  // protected entries, which count inside the share and are chosen
                              // first
  std::uint64_t sure = 0;     // the least number of ranked entries that are chosen by score

  static FirstStage of(const Recipe& recipe, const LayerInput& input,
                       std::uint32_t protected_count) {
    FirstStage stage{recipe.first_stage_ppm};
    if (recipe.count_rule != CountRule::kKvpressDouble) return stage;
    stage.counted = protected_count;
    if (recipe.heads != HeadAllocator::kAda) return stage;
    // kvpress keeps every entry of its guarantee, so stage 2 cannot replace one.
    const std::uint64_t kept =
        input.entries / (std::uint64_t{input.num_layers} * input.num_kv_heads());
    const std::uint64_t safe = recipe.ada_alpha_ppm * kept / kPpm;
    stage.sure = safe > protected_count ? safe - protected_count : 0;
    return stage;
  }
  PRECIS_HOST_DEVICE std::uint64_t operator()(std::uint64_t ranked) const {
    const std::uint64_t share = share_ppm * (ranked + counted) / kPpm;
    const std::uint64_t by_share = share > counted ? share - counted : 0;
    const std::uint64_t given = ranked < sure ? ranked : sure;
    return given > by_share ? given : by_share;
  }
};

}  // namespace precis::kernels

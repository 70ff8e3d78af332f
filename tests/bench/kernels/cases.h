// The measured stages and presets, with the least work that each must do.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/cpu_stages.h"
#include "precis/recipe.h"
#include "tests/bench/kernels/layers.h"
#include "tests/bench/kernels/timing.h"

namespace precis::bench {

// The least that a case must move and compute, by its definition and not by our code.
struct Floor {
  double read_bytes = 0;    // read once, of K, V or both
  double copied_bytes = 0;  // read, and written again
  double flops = 0;         // of matrix products in bf16
  // The additional work of our implementation. A second pass begins only when the first one ends,
  // and the first pass's results are not kept, because they are as large as K and the workspace is
  // at most 5% of K.
  double reread_bytes = 0;  // read again, head by head
  double remade_flops = 0;  // of products computed again
  double exps = 0;          // of both passes
};

struct Row {
  std::string name;  // "score keydiff", "preset ada_snapkv"
  std::string kind;  // ceiling, check, norm, score, select, encode, preset, attend
  std::string preset;
  Seconds seconds;
  Floor floor;
};

// The measured presets, with the least work of their score.
struct PresetFloor {
  std::string name;
  Floor score;
};
std::vector<PresetFloor> preset_floors(const Layers& layers);

struct Plan {
  double keep = 0.2;
  std::size_t runs = 5;
  double seconds = 0.3;
  std::function<bool(const std::string&)> wanted;  // by name
  std::function<void(const std::string&)> began;
};

// Every case, on one layer after another.
std::vector<Row> measure_cases(const kernels::CpuStages& cpu, const Layers& layers,
                               const Plan& plan);

}  // namespace precis::bench

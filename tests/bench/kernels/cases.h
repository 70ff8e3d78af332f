// The stages and presets that are measured, with what each cannot do without.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/cpu_stages.h"
#include "precis/recipe.h"
#include "tests/bench/kernels/layers.h"
#include "tests/bench/kernels/timing.h"

namespace precis::bench {

// What a case must at least move and compute, from its definition and not from our code.
struct Floor {
  double read_bytes = 0;    // read once, of K, V or both
  double copied_bytes = 0;  // read, and written again
  double flops = 0;         // of matrix products in bf16
  // What comes on top, as we do it: a second pass begins when the first one ends, and what the
  // first one made is not kept, for its size is K's and the workspace's at most 5% of that.
  double reread_bytes = 0;  // read again, head by head
  double remade_flops = 0;  // of products made again
  double exps = 0;          // of both passes
};

struct Row {
  std::string name;  // "score keydiff", "preset ada_snapkv"
  std::string kind;  // ceiling, check, norm, score, select, encode, preset
  std::string preset;
  Seconds seconds;
  Floor floor;
};

// Presets that are measured, and what their score cannot do without.
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

// Every case, on one layer after the other.
std::vector<Row> measure_cases(const kernels::CpuStages& cpu, const Layers& layers,
                               const Plan& plan);

}  // namespace precis::bench

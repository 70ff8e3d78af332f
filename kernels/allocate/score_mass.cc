#include "precis/score_mass.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace precis::kernels {

double entry_mass(const Recipe& recipe, float score, float floor) {
  if (!std::isfinite(score)) return 0;
  const float ceiling = recipe.needs_probe() ? std::max(1.0f, floor) : score;
  return static_cast<double>(std::min(score, ceiling)) - floor;
}

LayerMass measure_mass(const Recipe& recipe, std::span<const float> scores,
                       std::uint32_t num_kv_heads) {
  const std::size_t n = scores.size() / num_kv_heads;
  LayerMass measured;
  for (std::size_t h = 0; h < num_kv_heads; ++h) {
    const auto head = scores.subspan(h * n, n);
    float lowest = std::numeric_limits<float>::infinity();
    for (const float s : head) {
      if (std::isfinite(s)) lowest = std::min(lowest, s);
    }
    measured.floors.push_back(std::isfinite(lowest) ? lowest : 0.0f);
    for (const float s : head) measured.mass += entry_mass(recipe, s, measured.floors.back());
  }
  return measured;
}

}  // namespace precis::kernels

#include "precis/score_mass.h"

#include <algorithm>
#include <cmath>

namespace precis::kernels {

double entry_mass(const Recipe& recipe, float score, float floor) {
  if (!std::isfinite(score)) return 0;
  const float ceiling = recipe.needs_probe() ? std::max(1.0f, floor) : score;
  return static_cast<double>(std::min(score, ceiling)) - floor;
}

}  // namespace precis::kernels

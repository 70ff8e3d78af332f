#include "cachesvc/pipeline/session_total.h"

#include <algorithm>
#include <cmath>

namespace precis {
namespace {

constexpr double kBelowShare = 0.95, kStep = 0.8, kLeast = 0.05;
constexpr double kPartsPerMillion = 1e6, kTiny = 1e-9;  // for what arithmetic rounds

// The largest level at most `share` from which whole steps lead to kLeast.
double rounded_down(double share) {
  const double steps = std::floor(std::log(kLeast / share) / std::log(kStep) + kTiny);
  return kLeast / std::pow(kStep, std::max(steps, 0.0));
}

}  // namespace

std::optional<TotalTrim> next_trim(std::span<const TotalTurn> turns, const Budget& total) {
  std::uint64_t stored = 0, full = 0;
  for (const TotalTurn& turn : turns) {
    stored += turn.stored_bytes;
    full += turn.full_bytes;
  }
  const bool is_share = total.kind == Budget::Kind::kRatio;
  const auto all = static_cast<double>(full), value = static_cast<double>(total.value);
  const double limit = is_share ? all * value / kPartsPerMillion : value;
  if (full == 0 || static_cast<double>(stored) <= limit) return std::nullopt;
  const double first = kBelowShare * limit / all;
  for (double level = is_share ? first : rounded_down(first);; level *= kStep) {
    if (level < kLeast + kTiny) level = kLeast;
    const Budget budget =
        Budget::ratio_ppm(static_cast<std::uint32_t>(std::lround(level * kPartsPerMillion)));
    for (std::size_t turn = 0; turn + 1 < turns.size(); ++turn) {
      if (!turns[turn].is_held && turns[turn].can_shrink(budget)) return TotalTrim{turn, budget};
    }
    if (level == kLeast) return std::nullopt;
  }
}

}  // namespace precis

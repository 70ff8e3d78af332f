#include "cachesvc/pipeline/session_total.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace precis {
namespace {

constexpr double kALittleLess = 0.95;
// The largest share of its entries that a trim leaves a turn. Later shares apply only while the
// session is above its limit. With the last one it is within the limit: a turn that is not trimmed
// then keeps less than 1 / kALittleLess times what the target allows.
constexpr std::array kWorthATrim = {0.8, 0.9, kALittleLess};
constexpr double kPartsPerMillion = 1e6;

double limit_of(std::span<const TotalTurn> turns, const Budget& total) {
  const auto value = static_cast<double>(total.value);
  if (total.kind != Budget::Kind::kRatio) return value;
  double full = 0;
  for (const TotalTurn& turn : turns) full += static_cast<double>(turn.full_bytes);
  return full * value / kPartsPerMillion;
}

double stored_bytes(std::span<const TotalTurn> turns) {
  double bytes = 0;
  for (const TotalTurn& turn : turns) bytes += static_cast<double>(turn.stored_bytes);
  return bytes;
}

// The entries that a turn has with at least this score, or had before it was trimmed.
std::uint64_t left_of(const TotalTurn& turn, float score) {
  if (!turn.curve) return turn.entries;
  return std::max(turn.curve->at_least(score), turn.least_entries);
}

// The bytes of turns that keep what has at least this score.
double bytes_at(std::span<const TotalTurn> turns, float score) {
  double bytes = 0;
  for (const TotalTurn& turn : turns) {
    if (turn.entries == 0) continue;
    bytes += static_cast<double>(turn.stored_bytes) * static_cast<double>(left_of(turn, score)) /
             static_cast<double>(turn.entries);
  }
  return bytes;
}

// Maps integers to floats in the same order.
float ordered(std::int32_t key) {
  return std::bit_cast<float>(key < 0 ? key ^ std::numeric_limits<std::int32_t>::max() : key);
}

// The lowest score at which the turns take at most so many bytes; the largest score if none does.
float score_for(std::span<const TotalTurn> turns, double bytes) {
  constexpr auto kLargest = std::bit_cast<std::int32_t>(std::numeric_limits<float>::max());
  std::int64_t low = -std::int64_t{kLargest} - 1, high = kLargest;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (bytes_at(turns, ordered(static_cast<std::int32_t>(middle))) <= bytes) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return ordered(static_cast<std::int32_t>(high));
}

}  // namespace

bool all_fit(std::span<const TotalTurn> turns, const Budget& total) {
  return stored_bytes(turns) <= kALittleLess * limit_of(turns, total);
}

std::vector<TotalTrim> trims_for(std::span<const TotalTurn> turns, const Budget& total) {
  std::vector<TotalTrim> trims;
  if (turns.empty()) return trims;
  const double limit = limit_of(turns, total), target = kALittleLess * limit;
  const auto old = turns.first(turns.size() - 1);
  const float later = score_for(turns, target);  // when the newest turn is old
  const bool is_share = total.kind == Budget::Kind::kRatio;
  const float now = is_share ? later : score_for(old, target - stored_bytes(turns.last(1)));
  std::vector<std::uint64_t> entries;
  for (const TotalTurn& turn : old) entries.push_back(turn.entries);
  const double newest = is_share ? bytes_at(turns.last(1), later) : stored_bytes(turns.last(1));
  double excess = stored_bytes(old) + newest - limit;
  for (const double worth : kWorthATrim) {
    const bool is_first = worth == kWorthATrim.front();
    for (std::size_t i = 0; i < old.size() && (is_first || excess > 0); ++i) {
      const std::uint64_t left = std::max(left_of(old[i], now), left_of(old[i], later) / 2);
      const auto before = static_cast<double>(entries[i]), after = static_cast<double>(left);
      if (left >= entries[i] || after > worth * before) continue;
      entries[i] = left;
      trims.push_back({i, left});
      excess -= static_cast<double>(old[i].stored_bytes) * (before - after) /
                static_cast<double>(old[i].entries);
    }
  }
  return trims;
}

}  // namespace precis

#include "kernels/select/best_tokens.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <span>
#include <utility>

#include "kernels/common/isa.h"
#include "kernels/select/gather_keys.h"
#include "kernels/select/ranked_limits_op.h"

namespace precis::kernels {
namespace {

constexpr std::size_t kSampleSize = 1024;  // of a head that is ranked by itself
constexpr std::size_t kFew = 256;          // at most so many tokens: best_of_few()
constexpr std::size_t kSmall = 192;        // at most so many keys: sort by comparison
constexpr std::size_t kPlaced = 64;        // at most so many keys: place_keys()

// A rank such that probably at least `wanted` of the `total` scores rank at or before it, estimated
// from `sample`. `doubt` widens the bound: 1 is three standard deviations of the sample. A caller
// that finds the bound too narrow doubles `doubt`; in the end the bound is the largest rank.
std::uint32_t rank_bound(std::span<std::uint32_t> sample, std::uint64_t wanted, std::uint64_t total,
                         double doubt) {
  const std::size_t at = sample_index(sample.size(), wanted, total, doubt);
  if (at >= sample.size()) return 0xffffffffu;
  std::nth_element(sample.begin(), sample.begin() + static_cast<std::ptrdiff_t>(at), sample.end());
  return sample[at];
}

// A bound such that the `limit` >= 1 lowest of `ranks`, and ties with the last of them, are at or
// below it, and no others. Builds, bit by bit, the largest value with fewer than `limit` ranks
// below it; ends early if a candidate has exactly `limit` ranks below it.
PRECIS_INLINE std::uint32_t rank_at(const std::uint32_t* ranks, std::size_t count,
                                    std::size_t limit) {
  std::uint32_t found = 0;
  for (std::uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
    const std::uint32_t candidate = found | bit;
    std::uint32_t below = 0;
    for (std::size_t i = 0; i < count; ++i) {
      below += static_cast<std::uint32_t>(ranks[i] < candidate);
    }
    if (below == limit) return candidate - 1;
    if (below < limit) found = candidate;
  }
  return found;
}

// Adds evenly spaced tokens of [first, last) of one head to the sample.
void add_sample(const float* scores, std::uint32_t first, std::uint32_t last, std::size_t size,
                std::vector<std::uint32_t>& sample) {
  const std::size_t count = last - first, taken = std::min(size, count);
  for (std::size_t i = 0; i < taken; ++i) {
    sample.push_back(descending_rank(scores[first + sampled_token(i, count, taken)]));
  }
}

// How many tokens of [first, last) rank at or before `bound`.
PRECIS_INLINE std::size_t count_up_to(const float* scores, std::uint32_t first, std::uint32_t last,
                                      std::uint32_t bound) {
  std::size_t count = 0;
  for (std::uint32_t t = first; t < last; ++t) {
    count += static_cast<std::size_t>(descending_rank(scores[t]) <= bound);
  }
  return count;
}

using Gather = std::size_t (*)(const float*, std::uint32_t, std::uint32_t, std::uint32_t,
                               std::uint64_t*);
Gather gather_loop(Isa isa) {
  if (isa >= Isa::kAvx512) return for_avx512<&gather_up_to<WideKeys>>();
  return for_isa<&gather_up_to<PlainKeys>>(isa);
}

// Radix sort by the upper halves. The lower halves ascend already, and stay ascending among equal
// upper halves. Sorts by the differences from the lowest key, which have fewer digits.
void sort_keys(std::uint64_t* keys, std::size_t count) {
  if (count <= kSmall) {
    std::sort(keys, keys + count);
    return;
  }
  constexpr int kBitsMax = 11, kDigitsMax = 3;
  constexpr std::size_t kBins = std::size_t{1} << kBitsMax;
  std::uint64_t lowest = keys[0], highest = keys[0];
  for (std::size_t i = 1; i < count; ++i) {
    lowest = std::min(lowest, keys[i]);
    highest = std::max(highest, keys[i]);
  }
  const std::uint64_t base = lowest >> 32;
  const int width = std::bit_width((highest >> 32) - base);
  const int digits = (width + kBitsMax - 1) / kBitsMax;
  if (digits == 0) return;
  const int bits = (width + digits - 1) / digits;
  const auto digit = [=](std::uint64_t key, int d) {
    return static_cast<std::size_t>(((key >> 32) - base) >> (d * bits)) &
           ((std::size_t{1} << bits) - 1);
  };
  const auto bins = std::make_unique<std::array<std::array<std::uint32_t, kBins>, kDigitsMax>>();
  for (std::size_t i = 0; i < count; ++i) {
    for (int d = 0; d < digits; ++d) ++(*bins)[static_cast<std::size_t>(d)][digit(keys[i], d)];
  }
  const std::unique_ptr<std::uint64_t[]> other(new std::uint64_t[count]);
  std::uint64_t *from = keys, *to = other.get();
  for (int d = 0; d < digits; ++d) {
    auto& bin = (*bins)[static_cast<std::size_t>(d)];
    std::uint32_t sum = 0;
    for (std::uint32_t& b : bin) sum += std::exchange(b, sum);
    for (std::size_t i = 0; i < count; ++i) to[bin[digit(from[i], d)]++] = from[i];
    std::swap(from, to);
  }
  if (from != keys) std::copy(from, from + count, keys);
}

// Writes keys[..] to out[..] in ascending order: a key's place is the number of keys below it. No
// two keys are equal.
PRECIS_INLINE void place_keys(const std::uint64_t* keys, std::size_t count, std::uint64_t* out) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t below = 0;
    for (std::size_t k = 0; k < count; ++k) below += static_cast<std::uint64_t>(keys[k] < keys[i]);
    out[below] = keys[i];
  }
}

// The best `limit` of at most kFew tokens: rank_at() reads all ranks for each bit.
std::vector<std::uint64_t> best_of_few(const float* scores, std::uint32_t first, std::uint32_t last,
                                       std::size_t limit) {
  const std::size_t total = last - first;
  std::uint32_t ranks[kFew];
  for (std::size_t i = 0; i < total; ++i) ranks[i] = descending_rank(scores[first + i]);
  const std::uint32_t bound =
      limit < total ? for_isa<&rank_at>(detect_isa())(ranks, total, limit) : 0xffffffffu;
  std::uint64_t keys[kFew];
  const std::size_t count =
      PlainKeys::gather(ranks, first, static_cast<std::uint32_t>(total), bound, keys);
  if (count > kPlaced) {
    std::sort(keys, keys + count);
    return {keys, keys + limit};
  }
  std::uint64_t sorted[kPlaced];
  for_isa<&place_keys>(detect_isa())(keys, count, sorted);
  return {sorted, sorted + limit};
}

}  // namespace

std::vector<std::uint64_t> best_keys(const float* scores, std::uint32_t first, std::uint32_t last,
                                     std::size_t limit) {
  const std::size_t total = last - first;
  limit = std::min(limit, total);
  if (limit == 0) return {};
  if (total <= kFew) return best_of_few(scores, first, last, limit);
  const Gather gather = gather_loop(detect_isa());
  const std::unique_ptr<std::uint64_t[]> keys(new std::uint64_t[total]);
  std::size_t count = 0;
  if (limit < total / 4 * 3) {
    std::vector<std::uint32_t> sample;
    add_sample(scores, first, last, kSampleSize, sample);
    for (double doubt = 1; count < limit; doubt *= 2) {
      count = gather(scores, first, last, rank_bound(sample, limit, total, doubt), keys.get());
    }
  } else {
    count = gather(scores, first, last, 0xffffffffu, keys.get());
  }
  sort_keys(keys.get(), count);
  return {keys.get(), keys.get() + limit};
}

void append_best(const float* scores, std::uint32_t first, std::uint32_t last, std::size_t limit,
                 std::vector<std::uint32_t>& order) {
  const std::vector<std::uint64_t> keys = best_keys(scores, first, last, limit);
  const std::size_t before = order.size();
  order.resize(before + keys.size());
  std::ranges::transform(keys, order.begin() + static_cast<std::ptrdiff_t>(before),
                         [](std::uint64_t key) { return static_cast<std::uint32_t>(key); });
}

std::vector<std::size_t> shares_of_best(const float* scores, std::size_t stride,
                                        std::uint32_t num_heads, std::uint32_t first,
                                        std::uint32_t last, std::uint64_t wanted) {
  const std::uint64_t total = std::uint64_t{num_heads} * (last - first);
  std::vector<std::size_t> shares(num_heads, last - first);
  if (wants_nearly_all(wanted, total)) return shares;
  std::vector<std::uint32_t> sample;
  for (std::uint32_t h = 0; h < num_heads; ++h) {
    add_sample(scores + h * stride, first, last, sample_of_head(num_heads), sample);
  }
  const auto count = for_isa<&count_up_to>(detect_isa());
  std::uint64_t sum = 0;
  for (double doubt = 1; sum < wanted; doubt *= 2) {
    const std::uint32_t bound = rank_bound(sample, wanted, total, doubt);
    sum = 0;
    for (std::uint32_t h = 0; h < num_heads; ++h) {
      shares[h] = count(scores + h * stride, first, last, bound);
      sum += shares[h];
    }
  }
  return shares;
}

}  // namespace precis::kernels

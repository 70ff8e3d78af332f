// The keys (select_op.h) of the tokens that rank at or before a bound, tokens ascending. Only for
// loops that isa.h compiles.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/select/select_op.h"

namespace precis::kernels {

inline constexpr std::uint32_t kGatherTokens = 256;  // ranks are computed for this many at once

// Better scores have lower ranks.
PRECIS_INLINE std::uint32_t descending_rank(float score) { return ~score_rank(score); }

// Token by token: each key is written, but counts only if it is within the bound.
struct PlainKeys {
  // Gathers keys of tokens [token, token + size), whose ranks are `ranks`. Returns how many.
  PRECIS_INLINE static std::size_t gather(const std::uint32_t* ranks, std::uint32_t token,
                                          std::uint32_t size, std::uint32_t bound,
                                          std::uint64_t* keys) {
    std::size_t count = 0;
    for (std::uint32_t i = 0; i < size; ++i) {
      keys[count] = std::uint64_t{ranks[i]} << 32 | (token + i);
      count += static_cast<std::size_t>(ranks[i] <= bound);
    }
    return count;
  }
};

#if defined(__x86_64__) && !defined(__clang__)
// For for_avx512(): sixteen at a time; ranks within the bound are compacted, with their tokens
// beside them. Inline assembly, because no compiler vectorises such a loop; Clang does not accept
// operands this wide.
struct WideKeys {
  PRECIS_INLINE static std::size_t gather(const std::uint32_t* ranks, std::uint32_t token,
                                          std::uint32_t size, std::uint32_t bound,
                                          std::uint64_t* keys) {
    using Ranks = std::uint32_t __attribute__((vector_size(64)));
    // A key is a rank above a token: the output alternates 32-bit words of the two vectors.
    constexpr Ranks kLow = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
    constexpr Ranks kHigh = kLow + 8;
    const Ranks last = Ranks{} + bound;
    Ranks tokens = Ranks{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + token;
    std::size_t count = 0;
    std::uint32_t i = 0;
    for (; i + 16 <= size; i += 16, tokens += 16) {
      Ranks all, within, where;
      std::memcpy(&all, ranks + i, sizeof all);
      std::uint64_t found;
      asm("vpcmpud $2, %[last], %[all], %%k1\n\t"  // at most
          "vpcompressd %[all], %[within]%{%%k1%}%{z%}\n\t"
          "vpcompressd %[tokens], %[where]%{%%k1%}%{z%}\n\t"
          "kmovw %%k1, %k[found]\n\t"
          "popcnt %[found], %[found]"
          : [within] "=&v"(within), [where] "=&v"(where), [found] "=&r"(found)
          : [all] "v"(all), [tokens] "v"(tokens), [last] "v"(last)
          : "k1", "cc");
      Ranks low = where, high = where;
      asm("vpermt2d %[within], %[at], %[low]"
          : [low] "+v"(low)
          : [within] "v"(within), [at] "v"(kLow));
      asm("vpermt2d %[within], %[at], %[high]"
          : [high] "+v"(high)
          : [within] "v"(within), [at] "v"(kHigh));
      std::memcpy(keys + count, &low, sizeof low);
      std::memcpy(keys + count + 8, &high, sizeof high);
      count += found;
    }
    return count + PlainKeys::gather(ranks + i, token + i, size - i, bound, keys + count);
  }
};
#else
using WideKeys = PlainKeys;
#endif

// Writes the keys of tokens [first, last) to keys[..]; returns how many. Needs room for one key per
// token.
template <typename Keys>
PRECIS_INLINE std::size_t gather_up_to(const float* scores, std::uint32_t first, std::uint32_t last,
                                       std::uint32_t bound, std::uint64_t* keys) {
  std::size_t count = 0;
  std::uint32_t ranks[kGatherTokens];
  for (std::uint32_t token = first; token < last;) {
    const auto size = std::min(kGatherTokens, last - token);
    for (std::uint32_t i = 0; i < size; ++i) ranks[i] = descending_rank(scores[token + i]);
    count += Keys::gather(ranks, token, size, bound, keys + count);
    token += size;
  }
  return count;
}

}  // namespace precis::kernels

// Ranks the best tokens of a head without sorting the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace precis::kernels {

// retention_key() of the `limit` best of tokens [first, last) by (score desc, token asc),
// ascending; all of the tokens if there are fewer. Allocates 8 B a token, and 8 B for each key
// returned.
std::vector<std::uint64_t> best_keys(const float* scores, std::uint32_t first, std::uint32_t last,
                                     std::size_t limit);
// Appends the tokens of best_keys() to `order`.
void append_best(const float* scores, std::uint32_t first, std::uint32_t last, std::size_t limit,
                 std::vector<std::uint32_t>& order);

// For each of `num_heads` heads, whose scores are `stride` apart: an upper bound on how many of its
// tokens [first, last) are among the best `wanted` of all heads together. The bound counts all
// equal scores, and may count a few more.
std::vector<std::size_t> shares_of_best(const float* scores, std::size_t stride,
                                        std::uint32_t num_heads, std::uint32_t first,
                                        std::uint32_t last, std::uint64_t wanted);

}  // namespace precis::kernels

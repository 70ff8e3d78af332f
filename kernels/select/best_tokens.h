// Ranking without sorting what is not kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace precis::kernels {

// retention_key() of the `limit` best of tokens [first, last) by (score desc, token asc),
// ascending; all of them where there are fewer. Workspace: 8 B a token, and 8 B for each that is
// kept.
std::vector<std::uint64_t> best_keys(const float* scores, std::uint32_t first, std::uint32_t last,
                                     std::size_t limit);
// Appends the tokens of best_keys() to `order`.
void append_best(const float* scores, std::uint32_t first, std::uint32_t last, std::size_t limit,
                 std::vector<std::uint32_t>& order);

// For each of `num_heads` heads, `stride` scores apart, at most how many of its tokens [first,
// last) stand among the best `wanted` of all heads' together: equal scores all counted, and some
// more.
std::vector<std::size_t> shares_of_best(const float* scores, std::size_t stride,
                                        std::uint32_t num_heads, std::uint32_t first,
                                        std::uint32_t last, std::uint64_t wanted);

}  // namespace precis::kernels

// The words of a recipe's enums, in the order of their values (policies.md section 3).
#pragma once

#include <array>
#include <string_view>

#include "precis/recipe.h"

namespace precis {

inline constexpr std::array<std::string_view, 6> kScorerWords = {
    "streaming", "window_attn", "knorm", "keydiff", "lagkv", "external"};
inline constexpr std::array<std::string_view, 2> kPoolWords = {"avg", "max"};
inline constexpr std::array<std::string_view, 3> kReduceWords = {"mean", "max", "sum"};
inline constexpr std::array<std::string_view, 2> kPoolOrderWords = {"rows_group_pool",
                                                                    "rows_pool_group"};
inline constexpr std::array<std::string_view, 2> kHeadWords = {"uniform", "ada"};
inline constexpr std::array<std::string_view, 4> kAdaModeWords = {
    "paper_blend", "repo_blend", "guarantee_incl_window", "guarantee_excl_window"};
inline constexpr std::array<std::string_view, 1> kLayerWords = {"uniform"};
inline constexpr std::array<std::string_view, 2> kSelectorWords = {"topk", "partition_topk"};
inline constexpr std::array<std::string_view, 2> kCountRuleWords = {"exact_floor",
                                                                    "kvpress_double"};

template <typename Words, typename E>
constexpr std::string_view word_of(const Words& words, E value) {
  return words[static_cast<std::size_t>(value)];
}

}  // namespace precis

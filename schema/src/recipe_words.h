// The text names of a recipe's enum values, in the order of the values (schema/README.md).
// scorers.h has those of scorers.
#pragma once

#include <array>
#include <string_view>

#include "precis/recipe.h"
#include "scorers.h"

namespace precis {

inline constexpr std::array<std::string_view, 2> kPoolWords = {"avg", "max"};
inline constexpr std::array<std::string_view, 3> kReduceWords = {"mean", "max", "sum"};
inline constexpr std::array<std::string_view, 5> kRowReduceWords = {"mean", "max", "sum", "sumsq",
                                                                    "mean_variance"};
inline constexpr std::array<std::string_view, 4> kPoolOrderWords = {
    "rows_group_pool", "rows_pool_group", "pool_rows_group", "pool_group_rows"};
inline constexpr std::array<std::string_view, 4> kHeadWords = {"uniform", "ada", "flat", "table"};
inline constexpr std::array<std::string_view, 4> kAdaModeWords = {
    "paper_blend", "repo_blend", "guarantee_incl_window", "guarantee_excl_window"};
inline constexpr std::array<std::string_view, 6> kLayerWords = {
    "uniform", "pyramid", "preference", "entropy", "global_flat", "table"};
inline constexpr std::array<std::string_view, 5> kSelectorWords = {
    "topk", "partition_topk", "two_stage", "chunk", "threshold"};
inline constexpr std::array<std::string_view, 3> kTableWords = {"curves", "weights", "probe"};
inline constexpr std::array<std::string_view, 3> kValueNormWords = {"l1_exact", "l2_gram", "v_l1"};
inline constexpr std::array<std::string_view, 5> kEncodingWords = {"raw", "int8", "int4", "k8v4",
                                                                   "k6v4"};
inline constexpr std::array<std::string_view, 2> kCountRuleWords = {"exact_floor",
                                                                    "kvpress_double"};

template <typename Words, typename E>
constexpr std::string_view word_of(const Words& words, E value) {
  const auto at = static_cast<std::size_t>(value);
  PRECIS_CHECK(at < words.size());  // an enum with more values than words
  return words[at];
}

}  // namespace precis

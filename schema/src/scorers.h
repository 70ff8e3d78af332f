// The properties of each scorer: its name in recipes, how far its scores can be compared
// (docs/design/policies.md, "Comparability of scores"), and whether it reads pushed queries.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "precis/recipe.h"

namespace precis {

// kToken: scores are equal in all heads. kHead: comparable within a head. kLayer: across the heads
// of a layer. kGlobal: across layers.
enum class Comparable { kToken, kHead, kLayer, kGlobal };
// kWindow: the queries of the segment's last tokens, which are protected and not ranked.
enum class Observes { kNothing, kQueries, kWindow };

struct ScorerTraits {
  std::string_view word;
  Comparable comparable;
  Observes observes = Observes::kNothing;
};

// A value that is no scorer has an empty word. The compiler refuses a scorer without a case
// (-Wswitch).
constexpr ScorerTraits traits_of(Scorer scorer) {
  using enum Comparable;
  using enum Observes;
  switch (scorer) {
    case Scorer::kStreamingLlm: return {"streaming", kToken};
    case Scorer::kWindowAttention: return {"window_attn", kGlobal, kWindow};
    case Scorer::kKnorm: return {"knorm", kHead};
    case Scorer::kKeydiff: return {"keydiff", kGlobal};  // measured (D14)
    case Scorer::kLagkv: return {"lagkv", kLayer};       // kHead with lag_kvpress_ranks
    case Scorer::kExternal: return {"external", kGlobal};
    case Scorer::kLocalkv: return {"localkv", kLayer};
    case Scorer::kRandom: return {"random", kGlobal};
    case Scorer::kTova: return {"tova", kToken, kWindow};
    case Scorer::kH2o: return {"h2o", kGlobal, kQueries};
    case Scorer::kObservedMean: return {"observed_mean", kGlobal, kQueries};
    case Scorer::kVatp: return {"vatp", kLayer, kWindow};
    case Scorer::kCake: return {"cake", kLayer, kWindow};
    case Scorer::kLava: return {"lava", kLayer, kWindow};
    case Scorer::kDefensive: return {"defensive", kGlobal, kWindow};
    case Scorer::kExpectedAttention: return {"expected_attention", kLayer};
    case Scorer::kKvzip: return {"kvzip", kGlobal, kQueries};
    case Scorer::kKvdiff: return {"kvdiff", kGlobal};    // measured
    case Scorer::kKvprobe: return {"kvprobe", kGlobal};  // measured
  }
  return {};
}

// The names of all scorers, in the order of the values.
inline constexpr auto kScorerWords = [] {
  constexpr std::size_t kCount = [] {
    std::size_t count = 0;
    while (!traits_of(static_cast<Scorer>(count)).word.empty()) ++count;
    return count;
  }();
  std::array<std::string_view, kCount> words;
  for (std::size_t i = 0; i < kCount; ++i) words[i] = traits_of(static_cast<Scorer>(i)).word;
  return words;
}();

}  // namespace precis

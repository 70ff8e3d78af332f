// Which recipes make sense: ranges, and the invalid combinations of policies.md section 3 (D14:
// refused with the reason, never repaired).
#include "precis/limits.h"
#include "precis/recipe.h"
#include "recipe_words.h"

namespace precis {
namespace {

Status in_range(std::string_view name, std::uint32_t value, std::uint32_t low, std::uint32_t high) {
  if (value >= low && value <= high) return {};
  return Status::invalid(std::string(name) + " is " + std::to_string(value) + ", must be in [" +
                         std::to_string(low) + ", " + std::to_string(high) + "]");
}

Status check_window_attention(const Recipe& r) {
  PRECIS_TRY(in_range("window", r.window, 1, limits::kObservationQueriesMax));
  PRECIS_TRY(in_range("kernel", r.kernel, 1, limits::kPoolKernelMax));
  if (r.kernel % 2 == 0) {
    return Status::invalid("kernel is " + std::to_string(r.kernel) +
                           ", must be odd: the pool is centred on its token");
  }
  if (r.recent < r.window) {
    return Status::invalid("recent is " + std::to_string(r.recent) + ", must be at least window " +
                           std::to_string(r.window) + ": the window's own tokens are not ranked");
  }
  return {};
}

Status check_lagkv(const Recipe& r) {
  if (r.scorer != Scorer::kLagkv) {
    if (r.lag_kvpress_ranks || r.protect_tail) {
      return Status::invalid(
          "lag_kvpress_ranks and the protected tail belong to scorer lagkv, not " +
          std::string(word_of(kScorerWords, r.scorer)));
    }
    return {};
  }
  PRECIS_TRY(in_range("lag", r.lag, 1, limits::kPathTokensMax));
  if (!r.protect_tail) {
    return Status::invalid("scorer lagkv must protect the tail: its last partition is not ranked");
  }
  if (r.recent != 0) {
    return Status::invalid("recent is " + std::to_string(r.recent) +
                           ", must be 0: scorer lagkv protects its tail instead");
  }
  return {};
}

// The budgets of ada come from comparing scores across the heads of a layer.
Status check_ada(const Recipe& r) {
  PRECIS_TRY(in_range("alpha in parts per million", r.ada_alpha_ppm, 0, 1'000'000));
  if (r.scorer == Scorer::kStreamingLlm) {
    return Status::invalid(
        "heads=ada needs scores that differ between heads: those of scorer streaming are the same "
        "in every head, so ties would decide the budgets");
  }
  if (r.scorer == Scorer::kKnorm || (r.scorer == Scorer::kLagkv && r.lag_kvpress_ranks)) {
    return Status::invalid(
        "heads=ada needs scores that can be compared across heads: those of scorer " +
        std::string(word_of(kScorerWords, r.scorer)) + (r.lag_kvpress_ranks ? " as ranks" : "") +
        " only rank entries inside a head");
  }
  return {};
}

Status check_partition_topk(const Recipe& r) {
  if (r.scorer != Scorer::kLagkv) {
    return Status::invalid(
        "selector=partition_topk needs the partitions of scorer lagkv, not scorer " +
        std::string(word_of(kScorerWords, r.scorer)));
  }
  if (r.lag_kvpress_ranks) {
    return Status::invalid(
        "selector=partition_topk ranks inside partitions itself: lag_kvpress_ranks is for topk");
  }
  if (r.heads != HeadAllocator::kUniform) {
    return Status::invalid(
        "selector=partition_topk keeps as many per partition in every head: heads=" +
        std::string(word_of(kHeadWords, r.heads)) + " would give heads different counts");
  }
  return {};
}

// kvpress's own arithmetic is there to reproduce kvpress, so only what kvpress computes may use it.
Status check_kvpress(const Recipe& r) {
  if (r.selector != Selector::kTopk) {
    return Status::invalid(
        "count_rule=kvpress_double is for parity with kvpress, which knows no "
        "selector=" +
        std::string(word_of(kSelectorWords, r.selector)));
  }
  if (r.heads == HeadAllocator::kAda && r.ada_mode != AdaMode::kGuaranteeInclWindow) {
    return Status::invalid(
        "count_rule=kvpress_double is for parity with kvpress, whose ada_mode is "
        "guarantee_incl_window, not " +
        std::string(word_of(kAdaModeWords, r.ada_mode)));
  }
  if (r.min_entries != 0) {
    return Status::invalid(
        "count_rule=kvpress_double is for parity with kvpress, which knows no "
        "min_entries (" +
        std::to_string(r.min_entries) + ")");
  }
  return {};
}

}  // namespace

Status validate_recipe(const Recipe& recipe) {
  PRECIS_TRY(in_range("sinks", recipe.sinks, 0, limits::kPathTokensMax));
  PRECIS_TRY(in_range("recent", recipe.recent, 0, limits::kPathTokensMax));
  PRECIS_TRY(in_range("min_entries", recipe.min_entries, 0, limits::kPathTokensMax));
  if (recipe.scorer == Scorer::kWindowAttention) PRECIS_TRY(check_window_attention(recipe));
  PRECIS_TRY(check_lagkv(recipe));
  if (recipe.heads == HeadAllocator::kAda) PRECIS_TRY(check_ada(recipe));
  if (recipe.selector == Selector::kPartitionTopk) PRECIS_TRY(check_partition_topk(recipe));
  if (recipe.count_rule == CountRule::kKvpressDouble) PRECIS_TRY(check_kvpress(recipe));
  return {};
}

}  // namespace precis

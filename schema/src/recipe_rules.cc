// Checks of recipes: ranges, and the combinations of policies.md, "Refused combinations". An
// invalid recipe is refused with the reason, never repaired (D14).
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

std::string scorer_name(const Recipe& r) {
  return "scorer " + std::string(word_of(kScorerWords, r.scorer));
}

Comparable comparable(const Recipe& r) {
  return r.lag_kvpress_ranks ? Comparable::kHead : traits_of(r.scorer).comparable;
}

Status check_attention(const Recipe& r) {
  PRECIS_TRY(in_range("window", r.window, 0, limits::kObservationQueriesMax));
  PRECIS_TRY(in_range("kernel", r.kernel, 1, limits::kPoolKernelMax));
  if (r.kernel % 2 == 0) {
    return Status::invalid("kernel is " + std::to_string(r.kernel) +
                           ", must be odd: the pool is centred on its token");
  }
  if (!protects_window(r.scorer)) return {};
  if (r.window == 0) {
    return Status::invalid("window is 0, must be at least 1: " + scorer_name(r) +
                           " observes the last queries");
  }
  if (r.recent < r.window) {
    return Status::invalid("recent is " + std::to_string(r.recent) + ", must be at least window " +
                           std::to_string(r.window) + ": the window's own tokens are not ranked");
  }
  return {};
}

Status check_partitions(const Recipe& r) {
  if (r.lag_kvpress_ranks && r.scorer != Scorer::kLagkv) {
    return Status::invalid("lag_kvpress_ranks belongs to scorer lagkv, not " + scorer_name(r));
  }
  if (!r.is_partitioned()) {
    if (!r.protect_tail) return {};
    return Status::invalid("the protected tail belongs to partitions, which " + scorer_name(r) +
                           " with selector=" + std::string(word_of(kSelectorWords, r.selector)) +
                           " does not have");
  }
  PRECIS_TRY(in_range("lag", r.lag, 1, limits::kPathTokensMax));
  if (!r.protect_tail) {
    return Status::invalid(scorer_name(r) +
                           " must protect the tail: its last partition is not ranked");
  }
  if (r.recent != 0) {
    return Status::invalid("recent is " + std::to_string(r.recent) +
                           ", must be 0: " + scorer_name(r) + " protects its tail instead");
  }
  return {};
}

// Windows and tails are protected as a whole.
Status check_recent_share(const Recipe& r) {
  PRECIS_TRY(in_range("recent_share in parts per million", r.recent_share_ppm, 0, 1'000'000));
  if (r.recent_share_ppm == Recipe().recent_share_ppm) return {};
  if (!r.is_partitioned() && !protects_window(r.scorer)) return {};
  return Status::invalid("recent_share has no meaning with " +
                         (r.is_partitioned() ? "partitions, which protect their tail"
                                             : scorer_name(r) + ", which protects its window"));
}

// A recipe takes one table from one profile: budgets, or the coefficients of kvprobe.
Status check_table(const Recipe& r) {
  if (!r.needs_profile()) return {};
  const std::string table = "table=" + std::string(word_of(kTableWords, r.table));
  const bool is_probe = r.table == TableKind::kProbe;
  if (r.needs_probe() && r.heads == HeadAllocator::kTable) {
    return Status::invalid("heads=table and " + scorer_name(r) +
                           " need a profile each, and a recipe has one; take heads=ada, which " +
                           "shares the budget by the scores");
  }
  if (r.needs_probe() && !is_probe) {
    return Status::invalid(table + " holds budgets: " + scorer_name(r) + " needs table=probe");
  }
  if (!r.needs_probe() && is_probe) {
    return Status::invalid(table + " holds coefficients of scorer kvprobe, not budgets");
  }
  return {};
}

// Checks that head budgets compare scores only if the scorer allows it.
Status check_heads(const Recipe& r) {
  if (r.heads == HeadAllocator::kAda) {
    PRECIS_TRY(in_range("alpha in parts per million", r.ada_alpha_ppm, 0, 1'000'000));
  }
  if (r.heads != HeadAllocator::kAda && r.heads != HeadAllocator::kFlat) return {};
  const std::string heads = "heads=" + std::string(word_of(kHeadWords, r.heads));
  if (comparable(r) == Comparable::kToken) {
    return Status::invalid(heads + " needs scores that differ between heads: those of " +
                           scorer_name(r) +
                           " are the same in every head, so ties would decide the budgets");
  }
  if (comparable(r) == Comparable::kHead) {
    return Status::invalid(heads + " needs scores that can be compared across heads: those of " +
                           scorer_name(r) + (r.lag_kvpress_ranks ? " as ranks" : "") +
                           " only rank entries inside a head");
  }
  return {};
}

Status check_layers(const Recipe& r) {
  const std::string layers = "layers=" + std::string(word_of(kLayerWords, r.layers));
  if ((r.heads == HeadAllocator::kTable) != (r.layers == LayerAllocator::kTable)) {
    return Status::invalid(
        "heads=table and layers=table come together: a profile's table is over all layers and "
        "heads, so a second allocator would have no effect");
  }
  const bool blend =
      r.heads == HeadAllocator::kAda && r.is_cut() && r.count_rule == CountRule::kExactFloor;
  if (blend && r.joins_layers()) {
    return Status::invalid("ada_mode=" + std::string(word_of(kAdaModeWords, r.ada_mode)) +
                           " is defined at one layer budget, which " + layers +
                           " does not know before it has every layer");
  }
  switch (r.layers) {
    case LayerAllocator::kUniform:
    case LayerAllocator::kTable: return {};
    case LayerAllocator::kPyramid: return in_range("beta", r.beta, 1, 1'000'000);
    case LayerAllocator::kPreference:
      if (r.tau1_ppm == 0 || r.tau2_ppm == 0) {
        return Status::invalid("tau1 and tau2 must be above 0: they divide");
      }
      if (is_attention(r.scorer) && r.scorer != Scorer::kKvzip) return {};
      return Status::invalid(layers + " weighs layers by their attention, which " + scorer_name(r) +
                             " does not compute");
    case LayerAllocator::kEntropy:
      if (is_attention(r.scorer) || r.scorer == Scorer::kExpectedAttention ||
          r.scorer == Scorer::kExternal) {
        return {};
      }
      return Status::invalid(layers + " takes the entropy of scores that are shares: those of " +
                             scorer_name(r) + " are not");
    case LayerAllocator::kGlobalFlat:
      if (comparable(r) != Comparable::kGlobal) {
        return Status::invalid(layers +
                               " needs scores that can be compared across layers: those "
                               "of " +
                               scorer_name(r) + " cannot");
      }
      if (r.heads == HeadAllocator::kUniform) {
        return Status::invalid(layers +
                               " decides over heads too: choose heads=flat, or heads=ada for a "
                               "guarantee per head");
      }
      return {};
  }
  return {};
}

Status check_partition_topk(const Recipe& r) {
  const bool scored =
      r.scorer == Scorer::kLagkv || r.scorer == Scorer::kLocalkv || r.scorer == Scorer::kKnorm;
  if (!scored) {
    return Status::invalid(
        "selector=partition_topk needs scores of partitions (lagkv, localkv, knorm), not " +
        scorer_name(r));
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

// The epsilon and the share of stage 1 have a meaning only for attention. Value norms must count
// once.
Status check_two_stage(const Recipe& r) {
  PRECIS_TRY(in_range("first_stage in parts per million", r.first_stage_ppm, 0, 1'000'000));
  if (r.scorer == Scorer::kVatp || r.scorer == Scorer::kLava || r.scorer == Scorer::kDefensive) {
    return Status::invalid("selector=two_stage multiplies by value norms, and " + scorer_name(r) +
                           " already does: they would count twice");
  }
  if (r.scorer == Scorer::kExpectedAttention && r.ea_value_norm) {
    return Status::invalid(
        "selector=two_stage multiplies by value norms: set ea_value_norm=false, or they would "
        "count twice");
  }
  if (is_attention(r.scorer) || r.scorer == Scorer::kExpectedAttention ||
      r.scorer == Scorer::kExternal) {
    return {};
  }
  return Status::invalid("selector=two_stage assumes that stage 1 holds most of the attention: " +
                         scorer_name(r) + " computes none");
}

Status check_selector(const Recipe& r) {
  switch (r.selector) {
    case Selector::kTopk: return {};
    case Selector::kPartitionTopk: return check_partition_topk(r);
    case Selector::kTwoStage: return check_two_stage(r);
    case Selector::kChunk:
      PRECIS_TRY(in_range("chunk", r.chunk, 1, limits::kPathTokensMax));
      if (r.heads == HeadAllocator::kUniform) return {};
      return Status::invalid("selector=chunk keeps the same tokens in every head: heads=" +
                             std::string(word_of(kHeadWords, r.heads)) +
                             " would give heads different counts");
    case Selector::kThreshold:
      PRECIS_TRY(in_range("mass in parts per million", r.mass_ppm, 1, 1'000'000));
      if (r.scorer == Scorer::kDefensive) return {};
      return Status::invalid("selector=threshold needs the mean attention of scorer defensive, " +
                             scorer_name(r) + " does not compute it");
  }
  return {};
}

// kvpress_double exists to reproduce kvpress, so it is limited to what kvpress can compute.
Status check_kvpress(const Recipe& r) {
  const std::string parity = "count_rule=kvpress_double is for parity with kvpress, ";
  if (r.selector != Selector::kTopk && r.selector != Selector::kTwoStage) {
    return Status::invalid(
        parity + "which knows no selector=" + std::string(word_of(kSelectorWords, r.selector)));
  }
  if (r.heads == HeadAllocator::kAda && r.ada_mode != AdaMode::kGuaranteeInclWindow) {
    return Status::invalid(parity + "whose ada_mode is guarantee_incl_window, not " +
                           std::string(word_of(kAdaModeWords, r.ada_mode)));
  }
  if (r.layers != LayerAllocator::kUniform) {
    return Status::invalid(parity + "layers=" + std::string(word_of(kLayerWords, r.layers)) +
                           " is not reproduced");
  }
  if (r.min_entries != 0) {
    return Status::invalid(parity + "which knows no min_entries (" + std::to_string(r.min_entries) +
                           ")");
  }
  return {};
}

}  // namespace

Status validate_recipe(const Recipe& recipe) {
  PRECIS_TRY(in_range("sinks", recipe.sinks, 0, limits::kPathTokensMax));
  PRECIS_TRY(in_range("recent", recipe.recent, 0, limits::kPathTokensMax));
  PRECIS_TRY(in_range("min_entries", recipe.min_entries, 0, limits::kPathTokensMax));
  PRECIS_TRY(in_range("skip_layers", recipe.skip_layers, 0, limits::kLayersMax));
  if (is_attention(recipe.scorer)) PRECIS_TRY(check_attention(recipe));
  PRECIS_TRY(check_partitions(recipe));
  PRECIS_TRY(check_recent_share(recipe));
  PRECIS_TRY(check_table(recipe));
  PRECIS_TRY(check_heads(recipe));
  PRECIS_TRY(check_layers(recipe));
  PRECIS_TRY(check_selector(recipe));
  if (recipe.count_rule == CountRule::kKvpressDouble) PRECIS_TRY(check_kvpress(recipe));
  return {};
}

}  // namespace precis

#include "presets.h"

#include <algorithm>

#include "precis/limits.h"
#include "scorers.h"

namespace precis {
namespace {

Recipe named(std::string_view name, Recipe r) {
  r.preset = name;
  return r;
}
Recipe named(std::string_view name, Scorer scorer) { return named(name, scorer_defaults(scorer)); }

Recipe with_ada(Recipe r, AdaMode mode, std::uint32_t alpha_ppm) {
  r.heads = HeadAllocator::kAda;
  r.ada_mode = mode;
  r.ada_alpha_ppm = alpha_ppm;
  return r;
}
Recipe with_ada_excl(Recipe r, std::uint32_t alpha_ppm) {
  return with_ada(std::move(r), AdaMode::kGuaranteeExclWindow, alpha_ppm);
}

Recipe with_allocators(Recipe r, HeadAllocator heads, LayerAllocator layers) {
  r.heads = heads;
  r.layers = layers;
  return r;
}

Recipe with_table(Recipe r, TableKind kind) {
  r.table = kind;
  return with_allocators(std::move(r), HeadAllocator::kTable, LayerAllocator::kTable);
}

Recipe with_selector(Recipe r, Selector selector) {
  r.selector = selector;
  r.protect_tail = r.is_partitioned();
  return r;
}

Recipe with_protected(Recipe r, std::uint32_t sinks, std::uint32_t recent) {
  r.sinks = sinks;
  r.recent = recent;
  r.recent_share_ppm = Recipe().recent_share_ppm;
  return r;
}

// All heads and layers share one budget. Those that attend to near tokens would lose them, so one
// recent token is protected for each 125 tokens of a segment (docs/notes/recipes.md).
Recipe with_near_tokens(Recipe r) {
  r = with_allocators(with_ada_excl(std::move(r), 20'000), HeadAllocator::kAda,
                      LayerAllocator::kGlobalFlat);
  r.recent = 64;
  r.recent_share_ppm = 8'000;
  return r;
}

// Stage 2 multiplies by value norms, so the scores must not contain them (D11).
Recipe with_two_stage(Recipe r) {
  r.ea_value_norm = r.scorer != Scorer::kExpectedAttention;
  return with_selector(std::move(r), Selector::kTwoStage);
}

Recipe with_headkv(Recipe r) { return with_table(std::move(r), TableKind::kWeights); }

// Protects the sinks, and either the queries' own tokens or the last token.
Recipe with_lukv(Recipe r) {
  return with_table(with_protected(r, 4, protects_window(r.scorer) ? r.window : 1),
                    TableKind::kCurves);
}

// D17: the recipe as kvpress 0.5.5 computes it, with kvpress's counts.
Recipe as_kvpress(Recipe r) {
  r.count_rule = CountRule::kKvpressDouble;
  return r;
}

Recipe snapkv_of_kvpress() {
  Recipe r = scorer_defaults(Scorer::kWindowAttention);
  r.window = r.recent = 64;
  r.kernel = 5;
  r.pool = Pool::kAvg;
  r.pool_order = PoolOrder::kRowsPoolGroup;
  return as_kvpress(r);
}

Recipe lagkv_of_kvpress() {
  Recipe r = as_kvpress(scorer_defaults(Scorer::kLagkv));
  r.sinks = 4;
  r.lag_kvpress_ranks = true;
  return r;
}

Recipe expected_attention_of_kvpress() {
  Recipe r = as_kvpress(scorer_defaults(Scorer::kExpectedAttention));
  r.ea_epsilon_ppm = 0;
  return r;
}

// The presets of policies.md, "Presets", then those of D17.
std::vector<Recipe> make_presets() {
  using Heads = HeadAllocator;
  using Layers = LayerAllocator;
  const Recipe snapkv = scorer_defaults(Scorer::kWindowAttention);
  const Recipe keydiff = scorer_defaults(Scorer::kKeydiff);
  const Recipe kvdiff = scorer_defaults(Scorer::kKvdiff);
  const Recipe kvprobe = scorer_defaults(Scorer::kKvprobe);
  const Recipe guarded_keydiff = with_protected(keydiff, 4, 1);
  const Recipe ada_kvpress = with_ada(snapkv_of_kvpress(), AdaMode::kGuaranteeInclWindow, 200'000);
  std::vector<Recipe> presets = {
      named("streaming_llm", Scorer::kStreamingLlm),
      named("knorm", Scorer::kKnorm),
      named("keydiff", keydiff),
      named("ada_keydiff", with_ada_excl(guarded_keydiff, 50'000)),
      named("global_keydiff", with_allocators(with_ada_excl(guarded_keydiff, 50'000), Heads::kAda,
                                              Layers::kGlobalFlat)),
      named("kvdiff", kvdiff),
      named("global_kvdiff", with_near_tokens(kvdiff)),
      named("kvprobe", kvprobe),
      named("global_kvprobe", with_near_tokens(kvprobe)),
      named("tova", Scorer::kTova),
      named("snapkv", snapkv),
      named("pyramidkv", with_allocators(snapkv, Heads::kUniform, Layers::kPyramid)),
      named("ada_snapkv", with_ada_excl(snapkv, 200'000)),
      named("ada_pyramidkv",
            with_allocators(with_ada_excl(snapkv, 200'000), Heads::kAda, Layers::kPyramid)),
      named("headkv", with_headkv(snapkv)),
      named("criticalkv", with_two_stage(snapkv)),
      named("criticalkv_ada", with_two_stage(with_ada_excl(snapkv, 200'000))),
      named("criticalkv_headkv", with_two_stage(with_headkv(snapkv))),
      named("vatp", Scorer::kVatp),
      named("cake",
            with_allocators(scorer_defaults(Scorer::kCake), Heads::kUniform, Layers::kPreference)),
      named("lava",
            with_allocators(scorer_defaults(Scorer::kLava), Heads::kFlat, Layers::kEntropy)),
      named("lagkv", with_selector(scorer_defaults(Scorer::kLagkv), Selector::kPartitionTopk)),
      named("localkv", with_selector(scorer_defaults(Scorer::kLocalkv), Selector::kPartitionTopk)),
      named("l2_recursive",
            with_protected(with_selector(scorer_defaults(Scorer::kKnorm), Selector::kPartitionTopk),
                           16, 0)),
      named("expected_attention", Scorer::kExpectedAttention),
      named("defensivekv", with_selector(with_allocators(scorer_defaults(Scorer::kDefensive),
                                                         Heads::kFlat, Layers::kUniform),
                                         Selector::kThreshold)),
      named("kvzip",
            with_allocators(scorer_defaults(Scorer::kKvzip), Heads::kFlat, Layers::kGlobalFlat)),
      named("lukv", with_lukv(keydiff)),
      named("h2o_window", Scorer::kH2o),
      named("observed_mean", Scorer::kObservedMean),
      named("random", Scorer::kRandom),
      named("external", Scorer::kExternal),
      named("snapkv_kvpress", snapkv_of_kvpress()),
      named("ada_kvpress", ada_kvpress),
      named("critical_kvpress", with_two_stage(snapkv_of_kvpress())),
      named("critical_ada_kvpress", with_two_stage(ada_kvpress)),
      named("knorm_kvpress", as_kvpress(scorer_defaults(Scorer::kKnorm))),
      named("keydiff_kvpress", as_kvpress(keydiff)),
      named("lagkv_kvpress", lagkv_of_kvpress()),
      named("ea_kvpress", expected_attention_of_kvpress()),
      named("tova_kvpress", as_kvpress(scorer_defaults(Scorer::kTova))),
      named("observed_kvpress", as_kvpress(scorer_defaults(Scorer::kObservedMean))),
  };
  std::ranges::sort(presets, {}, &Recipe::preset);
  return presets;
}

// A preset that allocates or selects, and can take its scores from another preset.
struct Builder {
  std::string_view name;
  Recipe (*build)(Recipe base);
};
constexpr Builder kBuilders[] = {
    {"criticalkv", with_two_stage},
    {"criticalkv_ada", [](Recipe r) { return with_two_stage(with_ada_excl(r, 200'000)); }},
    {"criticalkv_headkv", [](Recipe r) { return with_two_stage(with_headkv(r)); }},
    {"headkv", with_headkv},
    {"lukv", with_lukv},
};

}  // namespace

bool is_attention(Scorer scorer) { return traits_of(scorer).observes != Observes::kNothing; }

bool protects_window(Scorer scorer) { return traits_of(scorer).observes == Observes::kWindow; }

std::uint32_t Recipe::recent_tokens(std::uint32_t num_tokens) const {
  const std::uint64_t share = std::uint64_t{recent_share_ppm} * num_tokens / 1'000'000;
  const auto most = static_cast<std::uint32_t>(std::max<std::uint64_t>(share, 1));
  return std::min({recent, most, num_tokens});
}

bool Recipe::needs_queries() const { return is_attention(scorer); }

std::uint32_t Recipe::queries_max(std::uint32_t num_tokens) const {
  return needs_lse() ? limits::kObservationQueriesMax
                     : std::min(limits::kObservationQueriesMax, num_tokens);
}

Recipe scorer_defaults(Scorer scorer) {
  Recipe r;  // D4: window 32, kernel 7, max pool, mean rows, mean group, pooled last
  r.scorer = scorer;
  const auto attend = [&r](std::uint32_t window, std::uint32_t kernel, Pool pool, RowReduce rows,
                           Reduce group, PoolOrder order) {
    r.window = window;
    r.kernel = kernel;
    r.pool = pool;
    r.row_reduce = rows;
    r.group_reduce = group;
    r.pool_order = order;
  };
  using Rows = RowReduce;
  using Order = PoolOrder;
  switch (scorer) {
    case Scorer::kWindowAttention:
    case Scorer::kKnorm:
    case Scorer::kKeydiff:
    case Scorer::kRandom:
    case Scorer::kExternal: break;
    case Scorer::kStreamingLlm: r.sinks = 4; break;
    case Scorer::kLagkv:
    case Scorer::kLocalkv:
      r.sinks = 16;
      r.protect_tail = true;
      break;
    case Scorer::kTova:
      attend(1, 1, Pool::kAvg, Rows::kMean, Reduce::kMean, Order::kRowsGroupPool);
      break;
    case Scorer::kH2o:
      attend(256, 1, Pool::kAvg, Rows::kSum, Reduce::kMean, Order::kRowsGroupPool);
      r.recent = 32;
      break;
    case Scorer::kObservedMean:
      attend(0, 1, Pool::kAvg, Rows::kMean, Reduce::kMean, Order::kRowsGroupPool);
      break;
    case Scorer::kVatp:
      attend(32, 1, Pool::kAvg, Rows::kMean, Reduce::kMean, Order::kRowsGroupPool);
      r.sinks = 20;
      break;
    case Scorer::kCake:
      attend(32, 5, Pool::kAvg, Rows::kMeanVariance, Reduce::kMean, Order::kRowsPoolGroup);
      break;
    case Scorer::kLava:
      attend(32, 7, Pool::kMax, Rows::kMean, Reduce::kMax, Order::kRowsPoolGroup);
      break;
    case Scorer::kDefensive:
      attend(32, 5, Pool::kAvg, Rows::kMax, Reduce::kMax, Order::kPoolGroupRows);
      break;
    case Scorer::kExpectedAttention: r.sinks = 4; break;
    case Scorer::kKvprobe: r.table = TableKind::kProbe; [[fallthrough]];
    case Scorer::kKvdiff:
      r.sinks = 4;  // every query attends to them, but their values are close to zero
      r.recent = 1;
      break;
    case Scorer::kKvzip:
      attend(0, 1, Pool::kAvg, Rows::kMax, Reduce::kMax, Order::kRowsGroupPool);
      r.sinks = 4;
      break;
  }
  if (protects_window(scorer)) r.recent = r.window;
  return r;
}

std::span<const Recipe> preset_recipes() {
  static const std::vector<Recipe> presets = make_presets();  // a constant table, built once
  return presets;
}

Result<Recipe> build_on(const Recipe& preset, const Recipe& base) {
  std::string names;
  for (const Builder& builder : kBuilders) {
    if (builder.name == preset.preset) return builder.build(base);
    names += (names.empty() ? "" : ", ") + std::string(builder.name);
  }
  return Status::invalid("preset " + preset.preset +
                         " can't build on another; those that can are " + names);
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Recipe& recipe : preset_recipes()) names.push_back(recipe.preset);
  return names;
}

}  // namespace precis

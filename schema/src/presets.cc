#include "presets.h"

#include <algorithm>

namespace precis {
namespace {

Recipe named(std::string_view name, Scorer scorer) {
  Recipe r;
  r.preset = name;
  r.scorer = scorer;
  return r;
}

// D4: the defaults of Recipe are its window 32, kernel 7, max pool, mean rows, mean group.
Recipe snapkv(std::string_view name) {
  Recipe r = named(name, Scorer::kWindowAttention);
  r.recent = r.window;
  return r;
}

Recipe lagkv(std::string_view name, std::uint32_t sinks) {
  Recipe r = named(name, Scorer::kLagkv);
  r.sinks = sinks;
  r.lag = 128;
  r.protect_tail = true;
  return r;
}

Recipe with_ada(Recipe r, AdaMode mode, std::uint32_t alpha_ppm) {
  r.heads = HeadAllocator::kAda;
  r.ada_mode = mode;
  r.ada_alpha_ppm = alpha_ppm;
  return r;
}

Recipe with_protected(Recipe r, std::uint32_t sinks, std::uint32_t recent) {
  r.sinks = sinks;
  r.recent = recent;
  return r;
}

// D17: what kvpress 0.5.5 does, its counting included.
Recipe as_kvpress(Recipe r) {
  r.count_rule = CountRule::kKvpressDouble;
  return r;
}

Recipe snapkv_kvpress(std::string_view name) {
  Recipe r = named(name, Scorer::kWindowAttention);
  r.window = r.recent = 64;
  r.kernel = 5;
  r.pool = Pool::kAvg;
  r.pool_order = PoolOrder::kRowsPoolGroup;
  return as_kvpress(r);
}

Recipe lagkv_kvpress() {
  Recipe r = lagkv("lagkv_kvpress", 4);
  r.lag_kvpress_ranks = true;
  return as_kvpress(r);
}

Recipe lagkv_of_paper() {
  Recipe r = lagkv("lagkv", 16);
  r.selector = Selector::kPartitionTopk;
  return r;
}

std::vector<Recipe> make_presets() {
  std::vector<Recipe> presets = {
      with_protected(named("streaming_llm", Scorer::kStreamingLlm), 4, 0),
      snapkv("snapkv"),
      named("knorm", Scorer::kKnorm),
      named("keydiff", Scorer::kKeydiff),
      with_ada(with_protected(named("ada_keydiff", Scorer::kKeydiff), 4, 1),
               AdaMode::kGuaranteeExclWindow, 50'000),
      with_ada(snapkv("ada_snapkv"), AdaMode::kGuaranteeExclWindow, 200'000),
      lagkv_of_paper(),
      named("external", Scorer::kExternal),
      snapkv_kvpress("snapkv_kvpress"),
      with_ada(snapkv_kvpress("ada_kvpress"), AdaMode::kGuaranteeInclWindow, 200'000),
      as_kvpress(named("knorm_kvpress", Scorer::kKnorm)),
      as_kvpress(named("keydiff_kvpress", Scorer::kKeydiff)),
      lagkv_kvpress(),
  };
  std::ranges::sort(presets, {}, &Recipe::preset);
  return presets;
}

}  // namespace

std::span<const Recipe> preset_recipes() {
  static const std::vector<Recipe> presets = make_presets();  // A constant table, built once.
  return presets;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Recipe& recipe : preset_recipes()) names.push_back(recipe.preset);
  return names;
}

}  // namespace precis

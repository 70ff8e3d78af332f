#include "tests/unit/kernels/random_cases.h"

#include <algorithm>

namespace precis::kernels::test {
namespace {

// A valid recipe: that of a random preset, with other protected tokens and windows, and in half of
// the cases with other allocators.
Recipe random_recipe(Rng& rng, bool cuts) {
  while (true) {
    const auto names = preset_names();
    Recipe r =
        parse_recipe(names[pick(rng, 0, static_cast<std::uint32_t>(names.size() - 1))]).value();
    if (r.is_cut() && !cuts) continue;
    if (is_attention(r.scorer) && r.window > 1) r.window = any_of(rng, {1, 8, 32});
    if (r.is_partitioned()) {
      r.lag = any_of(rng, {1, 8, 15, 16, 32});
    } else {
      r.recent = std::max(any_of(rng, {0, 1, 8}), protects_window(r.scorer) ? r.window : 0);
    }
    const bool shares = !r.is_partitioned() && !protects_window(r.scorer);
    r.recent_share_ppm = shares ? any_of(rng, {1'000'000, 0, 50'000}) : 1'000'000;
    r.sinks = any_of(rng, {0, 1, 4});
    r.skip_layers = r.scorer == Scorer::kKnorm ? pick(rng, 0, 2) : 0;
    r.chunk = any_of(rng, {1, 7, 20});
    if (pick(rng, 0, 1) == 1) {
      r.heads = static_cast<HeadAllocator>(pick(rng, 0, 3));
      r.ada_mode = static_cast<AdaMode>(pick(rng, cuts ? 0 : 2, 3));
      r.ada_alpha_ppm = any_of(rng, {0, 50'000, 200'000, 500'000, 1'000'000});
      r.layers = static_cast<LayerAllocator>(pick(rng, 0, 5));
      r.selector = static_cast<Selector>(pick(rng, 0, 4));
      r.protect_tail = r.is_partitioned();
      if (r.protect_tail) r.recent = 0;
      if (r.protect_tail) r.recent_share_ppm = 1'000'000;
    }
    if (validate_recipe(r).ok()) return r;
  }
}

}  // namespace

std::uint32_t any_of(Rng& rng, std::initializer_list<std::uint32_t> values) {
  return values.begin()[pick(rng, 0, static_cast<std::uint32_t>(values.size() - 1))];
}

Case random_case(Rng& rng, bool cuts) {
  Case c;
  c.recipe = random_recipe(rng, cuts);
  c.recipe.encoding = static_cast<Encoding>(pick(rng, 0, 4) / 2);
  const Recipe& r = c.recipe;
  LayerShape& s = c.shape;
  s.num_layers = pick(rng, 1, 4);
  s.num_kv_heads = pick(rng, 1, 4);
  s.group = any_of(rng, {1, 3, 4, 8});
  s.head_dim = any_of(rng, {64, 80, 128, 256});
  s.num_tokens = any_of(rng, {1, 2, 31, 32, 33, 63, 64, 65, 70, 129});
  if (pick(rng, 0, 2) == 0) {  // sizes around the protected counts: sinks, recent, both
    const std::uint32_t recent = r.is_partitioned() ? 2 * r.lag : r.recent;
    const std::uint32_t n = any_of(rng, {r.sinks, recent, r.sinks + recent}) + pick(rng, 0, 2);
    s.num_tokens = std::max(1u, n - std::min(n, 1u));
  }
  s.begin = any_of(rng, {0, 0, 3, 1000});
  s.dtype = pick_dtype(rng);
  s.external = r.scorer == Scorer::kExternal;
  if (r.needs_queries()) {
    s.pushed = r.scorer == Scorer::kObservedMean
                   ? s.num_tokens
                   : std::min(s.num_tokens, any_of(rng, {1, 8, 31, 32, 33}));
  }
  s.behind = s.lse = r.needs_lse();
  s.query_stats = r.needs_query_stats();
  s.o_proj_width = r.needs_o_proj() ? 24 : 0;
  s.probe = r.needs_probe();
  if (r.heads == HeadAllocator::kTable) c.profile = random_profile(s, rng);
  return c;
}

std::vector<OwnedLayer> make_segment(LayerShape shape, Rng& rng) {
  std::vector<OwnedLayer> layers;
  for (shape.layer = 0; shape.layer < shape.num_layers; ++shape.layer) {
    layers.push_back(make_layer(shape, rng));
  }
  return layers;
}

}  // namespace precis::kernels::test

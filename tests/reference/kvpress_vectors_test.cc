// The parity presets against what kvpress 0.5.5 keeps of SmolLM2's KV (D17): the same number in
// every head, the same positions but for one in a thousand, and every difference an exchange of
// scores that are equal or equal within rounding.
#include "tests/reference/kvpress_vectors.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "precis/kernels.h"

using namespace precis;
using namespace precis::kernels;

namespace {

struct Kept {
  std::vector<float> scores;                     // [num_kv_heads, n]
  std::vector<std::vector<std::uint32_t>> kept;  // per head, ascending
};

Kept compress(const Recipe& recipe, const reference::Vectors& v, const reference::Case& c) {
  const reference::Layer& layer = v.layers[c.layer];
  LayerInput in;
  in.num_q_heads = v.num_q_heads;
  in.keys =
      HeadsView::packed(layer.keys.data(), v.num_kv_heads, v.num_tokens, v.head_dim, Dtype::kF16);
  in.values =
      HeadsView::packed(layer.values.data(), v.num_kv_heads, v.num_tokens, v.head_dim, Dtype::kF16);
  in.queries =
      HeadsView::packed(layer.queries.data(), v.num_q_heads, v.window, v.head_dim, Dtype::kF16);
  ModelSpec model;
  model.num_layers = 1;
  model.num_q_heads = v.num_q_heads;
  model.num_kv_heads = v.num_kv_heads;
  model.head_dim = v.head_dim;
  const auto entries =
      budget_entries(recipe, model, v.num_tokens, Budget::ratio_ppm(1'000'000 - c.removed_ppm));
  REQUIRE(entries.ok());

  const auto backend = make_cpu_backend(2);
  Kept result;
  result.scores.resize(std::size_t{v.num_kv_heads} * v.num_tokens);
  RetentionOrders orders;
  LayerPlan plan;
  REQUIRE(backend->check(recipe, in) == Status{});
  REQUIRE(backend->score(recipe, in, result.scores) == Status{});
  REQUIRE(backend->select(recipe, in, result.scores, orders) == Status{});
  REQUIRE(backend->allocate(recipe, in, result.scores, orders, *entries, plan) == Status{});
  result.kept = plan.kept;
  for (auto& positions : result.kept) std::sort(positions.begin(), positions.end());
  return result;
}

// Scores of what `a` keeps and `b` does not, over the given heads, ascending.
std::vector<float> difference(const std::vector<std::vector<std::uint32_t>>& a,
                              const std::vector<std::vector<std::uint32_t>>& b,
                              const std::vector<float>& scores, std::uint32_t num_tokens,
                              std::uint32_t first_head, std::uint32_t last_head) {
  std::vector<float> out;
  for (std::uint32_t h = first_head; h < last_head; ++h) {
    std::vector<std::uint32_t> only;
    std::set_difference(a[h].begin(), a[h].end(), b[h].begin(), b[h].end(),
                        std::back_inserter(only));
    for (const std::uint32_t t : only) out.push_back(scores[h * num_tokens + t]);
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

TEST_CASE("parity presets keep what kvpress 0.5.5 keeps", "[reference][kvpress]") {
  const reference::Vectors v = reference::read_vectors(PRECIS_KVPRESS_VECTORS);
  REQUIRE(v.cases.size() == 28);
  std::map<std::string, int> cases;
  for (const reference::Case& c : v.cases) {
    CAPTURE(c.preset, c.layer, c.removed_ppm);
    const Recipe recipe = parse_recipe(c.preset).value();
    const Kept ours = compress(recipe, v, c);
    for (std::uint32_t h = 0; h < v.num_kv_heads; ++h) {
      CAPTURE(h);
      const auto missing = difference(c.kept, ours.kept, ours.scores, v.num_tokens, h, h + 1);
      // Budgets of ada are the layer's: a swap between heads changes both counts by one.
      if (recipe.heads == HeadAllocator::kUniform) REQUIRE(ours.kept[h].size() == c.kept[h].size());
      // One in a thousand, or one: other instruction sets round the last bits otherwise.
      CHECK(missing.size() <= std::max<std::size_t>(1, c.kept[h].size() / 1000));
    }
    // Pair the differences by size: each pair must be a tie, or as near as f32 sums in another
    // order come. Ranks are small integers over the lag, so theirs must be exact ties.
    const bool per_head = recipe.heads == HeadAllocator::kUniform;
    for (std::uint32_t h = 0; h < (per_head ? v.num_kv_heads : 1); ++h) {
      const std::uint32_t last = per_head ? h + 1 : v.num_kv_heads;
      const auto extra = difference(ours.kept, c.kept, ours.scores, v.num_tokens, h, last);
      const auto missing = difference(c.kept, ours.kept, ours.scores, v.num_tokens, h, last);
      REQUIRE(extra.size() == missing.size());
      const double bound = recipe.scorer == Scorer::kLagkv ? 0 : 1e-5;
      for (std::size_t i = 0; i < extra.size(); ++i) {
        if (extra[i] == missing[i]) continue;
        CHECK(std::fabs(double{extra[i]} - missing[i]) <= bound * std::fabs(missing[i]));
      }
    }
    ++cases[c.preset];
  }
  CHECK(cases == std::map<std::string, int>{{"ada_kvpress", 6},
                                            {"keydiff_kvpress", 6},
                                            {"knorm_kvpress", 6},
                                            {"lagkv_kvpress", 4},
                                            {"snapkv_kvpress", 6}});
}

TEST_CASE("the comparison sees a preset that keeps something else", "[reference][kvpress]") {
  const reference::Vectors v = reference::read_vectors(PRECIS_KVPRESS_VECTORS);
  const auto& c = *std::find_if(v.cases.begin(), v.cases.end(),
                                [](const auto& x) { return x.preset == "snapkv_kvpress"; });
  Recipe other = parse_recipe("snapkv_kvpress").value();
  other.pool = Pool::kMax;
  const Kept ours = compress(other, v, c);
  CHECK(difference(c.kept, ours.kept, ours.scores, v.num_tokens, 0, 1).size() >
        c.kept[0].size() / 1000);
}

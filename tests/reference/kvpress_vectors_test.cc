// Compares the parity presets with the entries that kvpress 0.5.5 keeps of SmolLM2's KV (D17): the
// same number in every head, the same positions except for one in a thousand, and every difference
// is an exchange of scores that are equal or equal within rounding.
#include "tests/reference/kvpress_vectors.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "kernels/cpu_stages.h"
#include "precis/joiner.h"

using namespace precis;
using namespace precis::kernels;

namespace {

using Positions = std::vector<std::vector<std::uint32_t>>;  // per head, ascending

struct Kept {
  LayerScores scores;
  Positions kept;
};

// Compresses a case's layer, as a segment of one layer.
Kept compress(const Recipe& recipe, const reference::Vectors& v, const reference::Case& c) {
  LayerInput in = v.layers[c.layer].input;
  ModelSpec model;
  model.num_layers = 1;
  model.num_q_heads = in.num_q_heads;
  model.num_kv_heads = in.num_kv_heads();
  model.head_dim = in.keys.head_dim;
  in.entries =
      budget_entries(recipe, model, in.num_tokens(), Budget::ratio_ppm(1'000'000 - c.removed_ppm))
          .value();
  const SegmentDims dims{1, in.num_kv_heads(), in.num_tokens(), 0};
  const auto joiner = Joiner::make(recipe, dims, in.entries, nullptr).value();
  const CpuStages cpu(2);
  Kept result;
  RetentionOrders orders;
  LayerTurns turns;
  REQUIRE(cpu.check(recipe, in) == Status{});
  REQUIRE(cpu.score(recipe, in, result.scores) == Status{});
  const std::uint64_t slots = joiner->slots_wanted(0);
  REQUIRE(cpu.select(recipe, in, result.scores, slots, orders) == Status{});
  REQUIRE(cpu.allocate(recipe, in, result.scores, orders, slots, turns) == Status{});
  joiner->add(0, std::move(turns));
  for (std::uint32_t h = 0; h < in.num_kv_heads(); ++h) {
    const auto& order = orders.order[h];
    result.kept.emplace_back(order.begin(), order.begin() + joiner->counts(0)[h]);
    std::sort(result.kept[h].begin(), result.kept[h].end());
  }
  return result;
}

// The tokens of a head that `a` keeps and `b` does not.
std::vector<std::uint32_t> only_in(const Positions& a, const Positions& b, std::size_t head) {
  std::vector<std::uint32_t> only;
  std::set_difference(a[head].begin(), a[head].end(), b[head].begin(), b[head].end(),
                      std::back_inserter(only));
  return only;
}

// The scores, by size, of the tokens of heads [first, last) that `a` keeps and `b` does not.
std::vector<float> difference(const Positions& a, const Positions& b,
                              const std::vector<float>& scores, std::size_t first,
                              std::size_t last) {
  std::vector<float> out;
  const std::size_t n = scores.size() / a.size();
  for (std::size_t h = first; h < last; ++h) {
    for (const std::uint32_t t : only_in(a, b, h)) out.push_back(scores[h * n + t]);
  }
  std::sort(out.begin(), out.end());
  return out;
}

// Whether each difference is an exchange for a score that is equal, or equal within the rounding of
// f32 sums in another order. Pairs differences by size.
bool are_exchanges(const Positions& ours, const Positions& theirs, const std::vector<float>& scores,
                   std::size_t first, std::size_t last, double bound) {
  const auto extra = difference(ours, theirs, scores, first, last);
  const auto missing = difference(theirs, ours, scores, first, last);
  const auto near = [bound](double a, double b) {
    return a == b || std::fabs(a - b) <= bound * std::fabs(b);
  };
  return std::equal(extra.begin(), extra.end(), missing.begin(), missing.end(), near);
}

}  // namespace

TEST_CASE("parity presets keep what kvpress 0.5.5 keeps", "[reference][kvpress]") {
  const reference::Vectors v = reference::read_vectors(PRECIS_KVPRESS_VECTORS);
  std::map<std::string, int> cases;
  for (const reference::Case& c : v.cases) {
    CAPTURE(c.preset, c.layer, c.removed_ppm);
    const Recipe recipe = parse_recipe(c.preset).value();
    const Kept ours = compress(recipe, v, c);
    const bool per_head = recipe.heads == HeadAllocator::kUniform;
    for (std::size_t h = 0; h < c.kept.size(); ++h) {
      CAPTURE(h);
      // Budgets of ada are per layer: an exchange between heads changes both counts by one.
      if (per_head) REQUIRE(ours.kept[h].size() == c.kept[h].size());
      // One in a thousand, or one: other instruction sets round the last bits differently.
      CHECK(only_in(c.kept, ours.kept, h).size() <=
            std::max<std::size_t>(1, c.kept[h].size() / 1000));
    }
    // Ranks are small integers over the lag, so exchanges must be exact ties.
    const double bound = recipe.scorer == Scorer::kLagkv ? 0 : 1e-5;
    const std::size_t heads = c.kept.size(), step = per_head ? 1 : heads;
    for (std::size_t h = 0; h < heads; h += step) {
      // An exchange of two_stage was at the cut of its first or of its second stage.
      CHECK((are_exchanges(ours.kept, c.kept, ours.scores.scores, h, h + step, bound) ||
             (!ours.scores.second.empty() &&
              are_exchanges(ours.kept, c.kept, ours.scores.second, h, h + step, bound))));
    }
    ++cases[c.preset];
  }
  // Below 4 sinks and a tail of 240, lagkv would keep an arbitrary part of the tokens to which
  // kvpress gives one score. Only one layer has the queries of all tokens.
  CHECK(cases == std::map<std::string, int>{{"ada_kvpress", 6},
                                            {"critical_ada_kvpress", 6},
                                            {"critical_kvpress", 6},
                                            {"ea_kvpress", 6},
                                            {"keydiff_kvpress", 6},
                                            {"knorm_kvpress", 6},
                                            {"lagkv_kvpress", 4},
                                            {"observed_kvpress", 3},
                                            {"snapkv_kvpress", 6},
                                            {"tova_kvpress", 6}});
}

TEST_CASE("the comparison sees a preset that keeps something else", "[reference][kvpress]") {
  const reference::Vectors v = reference::read_vectors(PRECIS_KVPRESS_VECTORS);
  const auto& c = *std::find_if(v.cases.begin(), v.cases.end(),
                                [](const auto& x) { return x.preset == "snapkv_kvpress"; });
  Recipe other = parse_recipe("snapkv_kvpress").value();
  other.pool = Pool::kMax;
  const Kept ours = compress(other, v, c);
  CHECK(only_in(c.kept, ours.kept, 0).size() > c.kept[0].size() / 1000);
}

// Compares the policies without a press in kvpress with their papers' equations in float64 NumPy
// (paper_policies.py): scores agree within a bound; the reference's scores give the same order in
// every head and the same counts at every budget.
#include "tests/reference/paper_vectors.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/cpu_stages.h"
#include "precis/joiner.h"

using namespace precis;
using namespace precis::kernels;

namespace {

// f32 sums of 32 products give logits of size about 20; the bound is relative to a score.
constexpr double kScoreBound = 1e-4;
constexpr double kWeightBound = 1e-4;

const reference::PaperVectors& vectors() {
  static const reference::PaperVectors v = reference::read_paper_vectors(PRECIS_PAPER_VECTORS);
  return v;
}

// kvzip uses the queries behind the segment.
LayerInput input_for(const Recipe& recipe, const reference::PaperLayer& layer) {
  LayerInput input = layer.input;
  if (!recipe.needs_lse()) return input;
  input.queries = layer.behind_view;
  input.lse = layer.behind_lse;
  return input;
}

// The largest difference relative to the expected value; infinity if a difference is not finite.
double worst(const std::vector<float>& got, const std::vector<float>& expected) {
  if (got.size() != expected.size()) return INFINITY;
  double largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i]) continue;
    const double difference = std::fabs(double{got[i]} - expected[i]);
    largest = std::max(largest, difference / std::fabs(double{expected[i]}));
    if (!std::isfinite(difference)) return INFINITY;
  }
  return largest;
}

// Every layer's counts at a budget, from the reference's scores.
std::vector<std::vector<std::uint32_t>> counts_at(const CpuStages& cpu, const Recipe& recipe,
                                                  const reference::PaperCase& c,
                                                  std::uint64_t entries) {
  const LayerInput& first = vectors().layers[0].input;
  const SegmentDims dims{first.num_layers, first.num_kv_heads(), first.num_tokens(), 0};
  const auto joiner =
      Joiner::make(recipe, dims, entries, c.profile ? &*c.profile : nullptr).value();
  for (std::uint32_t l = 0; l < dims.num_layers; ++l) {
    const LayerInput input = input_for(recipe, vectors().layers[l]);
    RetentionOrders orders;
    LayerTurns turns;
    const std::uint64_t slots = joiner->slots_wanted(l);
    REQUIRE(cpu.select(recipe, input, c.layers[l].scores, slots, orders) == Status{});
    REQUIRE(cpu.allocate(recipe, input, c.layers[l].scores, orders, slots, turns) == Status{});
    joiner->add(l, std::move(turns));
  }
  std::vector<std::vector<std::uint32_t>> counts;
  for (std::uint32_t l = 0; l < dims.num_layers; ++l) counts.push_back(joiner->counts(l));
  return counts;
}

}  // namespace

TEST_CASE("scores are those of the papers' equations", "[reference][paper]") {
  const CpuStages cpu(2);
  REQUIRE(vectors().cases.size() == 19);
  for (const reference::PaperCase& c : vectors().cases) {
    const Recipe recipe = parse_recipe(c.recipe).value();
    for (std::size_t l = 0; l < c.layers.size(); ++l) {
      CAPTURE(c.recipe, l);
      const LayerInput input = input_for(recipe, vectors().layers[l]);
      const LayerScores& expected = c.layers[l].scores;
      LayerScores got;
      REQUIRE(cpu.check(recipe, input) == Status{});
      REQUIRE(cpu.score(recipe, input, got) == Status{});
      CHECK(worst(got.scores, expected.scores) <= kScoreBound);
      // The second score of a protected token is undefined.
      for (std::size_t i = 0; i < expected.second.size(); ++i) {
        if (std::isinf(expected.scores[i])) got.second[i] = expected.second[i];
      }
      CHECK(worst(got.second, expected.second) <= kScoreBound);
      CHECK(std::fabs(double{got.weight} - expected.weight) <=
            kWeightBound * std::fabs(expected.weight));
    }
  }
}

TEST_CASE("orders are those that follow from the papers' scores", "[reference][paper]") {
  const CpuStages cpu(2);
  for (const reference::PaperCase& c : vectors().cases) {
    const Recipe recipe = parse_recipe(c.recipe).value();
    for (std::size_t l = 0; l < c.layers.size(); ++l) {
      CAPTURE(c.recipe, l);
      RetentionOrders orders;
      const LayerInput input = input_for(recipe, vectors().layers[l]);
      const std::uint64_t all = std::uint64_t{input.num_kv_heads()} * input.num_tokens();
      REQUIRE(cpu.select(recipe, input, c.layers[l].scores, all, orders) == Status{});
      CHECK(orders.order == c.layers[l].order);
    }
  }
}

TEST_CASE("budgets go to the layers and heads that the papers' scores give them to",
          "[reference][paper]") {
  const CpuStages cpu(2);
  for (const reference::PaperCase& c : vectors().cases) {
    const Recipe recipe = parse_recipe(c.recipe).value();
    for (std::size_t b = 0; b < vectors().budgets.size(); ++b) {
      CAPTURE(c.recipe, vectors().budgets[b]);
      const auto counts = counts_at(cpu, recipe, c, vectors().budgets[b]);
      for (std::size_t l = 0; l < c.layers.size(); ++l) {
        CAPTURE(l);
        CHECK(counts[l] == c.layers[l].counts[b]);
      }
    }
  }
}

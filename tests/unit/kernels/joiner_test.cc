// The joiner across layers: the cascade, shares of weighed layers, tables.
#include "precis/joiner.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "kernels/allocate/turns.h"
#include "precis/score_mass.h"
#include "tests/unit/kernels/layer_fixture.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

std::vector<OwnedLayer> make_segment(LayerShape shape, Rng& rng) {
  std::vector<OwnedLayer> layers;
  for (shape.layer = 0; shape.layer < shape.num_layers; ++shape.layer) {
    layers.push_back(make_layer(shape, rng));
  }
  return layers;
}

std::uint64_t sum(const std::vector<std::uint32_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

LayerShape random_shape(Rng& rng) {
  LayerShape shape;
  shape.num_layers = pick(rng, 0, 3) > 0 ? pick(rng, 1, 6) : pick(rng, 20, 40);
  shape.num_kv_heads = pick(rng, 1, 4);
  shape.num_tokens = pick(rng, 1, 90);
  shape.external = true;
  return shape;
}

// A recipe with a random layer allocator over external scores. The allocator preference needs
// attention instead of external scores, so for this allocator the shape pushes queries.
Recipe random_order(LayerShape& shape, Rng& rng) {
  while (true) {
    const auto layers = static_cast<LayerAllocator>(pick(rng, 0, 5));
    const bool attends = layers == LayerAllocator::kPreference;
    Recipe recipe = scorer_defaults(attends ? Scorer::kCake : Scorer::kExternal);
    recipe.layers = layers;
    if (attends) recipe.window = pick(rng, 1, 6);
    recipe.sinks = pick(rng, 0, 3);
    recipe.recent = (attends ? recipe.window : 0) + pick(rng, 0, 3);
    recipe.heads = static_cast<HeadAllocator>(pick(rng, 0, 3));
    recipe.ada_alpha_ppm = pick(rng, 0, 10) * 100'000;
    recipe.ada_mode =
        pick(rng, 0, 1) ? AdaMode::kGuaranteeExclWindow : AdaMode::kGuaranteeInclWindow;
    if (!validate_recipe(recipe).ok()) continue;
    shape.external = !attends;
    shape.pushed = attends ? std::min(recipe.window, shape.num_tokens) : 0;
    return recipe;
  }
}

// Stages a segment as the put path does, with layers in the given order: records shrink as other
// layers are added, and seats are placed at the end. Fails the test if more is staged than the
// budget.
std::vector<AlignedBytes> cascade(const CpuStages& cpu, const Recipe& recipe,
                                  const std::vector<OwnedLayer>& layers, std::uint64_t entries,
                                  const Profile& profile, const std::vector<std::uint32_t>& order) {
  const LayerInput& first = layers.front().input;
  const SegmentDims dims = dims_of(layers);
  const auto joiner = Joiner::make(recipe, dims, entries, &profile).value();
  std::vector<AlignedBytes> records(layers.size());
  std::vector<std::vector<std::uint32_t>> counts(layers.size());
  for (const std::uint32_t l : order) {
    const LayerInput& input = layers[l].input;
    LayerScores scores;
    RetentionOrders orders;
    LayerTurns turns;
    REQUIRE(cpu.score(recipe, input, scores).ok());
    const std::uint64_t slots = joiner->slots_wanted(l);
    REQUIRE(cpu.select(recipe, input, scores, slots, orders).ok());
    REQUIRE(cpu.allocate(recipe, input, scores, orders, slots, turns).ok());
    joiner->add(l, std::move(turns));
    std::uint64_t staged = 0;
    for (std::uint32_t seen = 0; seen < layers.size(); ++seen) {
      if (seen == l) {
        counts[l] = joiner->counts(l);
        records[l] =
            AlignedBytes(encoded_bytes(counts[l], {input.keys.head_dim, input.keys.dtype}));
        REQUIRE(cpu.encode(input, scores, orders, counts[l], {}, SegmentId{{1, 2, 3}},
                           records[l].mutable_bytes())
                    .ok());
      } else if (!counts[seen].empty()) {
        for (std::size_t h = 0; h < counts[seen].size(); ++h) {
          REQUIRE(joiner->counts(seen)[h] <= counts[seen][h]);
        }
        counts[seen] = joiner->counts(seen);
        const auto size = trim_records(records[seen].mutable_bytes(), counts[seen]);
        REQUIRE(size.ok());
        AlignedBytes shorter(*size);
        std::copy_n(records[seen].bytes().begin(), *size, shorter.mutable_bytes().begin());
        records[seen] = std::move(shorter);
      }
      staged += sum(counts[seen]);
    }
    // A budget that ends within a step of the guarantee may hold one more entry of each head.
    const std::uint64_t heads = first.num_layers * first.num_kv_heads();
    const bool is_even = entries % heads == 0 && std::ranges::all_of(layers, [&](const auto& each) {
                           return each.input.num_tokens() == dims.num_tokens;
                         });
    REQUIRE(staged <= entries + (is_even ? 0 : heads));
  }
  for (std::uint32_t l = 0; l < layers.size(); ++l) {
    const MutableBytes layer = records[l].mutable_bytes();
    REQUIRE(place_seats(layer, joiner->seats(l)).ok());
    REQUIRE(cpu.seal(std::span(&layer, 1)).ok());
  }
  return records;
}

}  // namespace

TEST_CASE("the cascade ends where a segment joined at once does, whatever the order of its layers",
          "[kernels][joiner]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  const CpuStages cpu(1);
  for (int round = 0; round < 200; ++round) {
    LayerShape shape = random_shape(rng);
    const Recipe recipe = random_order(shape, rng);
    auto layers = make_segment(shape, rng);
    narrow(recipe, random_windows(shape, rng), layers);
    const Profile profile = random_profile(shape, rng);
    const std::uint64_t entries = pick(rng, 1, static_cast<std::uint32_t>(entries_max(layers)));
    std::vector<std::uint32_t> order(shape.num_layers);
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), rng);
    CAPTURE(round, shape.text(), canonical_recipe(recipe), entries);
    const auto staged = cascade(cpu, recipe, layers, entries, profile, order);
    const auto whole = compress_segment(cpu, recipe, layers, entries, &profile);
    for (std::size_t l = 0; l < layers.size(); ++l) {
      REQUIRE(bytes_text(staged[l].bytes()) == bytes_text(whole[l].records.bytes()));
    }
  }
}

TEST_CASE("a guarantee over many layers is a cut where half of the heads hold the best scores",
          "[kernels][joiner]") {
  // Before the last layer is added, the average budget is larger than at the end. Just below a step
  // of the guarantee, the guarantee is larger too.
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  LayerShape shape;
  shape.num_layers = 30;
  shape.num_kv_heads = 3;
  shape.num_tokens = 300;
  shape.head_dim = 1;
  shape.external = true;
  std::vector<OwnedLayer> layers = make_segment(shape, rng);
  for (std::uint32_t l = 0; l < shape.num_layers; ++l) {
    for (std::uint32_t i = 0; i < 3 * shape.num_tokens; ++i) {
      const bool strong = l + 1 < shape.num_layers && (l + i / shape.num_tokens) % 2 == 0;
      layers[l].scores[i] = static_cast<float>(pick(rng, 0, 1'000'000)) * (strong ? 1.0f : 0.01f);
    }
  }
  Recipe recipe = scorer_defaults(Scorer::kExternal);
  recipe.sinks = 4;
  recipe.heads = HeadAllocator::kAda;
  recipe.ada_alpha_ppm = 50'000;
  recipe.layers = LayerAllocator::kGlobalFlat;
  const CpuStages cpu(2);
  const std::uint64_t heads = 90;
  const auto all = compress_segment(cpu, recipe, layers, heads * shape.num_tokens);
  for (const std::uint64_t average : {23, 24, 43, 63, 83, 103, 104}) {
    const auto fresh = compress_segment(cpu, recipe, layers, heads * average);
    for (std::uint32_t l = 0; l < shape.num_layers; ++l) {
      const auto stored = open_all(all[l].records);
      CAPTURE(average, l);
      for (std::uint32_t h = 0; h < 3; ++h) {
        REQUIRE(count_at(stored[h], heads * average) == fresh[l].counts[h]);
      }
    }
  }
}

TEST_CASE("highest averages keep within one seat of the exact share, within two beyond three",
          "[kernels][joiner]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> weights(pick(rng, 1, 8));
    for (float& w : weights) w = static_cast<float>(pick(rng, 1, 1000)) / 7.0f;
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    const std::uint64_t seats = pick(rng, 0, 5000);
    const std::vector<std::uint64_t> caps(weights.size(), seats);
    const auto counts = highest_averages_counts(weights, caps, seats);
    std::vector<std::uint64_t> walked(weights.size());
    for (const std::uint32_t c : highest_averages(weights, caps, seats)) ++walked[c];
    CAPTURE(round, weights, seats);
    REQUIRE(counts == walked);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double exact = weights[i] / total * static_cast<double>(seats);
      REQUIRE(std::fabs(static_cast<double>(counts[i]) - exact) <= (weights.size() > 3 ? 2 : 1));
    }
  }
}

TEST_CASE("the last seat goes to the lower of two that claim it alike", "[kernels][joiner]") {
  // 15 over 295 and 63 over 1239 are the same priority.
  const std::vector<float> weights{123, 15, 222.0f / 7, 627.0f / 7, 838.0f / 7, 331.0f / 7, 63};
  for (std::uint64_t seats = 4700; seats < 4900; ++seats) {
    const std::vector<std::uint64_t> caps(weights.size(), seats);
    std::vector<std::uint64_t> walked(weights.size());
    for (const std::uint32_t c : highest_averages(weights, caps, seats)) ++walked[c];
    REQUIRE(highest_averages_counts(weights, caps, seats) == walked);
  }
}

TEST_CASE("turns are seats one after the other, those who are full left out", "[kernels][joiner]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::uint64_t> caps(pick(rng, 1, 6));
    std::uint64_t all = 0;
    for (std::uint64_t& cap : caps) all += cap = pick(rng, 0, 3) == 0 ? 0 : pick(rng, 0, 20);
    const std::uint64_t seats = rng() % (all + 5), before = pick(rng, 0, 9);
    std::vector<std::vector<std::uint32_t>> walked(caps.size());
    std::uint32_t seat = 0;
    for (std::uint64_t k = 0; k < 20; ++k) {
      for (std::size_t c = 0; c < caps.size(); ++c) {
        if (k >= caps[c] || seat >= seats) continue;
        walked[c].push_back(static_cast<std::uint32_t>(before) + ++seat);
      }
    }
    CAPTURE(round, caps, seats, before);
    const auto turns = deal_in_turns(caps, seats);
    for (std::size_t c = 0; c < caps.size(); ++c) {
      std::vector<std::uint32_t> got;
      turns->append_seats(c, before, got);
      REQUIRE(got == walked[c]);
      REQUIRE(turns->count(c) == walked[c].size());
    }
  }
}

TEST_CASE("weights that are all zero are equal, and a full competitor's seats flow on",
          "[kernels][joiner]") {
  const std::vector<float> none(3), some{5, 0, 1};
  const std::vector<std::uint64_t> caps{2, 10, 10};
  CHECK(highest_averages_counts(none, caps, 9) == std::vector<std::uint64_t>{2, 4, 3});
  CHECK(highest_averages_counts(some, caps, 5) == std::vector<std::uint64_t>{2, 0, 3});
  CHECK(highest_averages_counts(some, caps, 15) == std::vector<std::uint64_t>{2, 3, 10});
  CHECK(highest_averages_counts(some, caps, 99) == std::vector<std::uint64_t>{2, 10, 10});
}

TEST_CASE("pyramid layers fall in a line over the ranked entries, sums exact",
          "[kernels][joiner]") {
  Recipe recipe = scorer_defaults(Scorer::kExternal);
  recipe.layers = LayerAllocator::kPyramid;
  const SegmentDims dims{5, 2, 1000, 0};
  const auto joiner = Joiner::make(recipe, dims, 2000, nullptr).value();
  std::uint64_t total = 0;
  for (std::uint32_t l = 0; l < 5; ++l) {
    total += joiner->slots_wanted(l);
    const double e = 39.0 * (4 - l) + l;  // beta 20
    CHECK(std::fabs(static_cast<double>(joiner->slots_wanted(l)) - 2000 * e / 400) <= 2);
  }
  CHECK(total == 2000);
}

TEST_CASE("at a percentage of its table, heads keep what their curves say", "[kernels][joiner]") {
  Profile profile;
  profile.num_layers = 2;
  profile.num_kv_heads = 2;
  // Head c is pruned c + 1 times as fast as head 0, until nothing is left. Up to 62%, the heads'
  // mean is the row's percentage.
  for (std::uint32_t percent = 1; percent <= Profile::kCurveRows; ++percent) {
    for (const float speed : {0.4f, 0.8f, 1.2f, 1.6f}) {
      profile.table.push_back(std::min(1.0f, speed * static_cast<float>(percent) / 100.0f));
    }
  }
  Recipe recipe = scorer_defaults(Scorer::kExternal);
  recipe.heads = HeadAllocator::kTable;
  recipe.layers = LayerAllocator::kTable;
  const SegmentDims dims{2, 2, 1000, 0};
  const auto joiner = Joiner::make(recipe, dims, 2000, &profile).value();  // half of all
  CHECK(joiner->counts(0) == std::vector<std::uint32_t>{800, 600});
  CHECK(joiner->counts(1) == std::vector<std::uint32_t>{400, 200});
  CHECK(Joiner::make(recipe, dims, 2000, nullptr).status().code() == StatusCode::kInvalidArgument);
  profile.num_layers = 3;
  CHECK(Joiner::make(recipe, dims, 2000, &profile).status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("a probe's prediction above all attention counts as all of it in the mass",
          "[kernels][joiner]") {
  const float infinity = std::numeric_limits<float>::infinity();
  const Recipe keydiff = scorer_defaults(Scorer::kKeydiff);
  const Recipe probe = scorer_defaults(Scorer::kKvprobe);
  CHECK(entry_mass(keydiff, 0.75f, 0.25f) == 0.5);
  CHECK(entry_mass(keydiff, 9.25f, 0.25f) == 9);
  CHECK(entry_mass(probe, 0.75f, 0.25f) == 0.5);
  CHECK(entry_mass(probe, 9.25f, 0.25f) == 0.75);
  CHECK(entry_mass(probe, 9.25f, 8.0f) == 0);  // where all predictions of a head are above 1
  for (const Recipe& recipe : {keydiff, probe}) CHECK(entry_mass(recipe, infinity, 0.25f) == 0);
}

TEST_CASE("records cannot be trimmed to more than they hold, nor bytes that are none",
          "[kernels][joiner]") {
  Rng rng(5);
  const OwnedLayer layer = make_layer({}, rng);
  const CpuStages cpu(1);
  Compressed c = compress(cpu, Recipe{}, layer.input, 10);
  const std::vector<std::uint32_t> more{6, 6}, one{5};
  CHECK(trim_records(c.records.mutable_bytes(), more).status().code() == StatusCode::kCorruption);
  CHECK(trim_records(c.records.mutable_bytes(), one).status().code() == StatusCode::kCorruption);
  CHECK(place_seats(c.records.mutable_bytes(), {{1}, {2}}).code() == StatusCode::kCorruption);
  AlignedBytes noise(256, std::byte{0x5a});
  CHECK(trim_records(noise.mutable_bytes(), one).status().code() == StatusCode::kCorruption);
}

// A budget is a cut: over random shapes, scores and recipes, seats are a permutation, sums are
// exact, and a fresh compression at any smaller budget equals the cut of a larger one, byte for
// byte.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <optional>

#include "precis/recipe.h"
#include "tests/unit/kernels/layer_fixture.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

struct Case {
  Recipe recipe;
  LayerShape shape;
  std::optional<Profile> profile;
  const Profile* table() const { return profile ? &*profile : nullptr; }
};

std::uint32_t any_of(Rng& rng, std::initializer_list<std::uint32_t> values) {
  return values.begin()[pick(rng, 0, static_cast<std::uint32_t>(values.size() - 1))];
}

// The recipe of a preset that is an order, with other protected tokens, windows and allocators, as
// far as recipes may be combined.
Recipe random_recipe(Rng& rng) {
  while (true) {
    const auto names = preset_names();
    Recipe r =
        parse_recipe(names[pick(rng, 0, static_cast<std::uint32_t>(names.size() - 1))]).value();
    if (r.is_cut()) continue;
    if (is_attention(r.scorer) && r.window > 1) r.window = any_of(rng, {1, 8, 32});
    if (r.is_partitioned()) {
      r.lag = any_of(rng, {1, 8, 15, 16, 32});
    } else {
      r.recent = std::max(any_of(rng, {0, 1, 8}), protects_window(r.scorer) ? r.window : 0);
    }
    r.sinks = any_of(rng, {0, 1, 4});
    r.skip_layers = r.scorer == Scorer::kKnorm ? pick(rng, 0, 2) : 0;
    r.chunk = any_of(rng, {1, 7, 20});
    if (pick(rng, 0, 1) == 1) {
      r.heads = static_cast<HeadAllocator>(pick(rng, 0, 3));
      r.ada_mode = pick(rng, 0, 1) ? AdaMode::kGuaranteeExclWindow : AdaMode::kGuaranteeInclWindow;
      r.ada_alpha_ppm = any_of(rng, {0, 50'000, 200'000, 500'000, 1'000'000});
      r.layers = static_cast<LayerAllocator>(pick(rng, 0, 5));
      r.selector = static_cast<Selector>(pick(rng, 0, 4));
      r.protect_tail = r.is_partitioned();
      if (r.protect_tail) r.recent = 0;
    }
    if (validate_recipe(r).ok()) return r;
  }
}

// Every scorer, allocator and selector that is an order, at the borders of its shapes.
Case random_case(Rng& rng) {
  Case c;
  c.recipe = random_recipe(rng);
  const Recipe& r = c.recipe;
  LayerShape& s = c.shape;
  s.num_layers = pick(rng, 1, 4);
  s.num_kv_heads = pick(rng, 1, 4);
  s.group = any_of(rng, {1, 3, 4, 8});
  s.head_dim = any_of(rng, {64, 80, 128, 256});
  s.num_tokens = any_of(rng, {1, 2, 31, 32, 33, 63, 64, 65, 70, 129});
  if (pick(rng, 0, 2) == 0) {  // around what is protected: sinks, the recent ones, both
    const std::uint32_t recent = r.is_partitioned() ? 2 * r.lag : r.recent;
    const std::uint32_t n = any_of(rng, {r.sinks, recent, r.sinks + recent}) + pick(rng, 0, 2);
    s.num_tokens = std::max(1u, n - std::min(n, 1u));
  }
  s.begin = any_of(rng, {0, 0, 3, 1000});
  s.dtype = static_cast<Dtype>(pick(rng, 1, 3));
  s.external = r.scorer == Scorer::kExternal;
  if (r.needs_queries()) {
    s.pushed = r.scorer == Scorer::kObservedMean
                   ? s.num_tokens
                   : std::min(s.num_tokens, any_of(rng, {1, 8, 31, 32, 33}));
  }
  s.behind = s.lse = r.needs_lse();
  s.query_stats = r.needs_query_stats();
  s.o_proj_width = r.needs_o_proj() ? 24 : 0;
  if (r.needs_profile()) c.profile = random_profile(s, rng);
  return c;
}

std::vector<OwnedLayer> make_segment(LayerShape shape, Rng& rng) {
  std::vector<OwnedLayer> layers;
  for (shape.layer = 0; shape.layer < shape.num_layers; ++shape.layer) {
    layers.push_back(make_layer(shape, rng));
  }
  return layers;
}

std::vector<std::vector<RecordView>> open_segment(const std::vector<Compressed>& layers) {
  std::vector<std::vector<RecordView>> records;
  for (const Compressed& layer : layers) records.push_back(open_all(layer.records));
  return records;
}

// Seats 1 to T, each once, ascending within each head.
void check_seats(const std::vector<std::vector<RecordView>>& records, std::uint64_t entries) {
  std::vector<std::uint32_t> seats;
  for (const auto& layer : records) {
    for (const RecordView& r : layer) {
      REQUIRE(std::is_sorted(r.seats.begin(), r.seats.end()));
      seats.insert(seats.end(), r.seats.begin(), r.seats.end());
    }
  }
  std::sort(seats.begin(), seats.end());
  std::vector<std::uint32_t> expected(entries);
  std::iota(expected.begin(), expected.end(), 1u);
  REQUIRE(seats == expected);
}

// The entries of `fresh` are those of `stored` at `entries`.
void check_cut(const RecordView& stored, const RecordView& fresh, std::uint64_t entries) {
  const std::uint32_t count = count_at(stored, entries);
  REQUIRE(count == fresh.count);
  const auto cut = cut_ranges(stored, count), whole = cut_ranges(fresh, count);
  for (std::size_t section = 0; section < cut.size(); ++section) {
    CAPTURE(section);
    REQUIRE(bytes_text(cut[section]) == bytes_text(whole[section]));
  }
  // The cut's last block verifies against the checksum that the fresh record holds for it.
  if (count % kChecksumBlockEntries == 0) return;
  REQUIRE(cut_tail_checksum(stored, count).value() == fresh.checksums.back());
}

}  // namespace

TEST_CASE("a fresh compression at any smaller budget is the cut of a larger one",
          "[kernels][cut]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  const auto backend = make_cpu_backend(2);
  for (int round = 0; round < 150; ++round) {
    const Case c = random_case(rng);
    CAPTURE(round, c.shape.text(), canonical_recipe(c.recipe));
    const auto layers = make_segment(c.shape, rng);
    const std::uint64_t all =
        std::uint64_t{c.shape.num_layers} * c.shape.num_kv_heads * c.shape.num_tokens;
    const std::uint64_t large =
        pick(rng, 0, 1) ? all : pick(rng, 1, static_cast<std::uint32_t>(all));
    const auto stored = compress_segment(*backend, c.recipe, layers, large, c.table());
    const auto records = open_segment(stored);
    check_seats(records, large);
    for (int budget = 0; budget < 3; ++budget) {
      const std::uint64_t small = pick(rng, 1, static_cast<std::uint32_t>(large));
      CAPTURE(large, small);
      const auto fresh = compress_segment(*backend, c.recipe, layers, small, c.table());
      const auto fresh_records = open_segment(fresh);
      check_seats(fresh_records, small);
      for (std::size_t l = 0; l < records.size(); ++l) {
        for (std::size_t h = 0; h < records[l].size(); ++h) {
          check_cut(records[l][h], fresh_records[l][h], small);
        }
      }
    }
  }
}

TEST_CASE("a budget of everything keeps every token of every head", "[kernels][cut]") {
  Rng rng(6);
  const auto backend = make_cpu_backend(2);
  for (int round = 0; round < 20; ++round) {
    const Case c = random_case(rng);
    const auto layers = make_segment(c.shape, rng);
    const std::uint64_t all =
        std::uint64_t{c.shape.num_layers} * c.shape.num_kv_heads * c.shape.num_tokens;
    const auto stored = compress_segment(*backend, c.recipe, layers, all, c.table());
    for (const auto& layer : open_segment(stored)) {
      for (const RecordView& r : layer) {
        std::vector<std::uint32_t> positions(r.positions.begin(), r.positions.end());
        std::sort(positions.begin(), positions.end());
        std::vector<std::uint32_t> expected(c.shape.num_tokens);
        std::iota(expected.begin(), expected.end(), c.shape.begin);
        REQUIRE(positions == expected);
      }
    }
  }
}

TEST_CASE("G copies of a query head score as one does", "[kernels][cut]") {
  Rng rng(8);
  LayerShape shape;
  shape.pushed = 8;
  const OwnedLayer one = make_layer(shape, rng);
  OwnedLayer four = make_layer(shape, rng);
  four.input = one.input;
  four.input.num_q_heads = 8;
  four.queries.clear();
  for (std::uint32_t q = 0; q < 8; ++q) {
    const std::byte* head = one.input.queries.head(q / 4);
    four.queries.insert(four.queries.end(), head, head + one.input.queries.head_bytes());
  }
  four.input.queries = HeadsView::packed(four.queries.data(), 8, 8, shape.head_dim, shape.dtype);
  Recipe recipe;
  recipe.scorer = Scorer::kWindowAttention;
  recipe.window = recipe.recent = 8;
  recipe.group_reduce = GENERATE(Reduce::kMean, Reduce::kMax);
  const auto backend = make_cpu_backend(2);
  const Compressed a = compress(*backend, recipe, one.input, 40);
  const Compressed b = compress(*backend, recipe, four.input, 40);
  for (std::uint32_t h = 0; h < 2; ++h) CHECK(a.kept(h) == b.kept(h));
}

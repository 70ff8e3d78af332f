// A budget is a cut: over random shapes, scores and recipes, seats are a permutation, sums are
// exact, and a fresh compression at any smaller budget equals the cut of a larger one, byte for
// byte.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "tests/unit/kernels/random_cases.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

std::vector<std::vector<RecordView>> open_segment(const std::vector<Compressed>& layers) {
  std::vector<std::vector<RecordView>> records;
  for (const Compressed& layer : layers) records.push_back(open_all(layer.records));
  return records;
}

// Checks that the seats are 1 to T, each once, and that they ascend within each head.
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

// Checks that the entries of `fresh` are those of `stored` at `entries`.
void check_cut(const RecordView& stored, const RecordView& fresh, std::uint64_t entries) {
  const std::uint32_t count = count_at(stored, entries);
  REQUIRE(count == fresh.count);
  const auto cut = cut_ranges(stored, count), whole = cut_ranges(fresh, count);
  for (std::size_t section = 0; section < cut.size(); ++section) {
    CAPTURE(section);
    REQUIRE(bytes_text(cut[section]) == bytes_text(whole[section]));
  }
  // The cut, written as a record, equals the fresh record.
  const auto layout = RecordLayout::of(count, stored.entry_form());
  std::vector<std::byte> written(layout.size, std::byte{0xff});
  REQUIRE(write_cut(stored, count, written).ok());
  const auto* begin = reinterpret_cast<const std::byte*>(fresh.checksums.data()) - layout.checksums;
  REQUIRE(bytes_text(written) == bytes_text({begin, written.size()}));
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
  const CpuStages cpu(2);
  for (int round = 0; round < 150; ++round) {
    const Case c = random_case(rng, /*cuts=*/false);
    CAPTURE(round, c.shape.text(), canonical_recipe(c.recipe));
    auto layers = make_segment(c.shape, rng);
    narrow(c.recipe, random_windows(c.shape, rng), layers);
    const std::uint64_t all = entries_max(layers);
    const std::uint64_t large =
        pick(rng, 0, 1) ? all : pick(rng, 1, static_cast<std::uint32_t>(all));
    const auto stored = compress_segment(cpu, c.recipe, layers, large, c.table());
    const auto records = open_segment(stored);
    check_seats(records, large);
    for (int budget = 0; budget < 3; ++budget) {
      const std::uint64_t small = pick(rng, 1, static_cast<std::uint32_t>(large));
      CAPTURE(large, small);
      const auto fresh = compress_segment(cpu, c.recipe, layers, small, c.table());
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

TEST_CASE("a budget of everything keeps every token that a head sees", "[kernels][cut]") {
  Rng rng(6);
  const CpuStages cpu(2);
  for (int round = 0; round < 20; ++round) {
    const Case c = random_case(rng, /*cuts=*/false);
    auto layers = make_segment(c.shape, rng);
    narrow(c.recipe, random_windows(c.shape, rng), layers);
    const auto stored = compress_segment(cpu, c.recipe, layers, entries_max(layers), c.table());
    const auto records = open_segment(stored);
    for (std::size_t l = 0; l < layers.size(); ++l) {
      for (const RecordView& r : records[l]) {
        std::vector<std::uint32_t> positions(r.positions.begin(), r.positions.end());
        std::sort(positions.begin(), positions.end());
        std::vector<std::uint32_t> expected(layers[l].input.num_tokens());
        std::iota(expected.begin(), expected.end(), layers[l].input.begin);
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
  const CpuStages cpu(2);
  const Compressed a = compress(cpu, recipe, one.input, 40);
  const Compressed b = compress(cpu, recipe, four.input, 40);
  for (std::uint32_t h = 0; h < 2; ++h) CHECK(a.kept(h) == b.kept(h));
}

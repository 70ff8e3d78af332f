// place_cut_seats: recipes that are cuts get their seats by score over all layers.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/unit/kernels/layer_fixture.h"
#include "tests/unit/kernels/reference.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

struct Entry {
  float score;
  std::uint32_t layer, head, position, seat;
};

std::vector<Entry> by_seat(const std::vector<Compressed>& layers) {
  std::vector<Entry> entries;
  for (const Compressed& layer : layers) {
    for (const RecordView& r : open_all(layer.records)) {
      REQUIRE(std::is_sorted(r.seats.begin(), r.seats.end()));
      for (std::uint32_t k = 0; k < r.count; ++k) {
        entries.push_back({r.scores[k], r.layer, r.head, r.positions[k], r.seats[k]});
      }
    }
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.seat < b.seat; });
  return entries;
}

std::vector<OwnedLayer> make_segment(LayerShape shape, Rng& rng) {
  std::vector<OwnedLayer> layers;
  for (shape.layer = 0; shape.layer < shape.num_layers; ++shape.layer) {
    layers.push_back(make_layer(shape, rng));
  }
  return layers;
}

Recipe blend() {
  Recipe r;
  r.scorer = Scorer::kExternal;
  r.heads = HeadAllocator::kAda;
  r.ada_mode = AdaMode::kRepoBlend;
  return r;
}

}  // namespace

TEST_CASE("seats of a cut go by score, layer, head, position", "[kernels][cut_seats]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  const CpuStages cpu(2);
  for (int round = 0; round < 40; ++round) {
    LayerShape shape;
    shape.num_layers = pick(rng, 1, 3);
    shape.num_kv_heads = pick(rng, 1, 3);
    shape.num_tokens = pick(rng, 1, 80);
    shape.external = true;
    const auto layers = make_segment(shape, rng);
    const std::uint32_t entries =
        shape.num_layers * pick(rng, 1, shape.num_kv_heads * shape.num_tokens);
    const auto got = by_seat(compress_segment(cpu, blend(), layers, entries));
    REQUIRE(got.size() == entries);
    for (std::size_t i = 0; i < got.size(); ++i) REQUIRE(got[i].seat == i + 1);
    REQUIRE(std::is_sorted(got.begin(), got.end(), [](const Entry& a, const Entry& b) {
      const int order = compare_scores(a.score, b.score);
      if (order != 0) return order < 0;
      return std::tie(a.layer, a.head, a.position) < std::tie(b.layer, b.head, b.position);
    }));
  }
}

TEST_CASE("protected entries without a score of their own come first, sinks before recent ones",
          "[kernels][cut_seats]") {
  Rng rng(3);
  LayerShape shape;
  shape.num_layers = 2;
  shape.num_kv_heads = 1;
  shape.pushed = 4;
  const auto layers = make_segment(shape, rng);
  Recipe r;
  r.scorer = Scorer::kWindowAttention;
  r.window = r.recent = 4;
  r.kernel = 5;
  r.count_rule = CountRule::kKvpressDouble;
  const CpuStages cpu(2);
  const auto got = by_seat(compress_segment(cpu, r, layers, 2 * 10));
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(std::isinf(got[i].score) == (i < 8));
  CHECK((got[0].position == 39 && got[3].position == 36 && got[0].layer == 0 && got[4].layer == 1));
}

TEST_CASE("a protected entry with a low score holds back neither its head nor itself",
          "[kernels][cut_seats]") {
  Rng rng(3);
  LayerShape shape;
  shape.num_kv_heads = 2;
  shape.num_tokens = 6;
  shape.external = true;
  std::vector<OwnedLayer> layers = make_segment(shape, rng);
  layers[0].scores = {-9, 5, 4, 0, 0, 0, -8, 3, 2, 0, 0, 0};
  Recipe r = blend();
  r.sinks = 1;
  const CpuStages cpu(1);
  const auto got = by_seat(compress_segment(cpu, r, layers, 6));
  std::vector<float> order;
  for (const Entry& e : got) order.push_back(e.score);
  CHECK(order == std::vector<float>{-9, 5, 4, -8, 3, 2});
}

TEST_CASE("records of a cut do not verify before their seats are placed", "[kernels][cut_seats]") {
  Rng rng(3);
  LayerShape shape;
  shape.external = true;
  const OwnedLayer layer = make_layer(shape, rng);
  const CpuStages cpu(1);
  Compressed c = compress(cpu, blend(), layer.input, 20);
  const RecordView before = open_record(c.records.bytes()).value();
  CHECK(verify_record(before).code() == StatusCode::kCorruption);
  const std::vector<MutableBytes> records = {c.records.mutable_bytes()};
  REQUIRE(place_cut_seats(records).ok());
  REQUIRE(cpu.seal(records).ok());
  CHECK(open_all(c.records).size() == 2);
}

TEST_CASE("place_cut_seats refuses bytes that are no records", "[kernels][cut_seats]") {
  AlignedBytes noise(256, std::byte{0x5a});
  const std::vector<MutableBytes> records = {noise.mutable_bytes()};
  CHECK(place_cut_seats(records).code() == StatusCode::kCorruption);
  CHECK(CpuStages(1).seal(records).code() == StatusCode::kCorruption);
}

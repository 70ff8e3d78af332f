// The CUDA backend's compressors against the CPU's stages: given the scores that the device
// computed, everything after them is equal, byte for byte (D15).
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <thread>

#include "precis/joiner.h"
#include "tests/unit/kernels/gpu_memory.h"
#include "tests/unit/kernels/random_cases.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

const SegmentId kSegment{{1, 2, 3}};

std::unique_ptr<Joiner> joiner_of(const Case& c, std::uint64_t entries) {
  const LayerShape& s = c.shape;
  return Joiner::make(c.recipe, {s.num_layers, s.num_kv_heads, s.num_tokens, s.begin}, entries,
                      c.table())
      .value();
}

EntryForm form_of(const Case& c, const LayerInput& input) {
  return {input.keys.head_dim, input.keys.dtype, c.recipe.encoding};
}

struct Staged {
  std::vector<LayerScores> scores;
  std::vector<AlignedBytes> records;
};

// Compresses a segment as the put path does: one compressor for all layers; records are sealed if
// that needs no other layer.
Staged compress_on(Backend& backend, const Case& c, const std::vector<OwnedLayer>& layers,
                   std::uint64_t entries) {
  const auto joiner = joiner_of(c, entries);
  const auto compressor = backend.compressor().value();
  Staged staged;
  for (const OwnedLayer& layer : layers) {
    LayerInput input = layer.input;
    input.entries = entries;
    LayerTurns turns;
    must_succeed(compressor->check(c.recipe, input));
    must_succeed(compressor->score());
    must_succeed(compressor->select(joiner->slots_wanted(input.layer)));
    must_succeed(compressor->allocate(turns));
    staged.scores.push_back(*compressor->scores().value());
    joiner->add(input.layer, std::move(turns));
    const auto& counts = joiner->counts(input.layer);
    staged.records.emplace_back(encoded_bytes(counts, form_of(c, input)));
    must_succeed(compressor->encode(counts, joiner->seats(input.layer), kSegment,
                                    staged.records.back().mutable_bytes()));
  }
  return staged;
}

// Compresses the same segment with the CPU's stages, from given scores.
std::vector<AlignedBytes> compress_scored(const CpuStages& cpu, const Case& c,
                                          const std::vector<OwnedLayer>& layers,
                                          std::uint64_t entries,
                                          const std::vector<LayerScores>& scores) {
  const auto joiner = joiner_of(c, entries);
  std::vector<AlignedBytes> records;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    LayerInput input = layers[l].input;
    input.entries = entries;
    RetentionOrders orders;
    LayerTurns turns;
    const std::uint64_t slots = joiner->slots_wanted(input.layer);
    must_succeed(cpu.select(c.recipe, input, scores[l], slots, orders));
    must_succeed(cpu.allocate(c.recipe, input, scores[l], orders, slots, turns));
    joiner->add(input.layer, std::move(turns));
    const auto& counts = joiner->counts(input.layer);
    records.emplace_back(encoded_bytes(counts, form_of(c, input)));
    must_succeed(cpu.encode(input, scores[l], orders, counts, joiner->seats(input.layer), kSegment,
                            records.back().mutable_bytes(), c.recipe.encoding));
  }
  return records;
}

// Whether both are the same kind of number, and close. The bound is loose, because recipes differ
// in how much they sum; their own tests have tighter bounds.
bool near(float got, float expected) {
  if (std::isnan(got) || std::isnan(expected)) return std::isnan(got) && std::isnan(expected);
  if (std::isinf(got) || std::isinf(expected)) return got == expected;
  return std::fabs(got - expected) <= 1e-4f + 1e-2f * std::fabs(expected);
}

}  // namespace

TEST_CASE("given the same scores, every backend and instruction set writes the same records",
          "[gpu][backend]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  const auto cuda = make_cuda_backend(0, 2).value();
  std::vector<std::unique_ptr<CpuStages>> cpus;
  for (const Isa isa : isas()) cpus.push_back(std::make_unique<CpuStages>(2, isa));
  int cases = 0;
  for (int round = 0; round < rounds(2000); ++round) {
    Case c = random_case(rng, /*cuts=*/true);
    c.recipe.scorer = Scorer::kExternal;
    c.recipe.layers =
        c.recipe.layers == LayerAllocator::kPreference ? LayerAllocator::kUniform : c.recipe.layers;
    if (!validate_recipe(c.recipe).ok() || c.recipe.needs_o_proj() ||
        c.recipe.selector == Selector::kThreshold) {
      continue;  // these recipes need more than scores
    }
    ++cases;
    c.shape.external = true;  // with ties, infinities and NaN
    c.shape.pushed = 0;
    c.shape.behind = c.shape.lse = c.shape.query_stats = false;
    c.shape.head_dim = any_of(rng, {1, 8, 20});
    if (c.shape.head_dim % 2 != 0) c.recipe.encoding = Encoding::kRaw;  // int4 needs pairs
    CAPTURE(round, c.shape.text(), canonical_recipe(c.recipe));
    const auto layers = make_segment(c.shape, rng);
    const std::uint64_t all =
        std::uint64_t{c.shape.num_layers} * c.shape.num_kv_heads * c.shape.num_tokens;
    const std::uint64_t entries = pick(rng, 1, static_cast<std::uint32_t>(all));
    const Staged device = compress_on(*cuda, c, layers, entries);
    for (const auto& cpu : cpus) {
      CAPTURE(cpu->name());
      const auto host = compress_scored(*cpu, c, layers, entries, device.scores);
      for (std::size_t l = 0; l < layers.size(); ++l) {
        CAPTURE(l);
        REQUIRE(bytes_text(device.records[l].bytes()) == bytes_text(host[l].bytes()));
      }
    }
  }
  CHECK(cases > rounds(1000));
}

TEST_CASE("from its own scores on, the device's records are the CPU's byte for byte",
          "[gpu][backend]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  const auto cuda = make_cuda_backend(0, 2).value();
  const CpuStages cpu(2);
  for (int round = 0; round < rounds(100); ++round) {
    const Case c = random_case(rng, /*cuts=*/true);
    CAPTURE(round, c.shape.text(), canonical_recipe(c.recipe));
    const auto layers = make_segment(c.shape, rng);
    const std::uint64_t all =
        std::uint64_t{c.shape.num_layers} * c.shape.num_kv_heads * c.shape.num_tokens;
    const std::uint64_t entries = pick(rng, 1, static_cast<std::uint32_t>(all));
    const Staged device = compress_on(*cuda, c, layers, entries);
    const auto host = compress_scored(cpu, c, layers, entries, device.scores);
    for (std::size_t l = 0; l < layers.size(); ++l) {
      CAPTURE(l);
      REQUIRE(bytes_text(device.records[l].bytes()) == bytes_text(host[l].bytes()));
      LayerInput input = layers[l].input;
      input.entries = entries;
      const LayerScores expected = score_layer(c.recipe, input);
      // Sums in another order may swap two neighbouring ranks.
      const float rank_step =
          c.recipe.lag_kvpress_ranks ? 1.0F / static_cast<float>(c.recipe.lag) : 0;
      for (std::size_t i = 0; i < expected.scores.size(); ++i) {
        const float score = device.scores[l].scores[i];
        if (near(score, expected.scores[i])) continue;
        if (std::abs(score - expected.scores[i]) <= rank_step) continue;
        FAIL("score " << i << " is " << score << ", the CPU's is " << expected.scores[i]);
      }
      REQUIRE(device.scores[l].second.size() == expected.second.size());
      REQUIRE(near(device.scores[l].weight, expected.weight));
    }
  }
}

TEST_CASE(
    "layers of as many segments as the backend takes, side by side, are each compressed as alone",
    "[gpu][backend]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  const auto cuda = make_cuda_backend(0, 2).value();
  struct Segment {
    Case c;
    std::vector<OwnedLayer> layers;
    std::uint64_t entries;
    Staged alone, beside_others;
  };
  std::vector<Segment> segments(cuda->compressors());
  REQUIRE(segments.size() > 2);
  for (Segment& s : segments) {
    s.c = random_case(rng, /*cuts=*/true);
    s.layers = make_segment(s.c.shape, rng);
    s.entries = pick(rng, 1, s.c.shape.num_layers * s.c.shape.num_kv_heads * s.c.shape.num_tokens);
    s.alone = compress_on(*cuda, s.c, s.layers, s.entries);
  }
  std::vector<std::thread> threads;
  for (Segment& s : segments) {
    threads.emplace_back([&] { s.beside_others = compress_on(*cuda, s.c, s.layers, s.entries); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Segment& s : segments) {
    CAPTURE(s.c.shape.text(), canonical_recipe(s.c.recipe));
    for (std::size_t l = 0; l < s.layers.size(); ++l) {
      REQUIRE(bytes_text(s.beside_others.records[l].bytes()) ==
              bytes_text(s.alone.records[l].bytes()));
    }
  }
}

TEST_CASE("the device refuses what is not finite, in the CPU's words", "[gpu][backend]") {
  Rng rng(7);
  const auto cuda = make_cuda_backend(0, 2).value();
  const CpuStages cpu(2);
  for (const Dtype dtype : kDtypes) {
    for (const std::uint32_t head_dim : {5u, 8u}) {
      for (const bool in_keys : {true, false}) {
        LayerShape shape;
        shape.num_tokens = 37;
        shape.num_kv_heads = 3;
        shape.head_dim = head_dim;
        shape.dtype = dtype;
        OwnedLayer layer = make_layer(shape, rng);
        const HeadsView& view = in_keys ? layer.input.keys : layer.input.values;
        const float value = pick(rng, 0, 1) ? INFINITY : NAN;
        // The first, the last, and any element.
        const std::uint32_t head = any_of(rng, {0, 2}), token = any_of(rng, {0, 11, 36});
        const std::uint32_t channel = any_of(rng, {0, head_dim - 1});
        set_element(layer, view, head, token, channel, value);
        const Recipe recipe = parse_recipe("knorm").value();
        const Status expected = cpu.check(recipe, layer.input);
        REQUIRE(expected.code() == StatusCode::kInvalidArgument);
        const auto compressor = cuda->compressor().value();
        LayerTurns turns;
        Status status = compressor->check(recipe, layer.input);
        if (status.ok()) status = compressor->score();
        if (status.ok()) status = compressor->select(40);
        if (status.ok()) status = compressor->allocate(turns);
        CHECK(status == expected);
        // The error does not affect the next layer.
        const OwnedLayer good = make_layer(shape, rng);
        REQUIRE(compressor->check(recipe, good.input) == Status{});
        REQUIRE(compressor->score() == Status{});
        REQUIRE(compressor->select(40) == Status{});
        CHECK(compressor->allocate(turns) == Status{});
      }
    }
  }
}

TEST_CASE("records go into memory of their size, and no other", "[gpu][backend]") {
  Rng rng(8);
  const auto cuda = make_cuda_backend(0, 2).value();
  const OwnedLayer layer = make_layer({}, rng);
  const Recipe recipe = parse_recipe("knorm").value();
  const auto compressor = cuda->compressor().value();
  LayerTurns turns;
  REQUIRE(compressor->check(recipe, layer.input) == Status{});
  REQUIRE(compressor->score() == Status{});
  REQUIRE(compressor->select(10) == Status{});
  REQUIRE(compressor->allocate(turns) == Status{});
  const std::vector<std::uint32_t> counts{5, 5};
  AlignedBytes out(encoded_bytes(counts, {8, Dtype::kF32}) + 64);
  CHECK(compressor->encode(counts, {}, kSegment, out.mutable_bytes()).code() ==
        StatusCode::kInvalidArgument);
}

TEST_CASE("a compressor on the device refuses rows that are too large for their code",
          "[gpu][backend]") {
  Rng rng(13);
  const auto cuda = make_cuda_backend(0, 2).value();
  OwnedLayer layer = make_layer({}, rng);
  const float largest = 3e38f;
  for (std::uint32_t token = 0; token < layer.input.num_tokens(); ++token) {
    auto* const row = const_cast<std::byte*>(layer.input.values.row(0, token));
    std::memcpy(row, &largest, sizeof largest);
    std::memcpy(row + sizeof largest, &largest, sizeof largest);
  }
  const auto compressor = cuda->compressor().value();
  const std::vector<std::uint32_t> counts{5, 5};
  Recipe recipe = parse_recipe("knorm").value();
  for (const Encoding encoding :
       {Encoding::kInt4, Encoding::kK8V4, Encoding::kK6V4, Encoding::kRaw}) {
    recipe.encoding = encoding;
    LayerTurns turns;
    REQUIRE(compressor->check(recipe, layer.input) == Status{});
    REQUIRE(compressor->score() == Status{});
    REQUIRE(compressor->select(10) == Status{});
    REQUIRE(compressor->allocate(turns) == Status{});
    AlignedBytes out(encoded_bytes(counts, {8, Dtype::kF32, encoding}));
    const Status encoded = compressor->encode(counts, {}, kSegment, out.mutable_bytes());
    CHECK(encoded.ok() == (encoding == Encoding::kRaw));
    CHECK((encoded.ok() || encoded.message().find("use encoding=raw") != std::string::npos));
  }
}

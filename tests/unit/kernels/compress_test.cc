// Compression without a service: it keeps rows that were given, and as many of them as were asked
// for.
#include "precis/compress.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "tests/unit/kernels/layer_fixture.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

constexpr std::uint32_t kLayers = 3, kHeads = 2, kTokens = 100, kDim = 8;

ModelSpec model_of_test() {
  ModelSpec model;
  model.name = "compress";
  model.num_layers = kLayers;
  model.num_q_heads = model.num_kv_heads = kHeads;
  model.head_dim = kDim;
  model.dtype = Dtype::kF32;
  return model;
}

struct Layers {
  explicit Layers(Rng& rng) {
    LayerShape shape;
    shape.num_layers = kLayers;
    shape.num_kv_heads = kHeads;
    shape.num_tokens = kTokens;
    shape.head_dim = kDim;
    for (std::uint32_t l = 0; l < kLayers; ++l) {
      owned.push_back(make_layer(shape, rng));
      inputs.push_back(owned.back().input);
    }
  }
  std::vector<OwnedLayer> owned;
  std::vector<LayerInput> inputs;
};

// Checks the records, and returns the entries of all of them.
std::size_t check_records(const std::vector<CompressedLayer>& kept, const Layers& layers) {
  std::size_t entries = 0;
  REQUIRE(kept.size() == kLayers);
  for (std::uint32_t l = 0; l < kLayers; ++l) {
    REQUIRE(kept[l].heads.size() == kHeads);
    for (std::uint32_t h = 0; h < kHeads; ++h) {
      const RecordView& record = kept[l].heads[h];
      CHECK(record.layer == l);
      CHECK(verify_record(record).ok());
      for (std::uint32_t i = 0; i < record.count; ++i) {
        const std::uint32_t token = record.positions[i];
        REQUIRE(token < kTokens);
        const std::size_t row = kDim * sizeof(float);
        CHECK(std::memcmp(&record.keys[i * row], layers.inputs[l].keys.row(h, token), row) == 0);
        CHECK(std::memcmp(&record.values[i * row], layers.inputs[l].values.row(h, token), row) ==
              0);
      }
      entries += record.count;
    }
  }
  return entries;
}

}  // namespace

TEST_CASE("a segment compressed without a service keeps the entries of its budget", "[kernels]") {
  Rng rng(test_seed());
  const Layers layers(rng);
  const std::size_t all = std::size_t{kLayers} * kHeads * kTokens;
  Recipe recipe;
  recipe.scorer = Scorer::kKnorm;
  const auto half =
      compress(model_of_test(), layers.inputs, recipe, Budget::ratio(0.5).value(), nullptr, 2);
  REQUIRE(half.ok());
  CHECK(check_records(*half, layers) == all / 2);
  const auto whole = compress(model_of_test(), layers.inputs, recipe, Budget::all());
  REQUIRE(whole.ok());
  CHECK(check_records(*whole, layers) == all);
}

TEST_CASE("a layer with a window keeps the tokens that later queries see, and others get the rest",
          "[kernels]") {
  constexpr std::uint32_t kWindow = 30;
  Rng rng(test_seed());
  const Layers layers(rng);
  ModelSpec model = model_of_test();
  model.windows = {kWindow, 0, 4 * kTokens};
  Recipe recipe;
  recipe.scorer = Scorer::kKnorm;
  const auto whole = compress(model, layers.inputs, recipe, Budget::all());
  REQUIRE(whole.ok());
  CHECK(check_records(*whole, layers) == kHeads * (kWindow + 2 * kTokens));
  CHECK(model.entries_max(kTokens) == kHeads * (kWindow + 2 * kTokens));
  for (const RecordView& head : (*whole)[0].heads) {
    REQUIRE(head.count == kWindow);
    CHECK(std::ranges::min(head.positions) == kTokens - kWindow);
  }
  // 60 entries a head on average: the layer with the window leaves 30 to each of the others.
  const auto most = compress(model, layers.inputs, recipe, Budget::entries(60));
  REQUIRE(most.ok());
  CHECK(check_records(*most, layers) == std::size_t{kLayers} * kHeads * 60);
  for (const std::uint32_t l : {0u, 1u, 2u}) {
    for (const RecordView& head : (*most)[l].heads) CHECK(head.count == (l == 0 ? 30 : 75));
  }
}

TEST_CASE("a layer with a window is compressed as the layer of its visible tokens would be",
          "[kernels]") {
  constexpr std::uint32_t kWindow = 30;
  Rng rng(test_seed());
  const Layers layers(rng);
  ModelSpec model = model_of_test(), alone = model;
  model.windows.assign(kLayers, kWindow);
  Recipe recipe = parse_recipe("global_kvdiff").value();
  recipe.min_entries = 0;
  const Budget keep = Budget::entries(10);
  const auto kept = compress(model, layers.inputs, recipe, keep);
  auto inputs = layers.inputs;
  for (LayerInput& input : inputs) {
    for (HeadsView* const view : {&input.keys, &input.values}) {
      view->data = view->row(0, kTokens - kWindow);
      view->num_tokens = kWindow;
    }
    input.begin += kTokens - kWindow;
  }
  const auto narrow = compress(alone, inputs, recipe, keep);
  REQUIRE(kept.ok());
  REQUIRE(narrow.ok());
  for (std::uint32_t l = 0; l < kLayers; ++l) {
    CHECK(bytes_text((*kept)[l].bytes()) == bytes_text((*narrow)[l].bytes()));
  }
}

TEST_CASE("layers that do not fit the model are not compressed", "[kernels]") {
  Rng rng(test_seed());
  Layers layers(rng);
  Recipe recipe;
  recipe.scorer = Scorer::kKnorm;
  ModelSpec model = model_of_test();
  const auto refused = [&] {
    return compress(model, layers.inputs, recipe, Budget::all()).status();
  };
  SECTION("their number") { layers.inputs.pop_back(); }
  SECTION("none") { layers.inputs.clear(); }
  SECTION("a dtype") { model.dtype = Dtype::kBf16; }
  SECTION("a width") { model.head_dim = 2 * kDim; }
  SECTION("a length") { layers.inputs[1].values.num_tokens = kTokens - 1; }
  CHECK(refused().code() == StatusCode::kInvalidArgument);
}

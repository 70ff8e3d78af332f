// A get that writes its rows to the caller's own memory.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/unit/client/fake_server.h"
#include "tests/unit/client/serving.h"
#include "tests/unit/client/stored_prefix.h"

namespace {

using namespace precis;
using namespace precis::testing;

// The caller's own rows in one array: K, then V of every layer, heads `num_tokens` rows apart.
struct OwnRows {
  OwnRows(const ModelSpec& m, std::uint32_t num_tokens)
      : model(m),
        rows(num_tokens),
        bytes(2 * std::size_t{m.num_layers} * m.num_kv_heads * num_tokens * row_bytes(),
              std::byte{0xee}) {}
  std::size_t row_bytes() const { return model.head_dim * dtype_size_bytes(model.dtype); }
  std::byte* head(std::uint32_t layer, std::uint32_t part, std::uint32_t h) {
    return bytes.data() +
           ((std::size_t{layer} * 2 + part) * model.num_kv_heads + h) * rows * row_bytes();
  }
  RowsOut part(std::uint32_t layer, std::uint32_t which) {
    return {head(layer, which, 0), model.num_kv_heads, rows,
            model.head_dim,        model.dtype,        rows * row_bytes()};
  }
  std::vector<LayerOut> layers() {
    std::vector<LayerOut> out;
    for (std::uint32_t l = 0; l < model.num_layers; ++l) out.push_back({part(l, 0), part(l, 1)});
    return out;
  }
  ModelSpec model;
  std::uint32_t rows;
  std::vector<std::byte> bytes;
};

TEST_CASE("a get leaves rows in the caller's memory once their layer has been waited for",
          "[client]") {
  const Serving serving = three_segments(small_model(), GENERATE(false, true));
  FakeServer server(serving);
  const auto client = server.connect().value();
  const auto match = match_of(serving.model, serving.segments);
  OwnRows own(serving.model, 501);  // for a path of 500 tokens
  const auto layers = own.layers();
  const auto prefix = client->get(match, Budget::all(), {.out = layers}).value();
  REQUIRE(prefix.wait().ok());
  for (std::uint32_t l = 0; l < serving.model.num_layers; ++l) {
    for (std::uint32_t h = 0; h < serving.model.num_kv_heads; ++h) {
      CAPTURE(l, h);
      const HeadEntries head = prefix.head(l, h);
      CHECK(std::memcmp(own.head(l, 0, h), head.keys.data, head.keys.size_bytes()) == 0);
      CHECK(std::memcmp(own.head(l, 1, h), head.values.data, head.values.size_bytes()) == 0);
      CHECK(own.head(l, 0, h)[head.keys.size_bytes()] == std::byte{0xee});
      CHECK(own.head(l, 1, h)[head.values.size_bytes()] == std::byte{0xee});
    }
  }
}

TEST_CASE("a layer that fails its checksums leaves nothing in the caller's memory", "[client]") {
  Serving serving = one_segment(small_model(), 600, 600);
  serving.damage = [](ServedBytes& served) { served.bytes.front() ^= std::byte{1}; };
  FakeServer server(serving);
  const auto client = server.connect().value();
  OwnRows own(serving.model, 400);
  const auto before = own.bytes;
  const auto layers = own.layers();
  const auto match = match_of(serving.model, serving.segments);
  const auto prefix = client->get(match, Budget::all(), {.out = layers}).value();
  CHECK(prefix.wait().code() == StatusCode::kCorruption);
  CHECK(own.bytes == before);
}

TEST_CASE("memory for a get that does not fit is refused by name", "[client]") {
  const Serving serving = one_segment(small_model(), 600, 600);
  FakeServer server(serving);
  const auto client = server.connect().value();
  const auto match = match_of(serving.model, serving.segments);
  OwnRows own(serving.model, 400);
  const auto refused = [&](const std::function<void(std::vector<LayerOut>&)>& change) {
    auto out = own.layers();
    change(out);
    const Status status = client->get(match, Budget::all(), {.out = out}).status();
    CHECK(status.code() == StatusCode::kInvalidArgument);
    return status.message();
  };
  using Catch::Matchers::StartsWith;
  CHECK_THAT(refused([](auto& out) { out.pop_back(); }), StartsWith("out: has "));
  CHECK_THAT(refused([](auto& out) { out[1].keys.num_heads = 9; }),
             StartsWith("out[1].keys: shape [9, "));
  CHECK_THAT(refused([](auto& out) { out[0].values.head_dim = 3; }),
             StartsWith("out[0].values: shape"));
  CHECK_THAT(refused([](auto& out) { out[0].values.dtype = Dtype::kF32; }),
             StartsWith("out[0].values: dtype f32, the model's is bf16"));
  CHECK_THAT(refused([](auto& out) { out[0].values.data = nullptr; }),
             StartsWith("out[0].values: no memory"));
  CHECK_THAT(refused([](auto& out) { --out[0].keys.head_stride_bytes; }),
             StartsWith("out[0].keys: heads of "));
}

}  // namespace

// Pieces of a layer: which are accepted, which are refused, and where their bytes are placed.
#include "cachesvc/pipeline/staged_layer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>

#include "precis/limits.h"
#include "tests/unit/pipeline/near_peer.h"

namespace precis {
namespace {

using testing::copy_from;
using testing::NearLayer;
using testing::NearPeer;
using testing::region_of;

ModelSpec small_model() {
  ModelSpec model;
  model.name = "small";
  model.num_layers = 2;
  model.num_q_heads = 4;
  model.num_kv_heads = 2;
  model.head_dim = 8;
  model.dtype = Dtype::kF32;
  return model;
}

constexpr std::uint32_t kTokens = 6;
const Recipe recipe;  // keydiff: complete without observations

// A buffer in place of the arena's.
class OwnBuffer final : public Arena::Buffer {
 public:
  explicit OwnBuffer(std::size_t size) : bytes_(size) {}
  MutableBytes bytes() const override { return const_cast<std::vector<std::byte>&>(bytes_); }
  void shrink(std::size_t size) override { bytes_.resize(size); }

 private:
  std::vector<std::byte> bytes_;
};

// Copies pulled bytes at once; pulls complete when the test calls complete_all().
class CopyingConnection final : public NearPeer {
 public:
  void pull(const RemoteRegion& from, std::uint64_t offset, MutableBytes into, const Registration&,
            Completion done) override {
    if (fail_with.ok()) copy_from(from, offset, into);
    ++pulls;
    waiting.push_back(std::move(done));
  }
  void complete_all() {
    for (auto& done : std::exchange(waiting, {})) done(fail_with);
  }

  Status fail_with;
  int pulls = 0;
  std::vector<Completion> waiting;
};

// A layer of distinct numbers, with observations.
struct Source : NearLayer {
  std::vector<float> queries, lse;
  Source() : NearLayer(small_model(), 1, kTokens) {
    std::iota(keys.begin(), keys.end(), 1.0f);
    std::iota(values.begin(), values.end(), 1001.0f);
    queries.resize(std::size_t{model.num_q_heads} * 2 * model.head_dim);
    std::iota(queries.begin(), queries.end(), 5001.0f);
    lse.resize(std::size_t{model.num_q_heads} * 2);
    std::iota(lse.begin(), lse.end(), 9001.0f);
  }
};

Task<void> pull(StagedLayer& layer, msg::PushLayer piece, Connection& from, Status& outcome) {
  const testing::NoRegistration registration;
  outcome = (co_await layer.pull(std::move(piece), from, registration)).status();
}

void give_memory(StagedLayer& layer) {
  for (const auto part : {StagedLayer::Part::kEntries, StagedLayer::Part::kObservations}) {
    if (layer.needs(part)) {
      layer.give_memory(part, std::make_unique<OwnBuffer>(layer.size_bytes(part)));
    }
  }
}

std::vector<float> floats(const HeadsView& view) {
  std::vector<float> out(view.size_bytes() / sizeof(float));
  std::memcpy(out.data(), view.data, view.size_bytes());
  return out;
}

}  // namespace

TEST_CASE("pieces of heads and of tokens make up the layer as it was", "[unit][pipeline]") {
  const Source source;
  StagedLayer layer(source.model, recipe, 1, kTokens);
  CopyingConnection from;
  std::vector<msg::PushLayer> pieces = {source.piece(0, 1, 0, kTokens), source.piece(1, 1, 4, 2),
                                        source.piece(1, 1, 0, 4)};
  pieces[1].queries = region_of(source.queries);
  pieces[1].queries->address += source.queries.size() * 2;  // the second KV head's group
  pieces[1].queries->size_bytes /= 2;
  pieces[1].num_queries = 2;
  pieces[0].queries = region_of(source.queries);
  pieces[0].queries->size_bytes /= 2;
  pieces[0].num_queries = 2;
  for (msg::PushLayer& piece : pieces) {
    CHECK_FALSE(layer.complete());
    REQUIRE(layer.claim(piece) == Status());
    give_memory(layer);
    Status outcome = Status::internal("not pulled");
    spawn(pull(layer, piece, from, outcome));
    from.complete_all();
    REQUIRE(outcome == Status());
  }
  REQUIRE(layer.complete());
  const kernels::LayerInput input = layer.input(/*begin=*/100);
  CHECK(input.layer == 1);
  CHECK(input.begin == 100);
  CHECK(floats(input.keys) == source.keys);
  CHECK(floats(input.values) == source.values);
  CHECK(floats(input.queries) == source.queries);
  CHECK(input.lse.empty());
}

TEST_CASE("a layer waits for the observations that its recipe needs", "[unit][pipeline]") {
  const Source source;
  const Recipe expected = scorer_defaults(Scorer::kExpectedAttention);
  StagedLayer layer(source.model, expected, 1, kTokens);
  CopyingConnection from;
  const std::size_t means = std::size_t{source.model.num_q_heads} * source.model.head_dim;
  std::vector<float> mean(means), covariance(means * source.model.head_dim);
  std::iota(mean.begin(), mean.end(), 1.0f);
  std::iota(covariance.begin(), covariance.end(), 100.0f);
  std::vector<msg::PushLayer> pieces = {source.piece(0, 2, 0, 4), source.piece(0, 2, 4, 2)};
  pieces[1].query_mean = region_of(mean);
  msg::PushLayer alone = pieces[1];
  CHECK(layer.claim(alone).message().find("come together") != std::string::npos);
  pieces[1].query_covariance = region_of(covariance);
  for (msg::PushLayer& piece : pieces) {
    CHECK_FALSE(layer.complete());
    REQUIRE(layer.claim(piece) == Status());
    give_memory(layer);
    Status outcome = Status::internal("not pulled");
    spawn(pull(layer, piece, from, outcome));
    from.complete_all();
    REQUIRE(outcome == Status());
  }
  REQUIRE(layer.complete());
  const kernels::LayerInput input = layer.input(/*begin=*/0);
  CHECK(std::vector<float>(input.query_mean.begin(), input.query_mean.end()) == mean);
  CHECK(std::vector<float>(input.query_covariance.begin(), input.query_covariance.end()) ==
        covariance);
  CHECK(input.queries.empty());

  const Recipe tova = scorer_defaults(Scorer::kTova);
  StagedLayer observed(source.model, tova, 1, kTokens);
  REQUIRE(observed.claim(source.piece(0, 2, 0, kTokens)) == Status());
  give_memory(observed);
  Status outcome = Status::internal("not pulled");
  spawn(pull(observed, source.piece(0, 2, 0, kTokens), from, outcome));
  from.complete_all();
  CHECK_FALSE(observed.complete());
  CHECK(observed.missing() == "queries of only 0 of 2 KV heads");
}

TEST_CASE("pieces that do not touch are few, so that each is placed at once", "[unit][pipeline]") {
  const Source source;
  StagedLayer layer(source.model, recipe, 1, 4 * limits::kPiecesApartMax);
  const auto piece = [&](std::uint32_t token) {
    msg::PushLayer one = source.piece(0, 2, 0, 1);
    one.token_begin = token;
    return one;
  };
  for (std::uint32_t i = 0; i < limits::kPiecesApartMax; ++i) {
    REQUIRE(layer.claim(piece(2 * i)) == Status());
  }
  const Status apart = layer.claim(piece(2 * limits::kPiecesApartMax));
  CHECK(apart.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(apart.message(), Catch::Contains("push those between first"));
  CHECK(layer.claim(piece(1)) == Status());
  CHECK(layer.claim(piece(2 * limits::kPiecesApartMax)) == Status());
}

TEST_CASE("what is missing is told by heads and tokens", "[unit][pipeline]") {
  const Source source;
  StagedLayer layer(source.model, recipe, 1, kTokens);
  CHECK(layer.missing() == "tokens of 2 of 2 KV heads: head 0 got 0 of 6");
  REQUIRE(layer.claim(source.piece(0, 2, 0, 4)) == Status());
  CHECK(layer.missing() == "tokens of 2 of 2 KV heads: head 0 got 4 of 6");
  REQUIRE(layer.claim(source.piece(0, 1, 4, 2)) == Status());
  CHECK(layer.missing() == "tokens of 1 of 2 KV heads: head 1 got 4 of 6");
  REQUIRE(layer.claim(source.piece(1, 1, 4, 2)) == Status());
  CHECK(layer.missing() == "tokens are still on their way");
}

TEST_CASE("a whole contiguous layer is pulled in one run per tensor", "[unit][pipeline]") {
  const Source source;
  StagedLayer layer(source.model, recipe, 1, kTokens);
  CopyingConnection from;
  msg::PushLayer piece = source.piece(0, 2, 0, kTokens);
  piece.queries = region_of(source.queries);
  piece.lse = region_of(source.lse);
  piece.num_queries = 2;
  REQUIRE(layer.claim(piece) == Status());
  give_memory(layer);
  Status outcome = Status::internal("not pulled");
  spawn(pull(layer, piece, from, outcome));
  from.complete_all();
  CHECK(outcome == Status());
  CHECK(from.pulls == 4);
  const kernels::LayerInput input = layer.input(0);
  CHECK(std::vector<float>(input.lse.begin(), input.lse.end()) == source.lse);
}

TEST_CASE("a pull that fails leaves the layer incomplete", "[unit][pipeline]") {
  const Source source;
  StagedLayer layer(source.model, recipe, 1, kTokens);
  CopyingConnection from;
  from.fail_with = Status::unavailable("the client left");
  const msg::PushLayer piece = source.piece(0, 2, 0, kTokens);
  REQUIRE(layer.claim(piece) == Status());
  give_memory(layer);
  Status outcome;
  spawn(pull(layer, piece, from, outcome));
  from.complete_all();
  CHECK(outcome == from.fail_with);
  CHECK_FALSE(layer.complete());
}

TEST_CASE("pieces that do not fit are refused with the field and the limit", "[unit][pipeline]") {
  const Source source;
  StagedLayer layer(source.model, recipe, 1, kTokens);
  REQUIRE(layer.claim(source.piece(0, 1, 0, 4)) == Status());
  msg::PushLayer piece = source.piece(1, 1, 0, kTokens);
  std::string expected;

  SECTION("another dtype") {
    piece.dtype = Dtype::kF16;
    expected = "dtype is f16, the model's is f32";
  }
  SECTION("heads past the last") {
    piece.head_count = 2;
    expected = "heads [1, 3) must be a part of [0, 2)";
  }
  SECTION("no heads") {
    piece.head_count = 0;
    expected = "heads [1, 1)";
  }
  SECTION("tokens past the last") {
    piece.token_begin = 1;
    expected = "tokens [1, 7) must be a part of [0, 6)";
  }
  SECTION("counts that overflow when added") {
    piece.token_begin = UINT32_MAX;
    piece.token_count = UINT32_MAX;
    expected = "must be a part of";
  }
  SECTION("tokens pushed before") {
    piece = source.piece(0, 2, 3, 3);
    expected = "layer 1 head 0: tokens [3, 6) were pushed before";
  }
  SECTION("a region too small") {
    piece.keys.size_bytes -= 1;
    expected = "keys exposes 191 B, 192 B are needed";
  }
  SECTION("a stride under one head") {
    piece.values_head_stride = 8;
    expected = "head stride is 8 B";
  }
  SECTION("a stride that would overflow") {
    piece.values_head_stride = UINT64_MAX;
    expected = "head stride is";
  }
  SECTION("more queries than tokens") {
    piece.queries = region_of(source.queries);
    piece.num_queries = kTokens + 1;
    expected = "7 queries exceed 6";
  }
  SECTION("queries smaller than they say") {
    piece.queries = region_of(source.queries);
    piece.num_queries = 5;
    expected = "queries exposes";
  }
  SECTION("a region of no queries") {
    piece.queries = region_of(source.queries);
    expected = "num_queries is 0 but queries came";
  }
  SECTION("queries without a region") {
    piece.num_queries = 2;
    expected = "num_queries is 2 but no queries came";
  }
  SECTION("a log-sum-exp without queries") {
    piece.lse = region_of(source.lse);
    expected = "lse came without queries";
  }
  SECTION("scores with some pieces only") {
    piece.scores = region_of(source.keys);
    expected = "some pieces bring scores and some do not";
  }
  const Status status = layer.claim(piece);
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(status.message(), Catch::Contains(expected));
  // Nothing was claimed, so pieces that fit are still accepted.
  CHECK(layer.claim(source.piece(1, 1, 0, kTokens)) == Status());
  CHECK(layer.claim(source.piece(0, 1, 4, 2)) == Status());
}

}  // namespace precis

// Stage check: refuses invalid input and names it.
#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/check/check.h"
#include "kernels/common/isa.h"
#include "precis/limits.h"
#include "tests/unit/kernels/layer_fixture.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;
using Catch::Contains;

namespace {

Recipe snapkv() {
  Recipe r;
  r.scorer = Scorer::kWindowAttention;
  r.window = r.recent = 8;
  return r;
}

struct Fixture {
  Rng rng{7};
  LayerShape shape;
  ThreadPool pool{2};
  Fixture() {
    shape.layer = 3;
    shape.num_layers = 5;
    shape.group = 3;
    shape.pushed = 8;
    shape.lse = true;
  }
  Status check(const Recipe& recipe, const LayerInput& input) {
    return check_cpu({pool, detect_isa()}, recipe, input);
  }
  void refuse(const LayerInput& input, const std::string& message, Recipe recipe = snapkv()) {
    const Status status = check(recipe, input);
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK_THAT(status.message(), Contains(message));
  }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "check accepts a whole layer in every dtype", "[kernels][check]") {
  shape.dtype = GENERATE(Dtype::kBf16, Dtype::kF16, Dtype::kF32, Dtype::kF8E4M3);
  shape.stride_gap = GENERATE(0u, 4u);  // the gap holds NaN, which no stage may read
  const OwnedLayer layer = make_layer(shape, rng);
  CHECK(check(snapkv(), layer.input) == Status{});
}

TEST_CASE_METHOD(Fixture, "check names layer, tensor, head and token of a value that is not finite",
                 "[kernels][check]") {
  shape.dtype = GENERATE(Dtype::kBf16, Dtype::kF16, Dtype::kF32, Dtype::kF8E4M3);
  shape.num_tokens = GENERATE(9u, 2100u);
  shape.lse = false;
  const float bad = GENERATE(float{NAN}, float{INFINITY}, -float{INFINITY});
  if (std::isinf(bad) && shape.dtype == Dtype::kF8E4M3) return;  // it has no infinities
  const std::string word = std::isnan(bad) ? "NaN" : "infinity";
  OwnedLayer layer = make_layer(shape, rng);
  const std::uint32_t token = pick(rng, 0, shape.num_tokens - 1);
  const std::uint32_t channel = pick(rng, 0, shape.head_dim - 1);
  const std::string where = word + " at head 1, token " + std::to_string(token);
  SECTION("keys") {
    set_element(layer, layer.input.keys, 1, token, channel, bad);
    refuse(layer.input, "layer 3 keys: " + where);
  }
  SECTION("values") {
    set_element(layer, layer.input.values, 1, token, channel, bad);
    refuse(layer.input, "layer 3 values: " + where);
  }
  SECTION("queries") {
    set_element(layer, layer.input.queries, 5, 2, channel, bad);
    refuse(layer.input, "layer 3 queries: " + word + " at head 5, token 2");
  }
}

TEST_CASE_METHOD(Fixture, "check names the first of several bad values", "[kernels][check]") {
  OwnedLayer layer = make_layer(shape, rng);
  set_element(layer, layer.input.keys, 1, 0, 0, NAN);
  set_element(layer, layer.input.keys, 0, 30, 0, INFINITY);
  set_element(layer, layer.input.keys, 0, 17, 7, NAN);
  refuse(layer.input, "layer 3 keys: NaN at head 0, token 17");
}

TEST_CASE_METHOD(Fixture, "check refuses a log-sum-exp that is not finite", "[kernels][check]") {
  OwnedLayer layer = make_layer(shape, rng);
  layer.lse[2 * 8 + 5] = NAN;
  refuse(layer.input, "layer 3 lse: NaN at head 2, token 5");
}

TEST_CASE_METHOD(Fixture, "check lets NaN through in external scores only", "[kernels][check]") {
  shape.external = true;
  OwnedLayer layer = make_layer(shape, rng);
  layer.scores[3] = NAN;
  Recipe external;
  external.scorer = Scorer::kExternal;
  CHECK(check(external, layer.input) == Status{});
}

TEST_CASE_METHOD(Fixture, "check refuses shapes that do not fit, naming both numbers",
                 "[kernels][check]") {
  const OwnedLayer layer = make_layer(shape, rng);
  LayerInput in = layer.input;
  SECTION("no tokens") {
    in.keys.num_tokens = 0;
    refuse(in, "layer 3 keys: the segment has no tokens");
  }
  SECTION("no keys") {
    in.keys.data = nullptr;
    refuse(in, "layer 3 keys: not pushed");
  }
  SECTION("layer index") {
    in.layer = 5;
    refuse(in, "layer index is 5, must be in [0, 4]");
  }
  SECTION("values of other length") {
    in.values.num_tokens = 39;
    refuse(in, "layer 3 values: num_tokens is 39, must be 40");
  }
  SECTION("values with other heads") {
    in.values.num_heads = 1;
    refuse(in, "layer 3 values: num_heads is 1, must be 2");
  }
  SECTION("values of other width") {
    in.values.head_dim = 4;
    refuse(in, "layer 3 values: head_dim is 4, must be 8");
  }
  SECTION("values of other dtype") {
    in.values.dtype = Dtype::kBf16;
    refuse(in, "layer 3 values: dtype is bf16, the keys' is f32");
  }
  SECTION("unknown dtype") {
    in.keys.dtype = static_cast<Dtype>(77);
    refuse(in, "layer 3 keys: dtype 77 is unknown");
  }
  SECTION("head_dim beyond the limit") {
    in.keys.head_dim = 1025;
    refuse(in, "head_dim is 1025, must be in [1, 1024]");
  }
  SECTION("heads that overlap") {
    in.keys.head_stride_bytes -= 4;
    refuse(in, "layer 3 keys: head stride 1276 B is less than a head's 1280 B");
  }
  SECTION("unaligned data") {
    in.keys.data += 1;
    refuse(in, "not a multiple of 4 bytes");
  }
  SECTION("positions beyond the limit") {
    in.begin = (1u << 24) - 39;
    refuse(in, "layer 3 keys: token 16777217 lies beyond the limit of 16777216");
  }
}

TEST_CASE_METHOD(Fixture, "check refuses queries, lse and scores that are missing or do not fit",
                 "[kernels][check]") {
  const OwnedLayer layer = make_layer(shape, rng);
  LayerInput in = layer.input;
  Recipe external;
  external.scorer = Scorer::kExternal;
  SECTION("query heads no multiple of KV heads") {
    in.num_q_heads = 5;
    refuse(in, "num_q_heads 5 is not a multiple");
  }
  SECTION("queries missing") {
    in.queries = {};
    in.lse = {};
    refuse(in, "layer 3 queries: not pushed; the scorer needs them");
  }
  SECTION("more queries than tokens") {
    in.queries.num_tokens = 41;
    in.queries.head_stride_bytes = in.queries.head_bytes();
    refuse(in, "layer 3 queries: num_tokens is 41, must be in [1, 40]");
  }
  SECTION("queries of a KV head count") {
    in.queries.num_heads = 2;
    refuse(in, "layer 3 queries: num_heads is 2, must be 6");
  }
  SECTION("lse of another size") {
    in.lse = in.lse.first(47);
    refuse(in, "layer 3 lse: size is 47, must be 48");
  }
  SECTION("lse without queries") {
    in.queries = {};
    refuse(in, "layer 3 queries: not pushed, but lse is", external);
  }
  SECTION("scores missing") {
    refuse(in, "layer 3 scores: not pushed; the scorer needs them", external);
  }
}

TEST_CASE_METHOD(Fixture, "check refuses fewer queries than observed_mean takes",
                 "[kernels][check]") {
  const OwnedLayer layer = make_layer(shape, rng);
  refuse(layer.input,
         "layer 3 queries: num_tokens is 8, scorer observed_mean needs 40, those of all",
         scorer_defaults(Scorer::kObservedMean));
  Recipe last = scorer_defaults(Scorer::kObservedMean);
  last.window = 8;
  CHECK(check(last, layer.input) == Status{});
  last.window = 9;
  refuse(layer.input, "layer 3 queries: num_tokens is 8, scorer observed_mean needs 9", last);
}

TEST_CASE_METHOD(Fixture, "check asks kvzip for log-sum-exps, and lets it push beyond the segment",
                 "[kernels][check]") {
  const Recipe kvzip = scorer_defaults(Scorer::kKvzip);
  shape.behind = true;
  shape.pushed = 100;  // of 40 tokens
  const OwnedLayer layer = make_layer(shape, rng);
  CHECK(check(kvzip, layer.input) == Status{});
  refuse(layer.input, "layer 3 queries: num_tokens is 100, must be in [1, 40]");
  LayerInput in = layer.input;
  in.lse = {};
  refuse(in, "layer 3 lse: not pushed; the scorer needs them", kvzip);
  in = layer.input;
  in.queries.num_tokens = limits::kObservationQueriesMax + 1;
  in.queries.head_stride_bytes = in.queries.head_bytes();
  refuse(in, "layer 3 queries: num_tokens is 65537, must be in [1, 65536]", kvzip);
}

TEST_CASE_METHOD(Fixture, "check refuses query statistics that are missing, misfit or not finite",
                 "[kernels][check]") {
  const Recipe expected = scorer_defaults(Scorer::kExpectedAttention);
  shape.query_stats = true;
  OwnedLayer layer = make_layer(shape, rng);
  CHECK(check(expected, layer.input) == Status{});
  LayerInput in = layer.input;
  SECTION("mean missing") {
    in.query_mean = {};
    refuse(in, "layer 3 query_mean: not pushed; the scorer needs them", expected);
  }
  SECTION("covariance missing") {
    in.query_covariance = {};
    refuse(in, "layer 3 query_covariance: not pushed; the scorer needs them", expected);
  }
  SECTION("mean of another size") {
    in.query_mean = in.query_mean.first(47);
    refuse(in, "layer 3 query_mean: size is 47, must be 48", expected);
    refuse(in, "layer 3 query_mean: size is 47, must be 48");  // even if the recipe does not need
                                                               // it
  }
  SECTION("covariance of another size") {
    in.query_covariance = in.query_covariance.first(48);
    refuse(in, "layer 3 query_covariance: size is 48, must be 384", expected);
  }
  SECTION("mean not finite") {
    layer.query_mean[2 * 8 + 5] = NAN;
    refuse(in, "layer 3 query_mean: NaN at head 2, channel 5", expected);
  }
  SECTION("covariance not finite") {
    layer.query_covariance[3 * 64 + 17] = INFINITY;
    refuse(in, "layer 3 query_covariance: infinity at head 3, element 17", expected);
  }
}

TEST_CASE_METHOD(Fixture, "check refuses an output projection that is missing or does not fit",
                 "[kernels][check]") {
  shape.o_proj_width = 12;
  const OwnedLayer layer = make_layer(shape, rng);
  Recipe critical = snapkv();
  critical.selector = Selector::kTwoStage;
  Recipe gram = critical;
  gram.value_norm = ValueNorm::kL2Gram;
  Recipe alone = critical;
  alone.value_norm = ValueNorm::kVL1;
  const Recipe defensive = scorer_defaults(Scorer::kDefensive);
  for (const Recipe& recipe : {critical, gram, alone, defensive}) {
    CHECK(check(recipe, layer.input) == Status{});
  }
  LayerInput in = layer.input;
  in.o_proj = {};
  CHECK(check(alone, in) == Status{});
  refuse(in, "layer 3 o_proj: none is registered with the model, the recipe needs it", critical);
  refuse(in, "layer 3 o_proj: none is registered with the model, the recipe needs it", defensive);
  refuse(in, "layer 3 o_proj: no Gram matrices, value_norm=l2_gram needs them", gram);
  in = layer.input;
  in.o_proj.data = nullptr;
  CHECK(check(gram, in) == Status{});
  in = layer.input;
  in.o_proj.gram = in.o_proj.gram.first(383);
  refuse(in, "layer 3 o_proj: size of the Gram matrices is 383, must be 384", critical);
  in = layer.input;
  in.o_proj.width = 0;
  refuse(in, "layer 3 o_proj: width is 0", critical);
  in = layer.input;
  in.o_proj.dtype = static_cast<Dtype>(9);
  refuse(in, "layer 3 o_proj: dtype 9 is unknown", critical);
}

TEST_CASE_METHOD(Fixture, "check refuses a recipe that no stage can work with",
                 "[kernels][check]") {
  const OwnedLayer layer = make_layer(shape, rng);
  Recipe recipe = snapkv();
  recipe.kernel = 4;
  const Status status = check(recipe, layer.input);
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(status.message(), Contains("kernel is 4"));
}

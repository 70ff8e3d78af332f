// RoPE frequencies compared with Transformers' formulas, computed by hand.
#include "precis/rope.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <numbers>

#include "precis/limits.h"

namespace precis {
namespace {

ModelSpec model(const std::string& scaling, double theta = 10000) {
  ModelSpec spec;
  spec.name = "m";
  spec.num_layers = 2;
  spec.num_q_heads = spec.num_kv_heads = 1;
  spec.head_dim = 8;
  spec.rope_theta = theta;
  spec.rope_scaling = scaling;
  return spec;
}

TEST_CASE("pair c turns by theta^(-2c/d) per position", "[unit][schema]") {
  const auto frequencies = rope_frequencies(model("", 81))[0];
  REQUIRE(frequencies.size() == 4);
  CHECK(frequencies[0] == 1);
  CHECK(frequencies[2] == Approx(1.0 / 9));
  CHECK(rope_frequencies(model(R"({"rope_type":"default"})", 81))[1] == frequencies);
}

TEST_CASE("linear scaling slows every pair, partial rotation leaves out the last elements",
          "[unit][schema]") {
  const auto slow = rope_frequencies(model(R"({"rope_type":"linear","factor":8.0})"))[0];
  REQUIRE(slow.size() == 4);
  CHECK(slow[0] == Approx(1.0 / 8));
  CHECK(rope_frequencies(model(R"({"type":"linear","factor":8.0})"))[0] == slow);
  const auto partial = rope_frequencies(model(R"({"partial_rotary_factor":0.5})", 16))[0];
  REQUIRE(partial.size() == 2);
  CHECK(partial[1] == Approx(0.25));
}

TEST_CASE("llama3 scaling slows slow turns, leaves fast ones and blends between",
          "[unit][schema]") {
  const auto f =
      rope_frequencies(model(R"({"factor":8.0,"high_freq_factor":4.0,"low_freq_factor":1.0,)"
                             R"("original_max_position_embeddings":8192,"rope_type":"llama3"})",
                             500000))[0];
  REQUIRE(f.size() == 4);
  CHECK(f[0] == 1);  // wavelength 6 tokens
  CHECK(f[1] == Approx(std::pow(500000.0, -0.25)));
  CHECK(f[3] == Approx(std::pow(500000.0, -0.75) / 8));  // wavelength 118,000 tokens
  const double plain = std::pow(500000.0, -0.5);         // wavelength 4,443 tokens: 1.84 turns
  const double blend = (8192 * plain / (2 * std::numbers::pi) - 1) / 3;
  CHECK(f[2] == Approx((1 - blend) * plain / 8 + blend * plain));
}

TEST_CASE("layers of unlike kinds turn unlike", "[unit][schema]") {
  const ModelSpec spec = model(R"({"full":{"rope_theta":81.0,"rope_type":"default"},)"
                               R"("layer_types":["slide","full"],)"
                               R"("slide":{"rope_theta":16.0,"rope_type":"default"}})");
  const auto layers = rope_frequencies(spec);
  REQUIRE(layers.size() == 2);
  CHECK(layers[0][2] == Approx(0.25));
  CHECK(layers[1][2] == Approx(1.0 / 9));
  for (std::uint32_t layer = 0; layer < 2; ++layer)
    CHECK(rope_frequencies(spec, layer) == layers[layer]);
}

TEST_CASE("layers without RoPE do not turn", "[unit][schema]") {
  const auto layers = rope_frequencies(model(R"({"rope_layers":[1,0]})", 81));
  CHECK(layers[0].size() == 4);
  CHECK(layers[1].empty());
}

TEST_CASE("what is not understood has no frequencies", "[unit][schema]") {
  for (const char* scaling :
       {R"({"rope_type":"yarn","factor":4})", R"({"rope_type":"linear"})", "[]", "no json",
        R"({"rope_type":"llama3","factor":8})", R"({"partial_rotary_factor":2})",
        R"({"layer_types":["a","b"]})", R"({"layer_types":7})", R"({"rope_theta":-1})",
        R"({"rope_type":7})", "null"}) {
    CAPTURE(scaling);
    CHECK(rope_frequencies(model(scaling))[0].empty());
  }
}

TEST_CASE("scaling of a kind that nobody knows, or without its factor, is refused by name",
          "[unit][schema]") {
  using Catch::Matchers::Contains;
  for (const char* sound :
       {"", "{}", R"({"rope_type":"default"})", R"({"rope_type":null})",
        R"({"type":"linear","factor":2})", R"({"rope_type":"yarn","factor":4})",
        R"({"rope_type":"longrope","long_factor":[1]})", R"({"rope_layers":[1,0]})",
        R"({"partial_rotary_factor":0.5})", R"({"type":"mrope","mrope_section":[1]})",
        R"({"layer_types":["a","b"],"a":{"rope_type":"default"},"b":null})"}) {
    CAPTURE(sound);
    CHECK(check_rope_scaling(model(sound)) == Status());
  }
  const auto refused = [](const std::string& scaling) {
    const Status status = check_rope_scaling(model(scaling));
    CHECK(status.code() == StatusCode::kInvalidArgument);
    return status.message();
  };
  CHECK_THAT(refused(R"({"rope_type":"yarm","factor":4})"),
             Contains("rope_scaling: rope_type 'yarm' is unknown, choose one of default, "));
  CHECK_THAT(refused(R"({"type":7})"), Contains("type is number, must be a string"));
  CHECK_THAT(refused(R"({"rope_type":"linear"})"), Contains("factor is missing"));
  CHECK_THAT(refused(R"({"rope_type":"linear","factor":0})"), Contains("factor is 0, must be"));
  CHECK_THAT(refused(R"({"rope_type":"yarn","factor":-4.0})"), Contains("factor is -4.0, must be"));
  CHECK_THAT(refused(R"({"rope_type":"linear","factor":"2"})"), Contains("factor is string"));
  CHECK_THAT(refused(R"({"rope_type":"llama3","factor":8})"),
             Contains("low_freq_factor is missing, rope_type 'llama3' needs it"));
  CHECK_THAT(refused(R"({"layer_types":["a"],"a":{"rope_type":"b"}})"), Contains("'b' is unknown"));
  CHECK_THAT(refused("[]"), Contains("'[]' is not a JSON object"));
  CHECK_THAT(refused("yarn"), Contains("'yarn' is not a JSON object"));
  const std::string deep(limits::kRopeScalingBytesMax / 2 - 16, '[');
  CHECK_THAT(refused(R"({"rope_type":)" + deep + std::string(deep.size(), ']') + "}"),
             Contains("rope_type is array"));
}

TEST_CASE("scaling that a client nested as deep as a model may be long is read", "[unit][schema]") {
  const std::string deep(limits::kRopeScalingBytesMax / 2 - 16, '[');
  const std::string nested = deep + std::string(deep.size(), ']');
  CHECK(rope_frequencies(model(R"({"unknown":)" + nested + "}"))[1].size() == 4);
  CHECK(rope_frequencies(model(R"({"rope_type":)" + nested + "}"))[1].empty());
  CHECK(rope_frequencies(model(R"({"layer_types":["a","b"],"b":)" + nested + "}"))[1].empty());
}

}  // namespace
}  // namespace precis

// Profiles as JSON: an accepted profile can be written and read again.
#include "precis/profile.h"

#include <catch2/catch.hpp>
#include <string>

#include "precis/limits.h"
#include "precis/loss_budget.h"

namespace precis {
namespace {

Profile weights(float each) {
  Profile profile;
  profile.name = "w";
  profile.kind = Profile::Kind::kWeights;
  profile.scorer = canonical_recipe(*parse_recipe("keydiff"));
  profile.num_layers = 2;
  profile.num_kv_heads = 3;
  profile.table.assign(6, each);
  return profile;
}

TEST_CASE("the largest weight that a profile may have is read as it is written", "[unit][schema]") {
  const Profile profile = weights(1e30f);
  CHECK(parse_profile(profile_json(profile)).value() == profile);
  CHECK_FALSE(parse_profile(profile_json(weights(1.001e30f))).ok());
}

Profile probe(std::uint32_t head_dim) {
  Profile profile = weights(0);
  profile.kind = Profile::Kind::kProbe;
  profile.table.assign(std::size_t{6} * ProbeRows{head_dim}.count(), 0);
  for (std::size_t i = 0; i < profile.table.size(); ++i) {
    profile.table[i] = 0.25f * static_cast<float>(i) - 20;
  }
  return profile;
}

TEST_CASE("a probe is read as it is written, if it has a row for each channel", "[unit][schema]") {
  const Profile whole = probe(8);
  CHECK(parse_profile(profile_json(whole)).value() == whole);
  for (const float bad : {1.1e6f, -1.1e6f}) {
    Profile out_of_range = whole;
    out_of_range.table[3] = bad;
    CHECK_THAT(parse_profile(profile_json(out_of_range)).status().message(),
               Catch::Contains("table[3] must be a number in [-1e6, 1e6]"));
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{6} * 5, whole.table.size() - 1,
                                 whole.table.size() + 6, 6 * (3 * std::size_t{100'000} + 6)}) {
    Profile other = whole;
    other.table.resize(size);
    CHECK_THAT(parse_profile(profile_json(other)).status().message(),
               Catch::Contains("[3 * head_dim + 6, num_layers, num_kv_heads]"));
  }
  Profile without_distance = whole;
  without_distance.table.resize(whole.table.size() - 6);
  CHECK_THAT(parse_profile(profile_json(without_distance)).status().message(),
             Catch::Contains("a probe of an earlier build"));
}

TEST_CASE("a layer's probe is its columns of the table, head after head", "[unit][schema]") {
  const Profile profile = probe(8);
  const std::uint32_t rows = ProbeRows{8}.count();
  REQUIRE(profile.rows() == rows);
  const auto layer = probe_of_layer(profile, 1);
  REQUIRE(layer.size() == 3 * rows);
  for (std::uint32_t head = 0; head < 3; ++head) {
    for (std::uint32_t row = 0; row < rows; ++row) {
      CHECK(layer[head * rows + row] == profile.at(row, 1, head));
    }
  }
}

TEST_CASE("a profile is refused for a model of other layers, heads or channels", "[unit][schema]") {
  ModelSpec model;
  model.name = "m";
  model.num_layers = 2;
  model.num_kv_heads = 3;
  model.head_dim = 8;
  CHECK(check_profile_shape(probe(8), model).ok());
  CHECK(check_profile_shape(weights(0), model).ok());
  CHECK_THAT(check_profile_shape(probe(16), model).message(),
             Catch::Contains("heads with 16 channels, model 'm' has 8"));
  model.num_kv_heads = 1;
  CHECK_THAT(check_profile_shape(weights(0), model).message(),
             Catch::Contains("2 layers with 3 KV heads, model 'm' has 2 layers with 1 KV heads"));
}

TEST_CASE("a probe fits the recipes of kvprobe, whatever they protect, and no others",
          "[unit][schema]") {
  Profile profile = probe(8);
  profile.scorer = profile_scorer(parse_recipe("kvprobe").value());
  const auto fits = [&](const char* recipe) {
    return check_profile(profile, parse_recipe(recipe).value(), profile.model).ok();
  };
  CHECK(parse_profile(profile_json(profile)).value() == profile);
  CHECK(fits("kvprobe"));
  CHECK(fits("global_kvprobe(min_entries=128, sinks=8, recent=0, alpha=0.1)"));
  CHECK_FALSE(fits("lukv(kvdiff)"));
  CHECK_FALSE(fits("headkv"));
}

TEST_CASE("a profile is an object of plain values and one list of numbers", "[unit][schema]") {
  const auto refusal = [](const std::string& text) {
    const Status status = parse_profile(text).status();
    CHECK(status.code() == StatusCode::kInvalidArgument);
    return status.message();
  };
  for (const char* text : {"", "[1]", "7", "{\"table\": [1", "{\"a\": 1}}"}) {
    CHECK_THAT(refusal(text), Catch::Contains("not a JSON object"));
  }
  // Texts whose parse tree would take a hundred times their bytes are refused where nesting begins.
  CHECK_THAT(refusal("{\"table\": " + std::string(1u << 20, '[')),
             Catch::Contains("'table' is a list"));
  CHECK_THAT(refusal("{\"table\": [{}]}"), Catch::Contains("'table' is an object"));
  CHECK_THAT(refusal("{\"more\": [1]}"), Catch::Contains("'more' is a list"));
  std::string fields = "{";
  for (int i = 0; i < 100; ++i) fields += "\"" + std::to_string(i) + "\": 1, ";
  CHECK_THAT(refusal(fields + "\"table\": []}"), Catch::Contains("more than 64 fields"));

  std::string json = profile_json(weights(0.5f));
  json.insert(1, "\"of a later build\": true, ");
  CHECK(parse_profile(json).value() == weights(0.5f));
  json.replace(json.find("0.5"), 3, "true");
  CHECK_THAT(refusal(json), Catch::Contains("table[0] must be a number"));
}

TEST_CASE("a profile's text is the same however many numbers are written at a time",
          "[unit][schema]") {
  const std::string head =
      R"({"version":1,"name":"w","kind":"weights","model":")" + std::string(64, '0') +
      R"(","scorer":"s","sinks":0,"recent":0,"num_layers":2,"num_kv_heads":3,"num_tokens":0,)" +
      R"("text_digest":"",)";
  Profile small = weights(0.1f);
  small.scorer = "s";
  CHECK(profile_json(small) ==
        head + R"("table":[0.10000000149011612,0.10000000149011612,0.10000000149011612,)" +
            R"(0.10000000149011612,0.10000000149011612,0.10000000149011612]})");
  Profile large = weights(0);
  large.num_layers = 1000;
  large.num_kv_heads = 10;
  large.table.clear();
  for (int i = 0; i < 10'000; ++i) large.table.push_back(static_cast<float>(i) / 7);
  CHECK(parse_profile(profile_json(large)).value() == large);
}

TEST_CASE("a table of very many short numbers is refused before it is kept", "[unit][schema]") {
  constexpr std::size_t kMost = limits::kProfileBytesMax / 4;
  std::string text = "{\"table\": [0";
  for (std::size_t i = 0; i < kMost; ++i) text += ",0";
  CHECK_THAT(parse_profile(text + "]}").status().message(),
             Catch::Contains("more than " + std::to_string(kMost)));
}

TEST_CASE("measured losses are read as they are written, and change no digest", "[unit][schema]") {
  const Profile plain = weights(0.5f);
  Profile measured = plain;
  measured.losses = {
      {1024, 100'000, 0.125f, 0.0f}, {1024, 1'000'000, -0.25f, 0.5f}, {4096, 100'000, 1.0f, 0.25f}};
  measured.losses_recipe = measured_recipe(*parse_recipe("keydiff(encoding=int8)"));
  CHECK(parse_profile(profile_json(measured)).value() == measured);
  CHECK(profile_digest(measured) == profile_digest(plain));
  const auto refused = [&](const Profile& wrong, const char* why) {
    CHECK_THAT(parse_profile(profile_json(wrong)).status().message(), Catch::Contains(why));
  };
  Profile wrong = measured;
  std::swap(wrong.losses[0], wrong.losses[1]);
  refused(wrong, "losses[4] begins a row that is not above the one before");
  for (const Profile::Loss& loss : {Profile::Loss{0, 100'000, 0, 0}, Profile::Loss{1, 0, 0, 0},
                                    Profile::Loss{1, 1'000'001, 0, 0}, Profile::Loss{1, 1, 2000, 0},
                                    Profile::Loss{1, 1, 0, -1}}) {
    wrong = measured;
    wrong.losses = {loss};
    refused(wrong, "losses[0] must begin a row of four numbers");
  }
  wrong = measured;
  wrong.losses_recipe = "no_such_preset";
  refused(wrong, "losses_recipe");
  const std::string json = profile_json(plain);
  for (const char* more :
       {R"("losses":[1,2,3],"losses_recipe":"keydiff",)",
        R"("losses":[1,0.5,"x",0],"losses_recipe":"keydiff",)", R"("losses":[1,0.5,0.1,0],)",
        R"("losses":[[1]],)", R"("losses":{},)", R"("losses":5,)"}) {
    CAPTURE(more);
    CHECK_FALSE(parse_profile("{" + (more + json.substr(1))).ok());
  }
  std::string many = R"({"losses_recipe":"keydiff","losses":[0)";
  for (int i = 0; i < 2000; ++i) many += ",1";
  CHECK_THAT(parse_profile(many + "]," + json.substr(1)).status().message(),
             Catch::Contains("losses has more than 1024 numbers"));
}

}  // namespace
}  // namespace precis

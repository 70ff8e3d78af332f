// Profiles as JSON: what is accepted can be written and read again.
#include "precis/profile.h"

#include <catch2/catch.hpp>

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

TEST_CASE("a profile is an object of plain values and one list of numbers", "[unit][schema]") {
  const auto refusal = [](const std::string& text) {
    const Status status = parse_profile(text).status();
    CHECK(status.code() == StatusCode::kInvalidArgument);
    return status.message();
  };
  for (const char* text : {"", "[1]", "7", "{\"table\": [1", "{\"a\": 1}}"}) {
    CHECK_THAT(refusal(text), Catch::Contains("not a JSON object"));
  }
  // Texts of which a tree would take a hundred times their bytes end where they become one.
  CHECK_THAT(refusal("{\"table\": " + std::string(1u << 20, '[')),
             Catch::Contains("'table' holds a list"));
  CHECK_THAT(refusal("{\"table\": [{}]}"), Catch::Contains("'table' holds an object"));
  CHECK_THAT(refusal("{\"more\": [1]}"), Catch::Contains("'more' holds a list"));
  std::string fields = "{";
  for (int i = 0; i < 100; ++i) fields += "\"" + std::to_string(i) + "\": 1, ";
  CHECK_THAT(refusal(fields + "\"table\": []}"), Catch::Contains("more than 64 fields"));

  std::string json = profile_json(weights(0.5f));
  json.insert(1, "\"of a later build\": true, ");
  CHECK(parse_profile(json).value() == weights(0.5f));
  json.replace(json.find("0.5"), 3, "true");
  CHECK_THAT(refusal(json), Catch::Contains("table[0] must be a number"));
}

}  // namespace
}  // namespace precis

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

}  // namespace
}  // namespace precis

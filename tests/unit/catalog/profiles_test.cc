#include <catch2/catch.hpp>

#include "precis/limits.h"
#include "tests/unit/catalog/catalog_fixture.h"

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

namespace {

Recipe lukv(const std::string& profile = {}) {
  return *parse_recipe("lukv(keydiff" + (profile.empty() ? "" : ", profile=" + profile) + ")");
}

Status add(CatalogFixture& f, const Profile& profile) {
  return f.catalog->add_profile(f.tenant, profile_json(profile)).status();
}

}  // namespace

TEST_CASE("a profile is found by name, by digest, or as the only one that fits",
          "[unit][catalog]") {
  CatalogFixture f;
  const Profile profile = f.profile("one");
  CHECK(f.catalog->find_profile(f.tenant, f.fingerprint, lukv()).status().code() ==
        StatusCode::kNotFound);
  REQUIRE(add(f, profile).ok());
  f.crash_and_reopen();
  for (const std::string& name :
       {std::string(), std::string("one"), profile_digest(profile).hex()}) {
    const auto found = f.catalog->find_profile(f.tenant, f.fingerprint, lukv(name));
    REQUIRE(found.ok());
    CHECK(*found->profile == profile);
  }
  CHECK(f.catalog->find_profile(f.tenant, f.fingerprint, lukv("two")).status().code() ==
        StatusCode::kNotFound);
  CHECK(f.catalog->find_profile("foreign", f.fingerprint, lukv("one")).status().code() ==
        StatusCode::kNotFound);
  const Recipe other = *parse_recipe("lukv(knorm, profile=one)");
  CHECK_THAT(f.catalog->find_profile(f.tenant, f.fingerprint, other).status().message(),
             Contains("built for scorer"));
}

TEST_CASE("where several profiles fit, the one added last is meant", "[unit][catalog]") {
  CatalogFixture f;
  REQUIRE(add(f, f.profile("one")).ok());
  f.clock.advance_ms(5);
  REQUIRE(add(f, f.profile("a later one", 0.25f)).ok());
  CHECK(f.catalog->find_profile(f.tenant, f.fingerprint, lukv())->profile->name == "a later one");
  f.reopen();
  CHECK(f.catalog->find_profile(f.tenant, f.fingerprint, lukv())->profile->name == "a later one");
  REQUIRE(f.catalog->remove_profile(f.tenant, f.fingerprint, "a later one").ok());
  CHECK(f.catalog->find_profile(f.tenant, f.fingerprint, lukv())->profile->name == "one");

  f.clock.advance_ms(5);
  const std::string of_table = std::string(kTableProfile) + "of-a-budget";
  REQUIRE(add(f, f.profile(of_table, 0.25f)).ok());
  CHECK(f.catalog->find_profile(f.tenant, f.fingerprint, lukv())->profile->name == "one");
  CHECK(f.catalog->find_profile(f.tenant, f.fingerprint, lukv(of_table)).ok());

  Profile weights = f.profile("weights");
  weights.kind = Profile::Kind::kWeights;
  weights.table.resize(std::size_t{f.model.num_layers} * f.model.num_kv_heads);
  f.clock.advance_ms(5);
  REQUIRE(add(f, weights).ok());
  CHECK(f.catalog->find_profile(f.tenant, f.fingerprint, lukv())->profile->name == "one");
  CHECK_THAT(f.catalog->find_profile(f.tenant, f.fingerprint, lukv("weights")).status().message(),
             Contains("built for a table of weights, not for curves"));
}

TEST_CASE("a probe is found for kvprobe, and refused for heads of another size",
          "[unit][catalog]") {
  CatalogFixture f;
  const Recipe kvprobe = *parse_recipe("global_kvprobe(min_entries=128)");
  CHECK(f.catalog->find_profile(f.tenant, f.fingerprint, kvprobe).status().code() ==
        StatusCode::kNotFound);
  Profile probe = f.profile("learnt");
  probe.kind = Profile::Kind::kProbe;
  probe.scorer = profile_scorer(kvprobe);
  const std::size_t heads = std::size_t{f.model.num_layers} * f.model.num_kv_heads;
  probe.table.assign(heads * ProbeRows{f.model.head_dim + 1}.count(), -0.5f);
  CHECK_THAT(add(f, probe).message(), Contains("channels"));
  probe.table.assign(heads * ProbeRows{f.model.head_dim}.count(), -0.5f);
  REQUIRE(add(f, probe).ok());
  f.reopen();
  CHECK(*f.catalog->find_profile(f.tenant, f.fingerprint, kvprobe)->profile == probe);
  CHECK(f.catalog->profiles(f.tenant, {}).front().kind == "probe");
  CHECK(f.catalog->find_profile(f.tenant, f.fingerprint, lukv()).status().code() ==
        StatusCode::kNotFound);
}

TEST_CASE("a profile takes the place of one of its name; who holds the old one keeps it",
          "[unit][catalog]") {
  CatalogFixture f;
  REQUIRE(add(f, f.profile("one")).ok());
  const auto old = f.catalog->find_profile(f.tenant, f.fingerprint, lukv());
  REQUIRE(add(f, f.profile("one", 0.25f)).ok());
  CHECK(f.catalog->profiles(f.tenant, {}).size() == 1);
  CHECK(old->profile->table.front() == 0.5f);
  f.reopen();
  CHECK(f.catalog->find_profile(f.tenant, f.fingerprint, lukv())->profile->table.front() == 0.25f);
  const auto shown = f.catalog->profile(f.tenant, f.fingerprint, "one");
  REQUIRE(shown.ok());
  CHECK(parse_profile(shown->json).value() == f.profile("one", 0.25f));
}

TEST_CASE("profiles are refused that fit no model, are too many, or that the store refuses",
          "[unit][catalog]") {
  CatalogFixture f;
  Profile other = f.profile("one");
  other.model = Digest{};
  CHECK(add(f, other).code() == StatusCode::kNotFound);
  other = f.profile("one");
  other.num_layers = 1;
  other.table.resize(std::size_t{Profile::kCurveRows} * other.num_kv_heads);
  CHECK(add(f, other).code() == StatusCode::kInvalidArgument);
  other = f.profile("one");
  other.text_digest = std::string(300, 'a');
  CHECK_THAT(add(f, other).message(), Contains("text_digest must be a SHA-256"));
  other = f.profile(std::string(64, 'a'));
  CHECK_THAT(add(f, other).message(), Contains("name must not look like a digest"));
  CHECK(f.catalog->add_profile(f.tenant, "{}").status().code() == StatusCode::kInvalidArgument);
  f.store.fail_next_write(Status::out_of_space("full"));
  CHECK(add(f, f.profile("one")).code() == StatusCode::kOutOfSpace);
  CHECK(f.catalog->profiles(f.tenant, {}).empty());
  for (std::size_t i = 0; i < limits::kProfilesPerTenantMax; ++i) {
    REQUIRE(add(f, f.profile("p" + std::to_string(i))).ok());
  }
  CHECK(add(f, f.profile("more")).code() == StatusCode::kRejected);
  CHECK(add(f, f.profile("p0", 0.25f)).ok());
}

// The canonical text of a number as short as 0.1 has 19 characters. In that form, a profile of the
// largest accepted size could not be sent.
TEST_CASE("a profile is shown as the text that was added, now and after a restart",
          "[unit][catalog]") {
  CatalogFixture f;
  std::string text = profile_json(f.profile("one", 0.1f));
  const std::string number = "0.10000000149011612";
  for (std::size_t at = 0; (at = text.find(number, at)) != std::string::npos;)
    text.replace(at, number.size(), "0.1");
  const auto added = f.catalog->add_profile(f.tenant, text);
  REQUIRE(added.ok());
  CHECK(added->digest == profile_digest(f.profile("one", 0.1f)));
  CHECK(f.catalog->profile(f.tenant, f.fingerprint, "one")->json == text);
  f.reopen();
  CHECK(f.catalog->profile(f.tenant, f.fingerprint, "one")->json == text);

  // A replacement within the same millisecond gets a later time.
  REQUIRE(add(f, f.profile("one", 0.5f)).ok());
  const auto shown = f.catalog->profile(f.tenant, f.fingerprint, "one");
  REQUIRE(shown.ok());
  CHECK(shown->added_unix_ms > added->added_unix_ms);
  CHECK(shown->json == profile_json(f.profile("one", 0.5f)));
  CHECK(f.catalog->profile(f.tenant, f.fingerprint, "two").status().code() ==
        StatusCode::kNotFound);
}

TEST_CASE("the tables of a tenant's profiles are bounded together", "[unit][catalog]") {
  CatalogFixture f;
  ModelSpec large = f.model;
  large.name = "large";
  large.num_layers = 64;
  large.num_kv_heads = large.num_q_heads = 256;
  const auto row = f.catalog->register_model(f.tenant, large);
  REQUIRE(row.ok());
  Profile profile = f.profile("p0");
  profile.model = row->fingerprint;
  profile.num_layers = large.num_layers;
  profile.num_kv_heads = large.num_kv_heads;
  profile.table.assign(std::size_t{Profile::kCurveRows} * 64 * 256, 1.0f);
  const std::size_t fit = 2 * limits::kProfileBytesMax / profile.table.size();
  REQUIRE(fit < limits::kProfilesPerTenantMax);
  for (std::size_t i = 0; i < fit; ++i) {
    profile.name = "p" + std::to_string(i);
    REQUIRE(add(f, profile).ok());
  }
  CHECK(add(f, profile).ok());  // replaces itself
  profile.name = "more";
  const Status refused = add(f, profile);
  CHECK(refused.code() == StatusCode::kRejected);
  CHECK_THAT(refused.message(), Contains(std::to_string(2 * limits::kProfileBytesMax)));
  REQUIRE(f.catalog->remove_profile(f.tenant, row->fingerprint, "p0").ok());
  CHECK(add(f, profile).ok());
}

// precisctl's messages if the name of a model matches none, or several.
#include <catch2/catch.hpp>

#include "tests/integration/random_kv.h"
#include "tests/integration/service_process.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

TEST_CASE("a budget for a model that is none, or several, lists what could be meant",
          "[integration]") {
  const TempDir dir;
  const ServiceProcess service(dir);
  const auto set_for = [&](const std::string& model) {
    return run({PRECISCTL_PATH, "--address", service.address(), "budget", "set", "--model", model,
                "--keep", "0.5"});
  };
  const Ran nothing = set_for("test/tiny");
  CHECK(nothing.exit_code == 3);
  CHECK_THAT(nothing.err, Contains("no model is called 'test/tiny'") && Contains("there are none"));

  const std::shared_ptr<Client> client = service.connect();
  ModelSpec spec = tiny_model();
  const std::string first = client->register_model(spec).value().fingerprint.hex();
  spec.revision = "second";
  const std::string second = client->register_model(spec).value().fingerprint.hex();

  const Ran none = set_for("test/huge");
  CHECK(none.exit_code == 3);
  CHECK_THAT(none.err, Contains("no model is called 'test/huge'") &&
                           Contains("give the name or the fingerprint of one of 2"));
  const Ran both = set_for("test/tiny");
  CHECK(both.exit_code == 2);
  CHECK_THAT(both.err, Contains("'test/tiny' means 2 models: give the fingerprint of one"));
  for (const Ran& ran : {none, both}) {
    CHECK_THAT(ran.err, Contains(first + "  test/tiny  revision \"\"\n") &&
                            Contains(second + "  test/tiny  revision \"second\"\n"));
  }
  CHECK(set_for(second.substr(0, 12)).exit_code == 0);

  spec.dtype = Dtype::kBf16;
  spec.rope_theta = 500000;
  REQUIRE(client->register_model(spec).ok());
  CHECK_THAT(set_for("test/tiny").err,
             Contains("revision \"second\"  dtype \"bf16\"  rope_theta 500000.0\n"));
}

}  // namespace

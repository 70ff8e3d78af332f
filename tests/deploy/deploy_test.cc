// The example configuration that is shipped is one that precisd accepts, and tells the defaults.
#include <catch2/catch.hpp>

#include "cachesvc/base/config.h"

TEST_CASE("the example configuration loads and holds the defaults", "[deploy]") {
  const auto example = precis::Config::load(PRECIS_SOURCE_DIR "/deploy/precisd.toml");
  INFO(example.status().to_string());
  REQUIRE(example.ok());
  REQUIRE(example->validate().ok());
  const precis::Config defaults;
  CHECK(example->data_dir == "/var/lib/precis");
  CHECK(example->listen == defaults.listen);
  CHECK(example->memory_bytes == defaults.memory_bytes);
  CHECK(example->memory_wait_ms == defaults.memory_wait_ms);
  CHECK(example->compute_threads == defaults.compute_threads);
  CHECK(example->transports == defaults.transports);
  CHECK(example->bulk == defaults.bulk);
  CHECK(example->log_level == defaults.log_level);
  CHECK(example->default_recipe == defaults.default_recipe);
  CHECK(example->default_keep == defaults.default_keep);
  CHECK(example->tenants.empty());
}

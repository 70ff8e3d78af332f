// The shipped example configuration is accepted by precisd, lists every key, and shows the
// defaults.
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "cachesvc/base/config.h"

namespace {

using precis::Config;

constexpr char kExample[] = PRECIS_SOURCE_DIR "/deploy/precisd.toml";

// Every key that precisd knows, taken from its error for an unknown key.
std::vector<std::string> known_keys() {
  const std::string said = Config::parse("no_such_key = 0", "here").status().message();
  const std::string before = "choose from ";
  REQUIRE(said.find(before) != std::string::npos);
  std::istringstream list(said.substr(said.find(before) + before.size()));
  std::vector<std::string> keys;
  for (std::string key; std::getline(list, key, ',');) {
    keys.push_back(key.substr(key.find_first_not_of(' ')));
  }
  return keys;
}

// The lines of the example that set a key, indexed by key.
std::map<std::string, std::string> example_lines() {
  std::map<std::string, std::string> lines;
  std::ifstream example(kExample);
  for (std::string line; std::getline(example, line);) {
    const std::size_t end = line.find(" = ");
    if (end != std::string::npos && line[0] != '#') lines[line.substr(0, end)] = line;
  }
  return lines;
}

Config expected() {
  Config config;
  config.data_dir = "/var/lib/precis";  // it has no default
  return config;
}

TEST_CASE("the example configuration loads and holds the defaults", "[deploy]") {
  auto example = Config::load(kExample);
  INFO(example.status().to_string());
  REQUIRE(example.ok());
  REQUIRE(example->validate().ok());
  example->said_at.clear();
  CHECK(*example == expected());
}

TEST_CASE("the example configuration has every key, with its default", "[deploy]") {
  const auto lines = example_lines();
  const auto keys = known_keys();
  CHECK(lines.size() + 1 == keys.size());  // except tenants, which are in comments
  for (const std::string& key : keys) {
    if (key == "tenant") continue;
    CAPTURE(key);
    REQUIRE(lines.contains(key));
    auto alone = Config::parse(lines.at(key), kExample);
    REQUIRE(alone.ok());
    alone->data_dir = expected().data_dir;
    alone->said_at.clear();
    CHECK(*alone == expected());
  }
}

}  // namespace

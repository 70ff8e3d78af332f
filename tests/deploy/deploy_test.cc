// The shipped example configuration is accepted by precisd, lists every key, and shows the
// defaults.
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <string>

#include "cachesvc/base/config_settings.h"

namespace {

using precis::Adopted, precis::Config, precis::each_setting;

constexpr char kExample[] = PRECIS_SOURCE_DIR "/deploy/precisd.toml";

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
  std::size_t keys = 0;
  each_setting([&](const std::string& key, auto, Adopted) {
    ++keys;
    CAPTURE(key);
    REQUIRE(lines.contains(key));
    auto alone = Config::parse(lines.at(key), kExample);
    REQUIRE(alone.ok());
    alone->data_dir = expected().data_dir;
    alone->said_at.clear();
    CHECK(*alone == expected());
  });
  CHECK(lines.size() == keys);
}

}  // namespace

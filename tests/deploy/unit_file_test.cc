// The systemd unit that is shipped keeps the service from what it does not need.
#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>

namespace {

constexpr char kUnit[] = PRECIS_SOURCE_DIR "/deploy/precisd.service";

std::set<std::string> lines() {
  std::set<std::string> lines;
  std::ifstream unit(kUnit);
  for (std::string line; std::getline(unit, line);) lines.insert(line);
  return lines;
}

// The output of `command`; empty where it can't be run.
std::string printed(const std::string& command) {
  std::string text;
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  for (int c; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  ::pclose(pipe);
  return text;
}

TEST_CASE("the unit gives no capability and keeps what is stored to itself", "[deploy]") {
  const auto unit = lines();
  for (const char* line : {"Type=notify", "ExecReload=/bin/kill -HUP $MAINPID", "DynamicUser=yes",
                           "CapabilityBoundingSet=", "AmbientCapabilities=", "NoNewPrivileges=yes",
                           "StateDirectory=precis", "StateDirectoryMode=0700", "UMask=0077",
                           "LoadCredential=default.token"}) {
    CAPTURE(line);
    CHECK(unit.contains(line));
  }
  for (const std::string& line : unit) CHECK(line.find("CAP_") == std::string::npos);
}

TEST_CASE("systemd-analyze rates what the unit leaves exposed at most 2.5", "[deploy]") {
  if (printed("command -v systemd-analyze").empty()) {
    // Catch2 2 knows no skipping; ctest takes these words for it.
    std::printf("skipped: systemd-analyze is not installed (Debian's package systemd)\n");
    return;
  }
  const std::string said =
      printed("systemd-analyze security --offline=true --no-pager '" + std::string(kUnit) + "'");
  const std::string before = "Overall exposure level for precisd.service: ";
  const std::size_t at = said.find(before);
  CAPTURE(said);
  REQUIRE(at != std::string::npos);
  CHECK(std::stod(said.substr(at + before.size())) <= 2.5);
}

}  // namespace

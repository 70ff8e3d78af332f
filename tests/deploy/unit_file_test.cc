// The shipped systemd unit and container image deny the service what it does not need, and deny
// clients access to stored data.
#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>

namespace {

constexpr char kUnit[] = PRECIS_SOURCE_DIR "/deploy/precisd.service";

constexpr char kImage[] = PRECIS_SOURCE_DIR "/deploy/container/Containerfile";

std::set<std::string> lines(const char* file = kUnit) {
  std::set<std::string> lines;
  std::ifstream unit(file);
  for (std::string line; std::getline(unit, line);) lines.insert(line);
  return lines;
}

// The output of `command`; empty if it cannot be run.
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
  for (const char* line :
       {"Type=notify", "ExecReload=/bin/kill -HUP $MAINPID", "User=precis", "ProtectSystem=strict",
        "CapabilityBoundingSet=", "AmbientCapabilities=", "NoNewPrivileges=yes",
        "StateDirectory=precis", "StateDirectoryMode=0700", "UMask=0077",
        "LoadCredential=default.token"}) {
    CAPTURE(line);
    CHECK(unit.contains(line));
  }
  for (const std::string& line : unit) CHECK(line.find("CAP_") == std::string::npos);
}

TEST_CASE("the socket that clients share lies in no folder with what is stored", "[deploy]") {
  std::string all;
  for (const char* file : {kUnit, kImage}) {
    std::string text;
    for (const std::string& line : lines(file)) text += line + "\n";
    CAPTURE(file);
    CHECK(text.find("/run/precis/precisd.sock") != std::string::npos);
    all += text;
  }
  CHECK(all.find("RuntimeDirectory=precis\n") != std::string::npos);
  CHECK(lines(kImage).contains("VOLUME /var/lib/precis /run/precis"));  // separate volumes
}

TEST_CASE("systemd-analyze rates what the unit leaves exposed at most 2.5", "[deploy]") {
  if (printed("command -v systemd-analyze").empty()) {
    // Catch2 2 cannot skip a test; ctest recognizes this output.
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

// precisd listens on exactly the sockets of its configuration, according to the kernel.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/integration/operated_service.h"
#include "tests/integration/random_kv.h"
#include "tests/integration/service_process.h"

namespace {

using namespace precis;
using namespace precis::testing;

std::string proc(pid_t pid) { return "/proc/" + std::to_string(pid); }

// The inodes of the sockets that a process has.
std::set<std::string> sockets_of(pid_t pid) {
  std::set<std::string> inodes;
  for (const auto& entry : std::filesystem::directory_iterator(proc(pid) + "/fd")) {
    std::error_code gone;  // it may be closed while the folder is read
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  return inodes;
}

struct Listening {
  std::multiset<std::string> tcp;  // "0100007F:1D2E", as the kernel writes it
  std::multiset<std::string> unix_paths;
  std::size_t datagram = 0;  // sockets of other kinds that hosts may reach
};

Listening listening(pid_t pid) {
  const std::set<std::string> mine = sockets_of(pid);
  Listening found;
  const auto each_row = [&](const char* table, auto on_row) {
    std::ifstream file(proc(pid) + "/net/" + table);
    std::string line;
    std::getline(file, line);  // the heading
    while (std::getline(file, line)) {
      std::istringstream words(line);
      on_row(std::vector<std::string>(std::istream_iterator<std::string>(words), {}));
    }
  };
  constexpr std::size_t kLocal = 1, kState = 3, kInode = 9;
  for (const char* table : {"tcp", "tcp6"}) {
    each_row(table, [&](const std::vector<std::string>& row) {
      if (row.at(kState) == "0A" && mine.contains(row.at(kInode))) found.tcp.insert(row.at(kLocal));
    });
  }
  for (const char* table : {"udp", "udp6", "raw", "raw6"}) {
    each_row(table, [&](const std::vector<std::string>& row) {
      found.datagram += mine.contains(row.at(kInode)) ? 1 : 0;
    });
  }
  constexpr std::size_t kFlags = 3, kUnixInode = 6, kPath = 7;
  each_row("unix", [&](const std::vector<std::string>& row) {
    if (row.at(kFlags) != "00010000" || !mine.contains(row.at(kUnixInode))) return;
    found.unix_paths.insert(row.size() > kPath ? row[kPath] : "(no name)");
  });
  return found;
}

std::string as_kernel_writes(const std::string& address, const std::string& host) {
  char text[64];
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  std::snprintf(text, sizeof text, "%s:%04X", host.c_str(), static_cast<unsigned>(port));
  return text;
}

void put_and_read(Client& client) {
  const Model model = client.register_model(tiny_model()).value();
  std::mt19937 random(20261125);
  const auto path = random_tokens(random, 100);
  const Kv kv = random_kv(random, model.spec, 0, 100);
  REQUIRE(put_all(client, model, path, kv, PutOptions()).ok());
  REQUIRE(read_all(client, model, path).ok());
}

TEST_CASE("precisd listens where it was told, and nowhere else", "[integration]") {
  const bool unix_socket = GENERATE(true, false);
  CAPTURE(unix_socket);
  const TempDir dir;
  const std::string path = dir.path("own.sock");
  const ServiceProcess service(dir, {"--listen-unix", unix_socket ? path : "off"});
  // Neither a connected client nor a transfer makes the service listen on a further socket.
  const auto client = service.connect();
  put_and_read(*client);
  const Listening found = listening(service.pid());
  CHECK(found.tcp == std::multiset<std::string>{as_kernel_writes(service.address(), "0100007F")});
  CHECK(found.unix_paths ==
        (unix_socket ? std::multiset<std::string>{path} : std::multiset<std::string>{}));
  CHECK(found.datagram == 0);
}

TEST_CASE("precisd that listens on all addresses has no other socket", "[integration]") {
  const TempDir dir;
  const ServiceProcess service(dir, {"--listen", "0.0.0.0:0"});
  const Listening found = listening(service.pid());
  CHECK(found.tcp == std::multiset<std::string>{as_kernel_writes(service.address(), "00000000")});
  CHECK(found.unix_paths == std::multiset<std::string>{dir.path("data/precisd.sock")});
  CHECK(found.datagram == 0);
}

TEST_CASE("the Unix socket is gone once precisd has stopped, and one that is left is replaced",
          "[integration]") {
  const TempDir dir;
  const std::string path = dir.path("data/precisd.sock");
  {
    ServiceProcess service(dir);
    REQUIRE(std::filesystem::is_socket(path));
    CHECK(service.stop() == 0);
  }
  CHECK_FALSE(std::filesystem::exists(path));
  {
    ServiceProcess service(dir);
    service.kill();
  }
  CHECK(std::filesystem::is_socket(path));
  const ServiceProcess service(dir);
  CHECK(Client::connect("unix:" + path, {}).value()->status().ok());
}

TEST_CASE("a second service does not take the first one's Unix socket", "[integration]") {
  const TempDir dir;
  const std::string path = dir.path("socket");
  const ServiceProcess first(dir, {"--listen-unix", path});
  const Ran second = run(precisd_command(dir.path("other"), {"--listen-unix", path}));
  CHECK(second.exit_code == 1);
  CHECK_THAT(second.err, Catch::Contains("listen_unix " + path +
                                         ": another process serves it; choose another path"));
  CHECK(Client::connect("unix:" + path, {}).value()->status().ok());
}

TEST_CASE("status says that a service listens beyond the loopback without TLS, or without tokens",
          "[integration]") {
  const TempDir dir;
  const std::string config = "[[tenant]]\nname = \"red\"\ntoken = \"secret\"\n";
  const OperatedService open(dir, config, {"--listen", "0.0.0.0:0"});
  const Ran status = open.ctl({"status", "--tenant", "red", "--token", "secret"});
  CHECK(status.exit_code == 0);
  CHECK(status.out.find("\nexposed         K, V and messages are not encrypted") !=
        std::string::npos);
  CHECK(status.out.find("token") == std::string::npos);  // it has one
  const Ran in_json = open.ctl({"status", "--json", "--tenant", "red", "--token", "secret"});
  CHECK(nlohmann::json::parse(in_json.out)["exposed"].get<std::string>().find("not encrypted") !=
        std::string::npos);
  const TempDir other;
  const OperatedService closed(other, "");
  CHECK(nlohmann::json::parse(closed.ctl({"status", "--json"}).out)["exposed"] == "");
}

}  // namespace

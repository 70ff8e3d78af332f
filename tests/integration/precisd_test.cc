// precisd as its operator sees it: its messages about the command line, and its log.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "tests/integration/random_kv.h"
#include "tests/integration/service_process.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

// A precisd that is ready, with its log in a file.
class Logged {
 public:
  Logged(const TempDir& dir, std::vector<std::string> flags, const std::string& level = "info")
      : log_(dir.path("log")) {
    flags.insert(flags.end(), {"--log-level", level});
    std::vector<std::string> command{"/bin/sh", "-c", "exec \"$@\" 2>\"$0\"", log_};
    for (std::string& word : precisd_command(dir.path("data"), flags)) {
      command.push_back(std::move(word));
    }
    process_.emplace(command);
    const std::string line = process_->read_line().value();
    address_ = line.substr(line.find('=') + 1);
  }
  const std::string& address() const { return address_; }
  // Ends precisd. Returns the whole log.
  std::string log() {
    process_->signal(SIGTERM);
    REQUIRE(process_->wait() == 0);
    return log_so_far();
  }
  std::string log_so_far() const {
    std::ostringstream text;
    text << std::ifstream(log_).rdbuf();
    return text.str();
  }

 private:
  const std::string log_;
  std::optional<Process> process_;
  std::string address_;
};

std::string write_config(const TempDir& dir, const std::string& text) {
  std::ofstream(dir.path("precisd.toml")) << text;
  return dir.path("precisd.toml");
}

TEST_CASE("the log says who comes and from where, and whom it refused", "[integration]") {
  const TempDir dir;
  Logged service(
      dir, {"--config", write_config(dir, "[[tenant]]\nname = \"red\"\ntoken = \"secret\"\n")},
      "debug");
  ConnectOptions options;
  options.tenant = "red";
  options.token = "guess";
  CHECK(Client::connect(service.address(), options).status().code() ==
        StatusCode::kPermissionDenied);
  options.token = "secret";
  CHECK(Client::connect(service.address(), options).status() == Status());
  options.client_name = "engine/7";
  CHECK(Client::connect(service.address(), options).status() == Status());
  CHECK(run({PRECISCTL_PATH, "--address", service.address(), "--tenant", "red", "--token", "secret",
             "status"})
            .exit_code == 0);

  const std::string log = service.log();
  const auto line = [&](const std::string& event) {
    const std::size_t begin = log.find(event);
    REQUIRE(begin != std::string::npos);
    return log.substr(begin, log.find('\n', begin) - begin);
  };
  for (const char* event : {"client refused", "client connected", "client left"}) {
    CHECK_THAT(line(event), Contains("from=127.0.0.1:"));
  }
  CHECK_THAT(log, Contains("client=precis-cpp/") && Contains("client=engine/7") &&
                      Contains("client=precisctl/"));
  CHECK_THAT(line("client left"), !Contains("End of file"));
  CHECK_THAT(log, !Contains("reaches the address"));
}

// Sends bytes to the service that no client sends, and disconnects.
void speak_nonsense(const std::string& address) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.find(':') + 1))));
  REQUIRE(::connect(socket, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  const std::string nonsense(64, 'x');
  CHECK(::send(socket, nonsense.data(), nonsense.size(), MSG_NOSIGNAL) == 64);
  char answer[256];
  while (::recv(socket, answer, sizeof answer, 0) > 0) {  // until it has been refused
  }
  ::close(socket);
}

TEST_CASE("of many who are refused the log has some, and how many more", "[integration]") {
  const TempDir dir;
  Logged service(dir, {});
  std::size_t said = 0;
  const auto began = std::chrono::steady_clock::now();
  while (service.log_so_far().find("more clients refused") == std::string::npos) {
    REQUIRE(std::chrono::steady_clock::now() - began < std::chrono::minutes(1));
    for (int i = 0; i < 50; ++i) speak_nonsense(service.address());
    said += 50;
  }
  const std::string log = service.log();
  std::size_t told = 0;
  for (auto at = log.find("W client refused"); at != std::string::npos;
       at = log.find("W client refused", at + 1)) {
    ++told;
  }
  CHECK(told >= 10);
  CHECK(told < said);
}

TEST_CASE("what an operator changes is in the log, that he looked is not", "[integration]") {
  const TempDir dir;
  Logged service(dir, {});
  {
    const auto client = Client::connect(service.address(), {}).value();
    CHECK(client->status().ok());
    msg::SetBudget change;
    change.keep = Budget::ratio(0.2).value();
    CHECK(client->set_budget(change).ok());
    const Model model = client->register_model(tiny_model()).value();
    std::mt19937 random{20251124};
    const auto path = random_tokens(random, 100);
    const auto stored =
        put_all(*client, model, path, random_kv(random, model.spec, 0, 100), PutOptions());
    REQUIRE(stored.ok());
    CHECK(client->remove_segment(stored->id, false).ok());
    CHECK(client->open_session("chat", {}).ok());
    CHECK(client->remove_session("chat").ok());
    CHECK_FALSE(client->remove_session("chat").ok());
    // A terminal that shows the log must not show what a client forged.
    CHECK_FALSE(client->open_session("a\r\x1b[2Jforged", {}).ok());
  }
  const std::string log = service.log();
  CHECK_THAT(log, Contains("budget set from=127.0.0.1:") && Contains("tenant=default") &&
                      Contains("change=\"keep 0.2\""));
  CHECK_THAT(log, Contains("prefix removed") && Contains("change=\"1 segment, "));
  CHECK_THAT(log, !Contains("\x1b[2J") && !Contains("\r"));
  const std::size_t removed = log.find("session removed");
  REQUIRE(removed != std::string::npos);
  CHECK(log.find("session removed", removed + 1) == std::string::npos);
  const std::size_t refused = log.find("request refused client=precis-cpp/");
  REQUIRE(refused != std::string::npos);
  CHECK_THAT(log.substr(refused, log.find('\n', refused) - refused),
             Contains("from=127.0.0.1:") && Contains("tenant=default") &&
                 Contains("request=RemoveSession") && Contains("status=") && Contains("chat"));
  CHECK_THAT(log, !Contains("client connected") && !Contains("client left"));
}

TEST_CASE("a put that there is no room for is in the log, one that is wrong is for debugging",
          "[integration]") {
  const TempDir dir;
  Logged service(dir, {}, "debug");
  {
    const auto client = Client::connect(service.address(), {}).value();
    ModelSpec vast = tiny_model();
    vast.num_layers = vast.num_q_heads = vast.num_kv_heads = 1024;
    const Model model = client->register_model(vast).value();
    PutOptions options;
    options.recipe = "pyramidkv";
    const std::vector<TokenId> path(4095, 7);
    options.keep = Budget::ratio_ppm(1'000'000);
    CHECK(client->begin_put(model, path, options).status().code() == StatusCode::kOutOfSpace);
    options.recipe = "no_such_recipe";
    CHECK_FALSE(client->begin_put(model, path, options).ok());
  }
  const std::string log = service.log();
  for (const char* event : {"I request refused client=", "D request failed client="}) {
    const std::size_t begin = log.find(event);
    REQUIRE(begin != std::string::npos);
    CHECK_THAT(log.substr(begin, log.find('\n', begin) - begin),
               Contains("from=127.0.0.1:") && Contains("tenant=default") &&
                   Contains("request=BeginPut") && Contains("status="));
  }
}

TEST_CASE("that payload files are gone is said at the start", "[integration]") {
  const TempDir dir;
  {
    Logged service(dir, {});
    const auto client = Client::connect(service.address(), {}).value();
    const Model model = client->register_model(tiny_model()).value();
    std::mt19937 random{20261124};
    const auto path = random_tokens(random, 100);
    REQUIRE(
        put_all(*client, model, path, random_kv(random, model.spec, 0, 100), PutOptions()).ok());
  }
  CHECK_THAT(Logged(dir, {}).log(), !Contains("missing_bytes"));
  std::filesystem::remove_all(dir.path("data/payload"));
  CHECK_THAT(Logged(dir, {}).log(), Contains("W payload files are missing") && Contains("fsck"));
}

TEST_CASE("files deleted under a running service are said in the log, and commits fail",
          "[integration]") {
  namespace fs = std::filesystem;
  const TempDir dir;
  Logged service(dir, {});
  ConnectOptions once;
  once.retry = false;
  const auto client = Client::connect(service.address(), once).value();
  const Model model = client->register_model(tiny_model()).value();
  std::mt19937 random{20261125};
  const auto put = [&](Durability durability) {
    const auto path = random_tokens(random, 100);
    return put_all(*client, model, path, random_kv(random, model.spec, 0, 100), PutOptions(),
                   durability)
        .status();
  };
  REQUIRE(put(Durability::kFsync) == Status());
  CHECK(client->status().value().disk_fault.empty());
  const auto remove_all = [&](const std::string& folder, const std::string& suffix) {
    std::vector<fs::path> found;
    for (const auto& file : fs::directory_iterator(dir.path(folder))) {
      if (file.path().extension() == suffix) found.push_back(file.path());
    }
    REQUIRE(!found.empty());
    for (const fs::path& file : found) fs::remove(file);
  };
  SECTION("payload files") { remove_all("data/payload", ".extents"); }
  SECTION("RocksDB's log") { remove_all("data", ".log"); }
  SECTION("the folder of payload files") { fs::remove_all(dir.path("data/payload")); }
  SECTION("the data directory") { fs::remove_all(dir.path("data")); }
  for (const Durability durability : {Durability::kFsync, Durability::kWal, Durability::kFsync}) {
    const Status refused = put(durability);
    CHECK(refused.code() == StatusCode::kUnavailable);
    CHECK_THAT(refused.message(), Contains("was deleted while the service ran"));
  }
  // The service itself checks every second.
  while (client->status().value().disk_fault.empty()) std::this_thread::yield();
  // Its log line follows.
  constexpr char kLine[] = "files of the store were deleted";
  while (service.log_so_far().find(kLine) == std::string::npos) std::this_thread::yield();
}

TEST_CASE("that strangers may come in is said at the start", "[integration]") {
  const TempDir dir;
  const auto log = [&](const std::vector<std::string>& flags) { return Logged(dir, flags).log(); };
  CHECK_THAT(log({"--listen", "0.0.0.0:0"}),
             Contains("any client that reaches the address may read, write and remove everything"));
  CHECK_THAT(log({}), !Contains("reaches the address"));
  const std::string config =
      write_config(dir, "[[tenant]]\nname = \"red\"\n[[tenant]]\nname = \"b\"\ntoken = \"x\"\n");
  CHECK_THAT(log({"--config", config}), !Contains("reaches the address"));
  CHECK_THAT(
      log({"--config", config, "--listen", "0.0.0.0:0"}),
      Contains("a tenant needs no token") && Contains("tenant=red") && !Contains("tenant=b"));
}

TEST_CASE("what precisd can't be started with is said in a line that names it", "[integration]") {
  const TempDir dir;
  const auto said = [&](std::vector<std::string> flags, int exit_code) {
    const Ran ran = run(precisd_command(dir.path("data"), flags));
    CHECK(ran.exit_code == exit_code);
    return ran.err;
  };
  CHECK_THAT(said({"extra"}, 2), Contains("precisd: 'extra' is not an option of precisd"));
  for (const char* threads : {"many", "4096", "1.5"}) {
    CHECK_THAT(said({"--threads", threads}, 2),
               Contains("precisd: --threads is '" + std::string(threads) +
                        "', must be a whole number in [0, 1024]"));
  }
  CHECK_THAT(said({"--listen", "127.0.0.1:port"}, 2),
             Contains("precisd: listen: address") && Contains("port 'port'"));
  const std::string config = write_config(dir, "\ntls_cert = \"cert.pem\"\n");
  CHECK_THAT(said({"--config", config}, 2),
             Contains("precisd: " + config + ":2: tls_cert and tls_key belong together"));
  write_config(dir, "listen = \"127.0.0.1:port\"\n");
  // This command lacks the --listen that said() adds, because --listen overrides the file.
  CHECK_THAT(run({PRECISD_PATH, "--data", dir.path("data"), "--config", config}).err,
             Contains("precisd: " + config + ":1: ") && Contains("port 'port'"));
  // The TLS files are read before the store is opened.
  const std::string no_cert =
      write_config(dir, "tls_cert = \"no_cert.pem\"\ntls_key = \"no_key.pem\"\n");
  CHECK_THAT(said({"--config", no_cert}, 2),
             Contains("precisd: " + no_cert + ":1: tls_cert: cannot read " +
                      dir.path("no_cert.pem") + ": No such file or directory"));
  CHECK_THAT(said({"--memory", "abc"}, 2), Contains("precisd: --memory is 'abc', must be a size"));

  std::ofstream(dir.path("file")) << "in the way";
  CHECK_THAT(run(precisd_command(dir.path("file/data"), {})).err,
             Contains(dir.path("file") + " is not a directory"));
  std::filesystem::create_directory(dir.path("broken"));
  std::ofstream(dir.path("broken/CURRENT")) << "MANIFEST-000005\n";
  CHECK_THAT(run(precisd_command(dir.path("broken"), {})).err,
             Contains(dir.path("broken") + " is damaged: restore a copy of it"));

  CHECK_THAT(said({"--listen-unix", dir.path("file")}, 1),
             Contains("listen_unix '" + dir.path("file") + "' exists and is not a socket"));

  const ServiceProcess holder(dir);
  CHECK_THAT(said({}, 1), Contains("is in use") && !Contains("LOCK"));
  const Ran taken = run(precisd_command(dir.path("other"), {"--listen", holder.address()}));
  CHECK(taken.exit_code == 1);
  CHECK_THAT(taken.err, Contains("precisd: listen: " + holder.address() + " (choose another"));
}

}  // namespace

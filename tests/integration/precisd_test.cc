// precisd as who starts it meets it: what it says of its command line, and in its log.
#include <signal.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <optional>
#include <sstream>

#include "tests/integration/service_process.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

// A precisd that is ready, with its log in a file.
class Logged {
 public:
  Logged(const TempDir& dir, std::vector<std::string> flags) : log_(dir.path("log")) {
    flags.insert(flags.end(), {"--log-level", "info"});
    std::vector<std::string> command{"/bin/sh", "-c", "exec \"$@\" 2>\"$0\"", log_};
    for (std::string& word : precisd_command(dir.path("data"), flags)) {
      command.push_back(std::move(word));
    }
    process_.emplace(command);
    const std::string line = process_->read_line().value();
    address_ = line.substr(line.find('=') + 1);
  }
  const std::string& address() const { return address_; }
  // Once it has ended.
  std::string log() {
    process_->signal(SIGTERM);
    REQUIRE(process_->wait() == 0);
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

TEST_CASE("the log says from where clients come, and whom it refused", "[integration]") {
  const TempDir dir;
  Logged service(
      dir, {"--config", write_config(dir, "[[tenant]]\nname = \"red\"\ntoken = \"secret\"\n")});
  ConnectOptions options;
  options.tenant = "red";
  options.token = "guess";
  CHECK(Client::connect(service.address(), options).status().code() ==
        StatusCode::kPermissionDenied);
  options.token = "secret";
  CHECK(Client::connect(service.address(), options).status() == Status());

  const std::string log = service.log();
  const auto line = [&](const std::string& event) {
    const std::size_t begin = log.find(event);
    REQUIRE(begin != std::string::npos);
    return log.substr(begin, log.find('\n', begin) - begin);
  };
  for (const char* event : {"client refused", "client connected", "client left"}) {
    CHECK_THAT(line(event), Contains("from=127.0.0.1:"));
  }
  CHECK_THAT(log, !Contains("whoever"));
}

TEST_CASE("that strangers may come in is said at the start", "[integration]") {
  const TempDir dir;
  const auto log = [&](const std::vector<std::string>& flags) { return Logged(dir, flags).log(); };
  CHECK_THAT(log({"--listen", "0.0.0.0:0"}),
             Contains("whoever reaches the address may read, write and remove everything"));
  CHECK_THAT(log({}), !Contains("whoever"));
  const std::string config =
      write_config(dir, "[[tenant]]\nname = \"red\"\n[[tenant]]\nname = \"b\"\ntoken = \"x\"\n");
  CHECK_THAT(log({"--config", config}), !Contains("whoever"));
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
  CHECK_THAT(said({"extra"}, 2), Contains("precisd: 'extra' is no option of precisd"));
  CHECK_THAT(said({"--threads", "many"}, 2), Contains("precisd: ") && Contains("--threads"));
  CHECK_THAT(said({"--listen", "127.0.0.1:port"}, 1),
             Contains("listen: ") && Contains("port 'port'"));
  CHECK_THAT(said({"--transports", "bogus"}, 1), Contains("transports 'bogus'"));

  const ServiceProcess holder(dir);
  CHECK_THAT(said({}, 1), Contains("is in use") && !Contains("LOCK"));
}

}  // namespace

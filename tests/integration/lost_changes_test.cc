// A log that is damaged while the service is stopped: the loss is reported everywhere, payload is
// kept, and an operator can accept the loss.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "cachesvc/base/counted.h"
#include "tests/integration/options.h"
#include "tests/integration/random_kv.h"
#include "tests/integration/service_process.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

fs::path newest_log(const TempDir& dir) {
  fs::path found;
  for (const auto& file : fs::directory_iterator(dir.path("data"))) {
    if (file.path().extension() == ".log" && file.path() > found) found = file.path();
  }
  REQUIRE_FALSE(found.empty());
  return found;
}

std::map<std::string, std::uint64_t> payload(const TempDir& dir) {
  std::map<std::string, std::uint64_t> sizes;
  for (const auto& file : fs::directory_iterator(dir.path("data/payload"))) {
    sizes[file.path().filename().string()] = file.file_size();
  }
  return sizes;
}

// A precisd with its log in a file.
struct Service {
  explicit Service(const TempDir& dir) : log_path(dir.path("log")) {
    // The service tidies at once, so that payload would be gone if it were not kept.
    std::ofstream(dir.path("precisd.toml")) << "tidy_after_ms = 0\n";
    std::vector<std::string> command{"/bin/sh", "-c", "exec \"$@\" 2>\"$0\"", log_path};
    for (std::string& word : precisd_command(
             dir.path("data"), {"--config", dir.path("precisd.toml"), "--log-level", "warn"})) {
      command.push_back(std::move(word));
    }
    process.emplace(command);
    const std::string line = process->read_line().value();
    address = line.substr(line.find('=') + 1);
  }
  std::string log() const {
    std::ostringstream text;
    text << std::ifstream(log_path).rdbuf();
    return text.str();
  }
  void kill() {
    process->signal(SIGKILL);
    REQUIRE(process->wait() == -SIGKILL);
  }
  const std::string log_path;
  std::string address;
  std::optional<Process> process;
};

// The lines of an operator who gave a wrong number, the right one, and the right one again.
void check_audit(const std::string& path, std::uint64_t lost) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  REQUIRE(lines.size() == 3);
  for (const auto& line : lines) {
    CHECK(line["what"] == "AcceptLoss");
    CHECK(line["from"] == "the command line, uid " + std::to_string(::getuid()));
    CHECK(line["tenant"].is_null());
  }
  const std::string before = counted(lost, "acknowledged change") + " missing";
  const std::string after = "0 acknowledged changes missing";
  CHECK(lines[0]["outcome"] == "invalid_argument");
  CHECK(lines[0]["old"] == before);
  CHECK(lines[0]["new"].is_null());
  CHECK(lines[1]["outcome"] == "ok");
  CHECK(lines[1]["old"] == before);
  CHECK(lines[1]["new"] == after);
  CHECK(lines[2]["outcome"] == "invalid_argument");
  CHECK(lines[2]["old"] == after);
}

TEST_CASE("acknowledged changes that the log has lost are said in the log, by status and by fsck",
          "[integration]") {
  const TempDir dir;
  std::mt19937 random(28);
  constexpr int kSegments = 12;
  {
    Service service(dir);
    const auto client = Client::connect(service.address, {}).value();
    const Model model = client->register_model(tiny_model()).value();
    for (int i = 0; i < kSegments; ++i) {
      const auto path = random_tokens(random, 100);
      REQUIRE(put_all(*client, model, path, random_kv(random, model.spec, 0, 100), PutOptions(),
                      Durability::kFsync)
                  .ok());
    }
    service.kill();
  }
  const fs::path log = newest_log(dir);
  if (GENERATE(true, false)) {
    std::fstream file(log, std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(fs::file_size(log) / 3);
    file.seekg(at);
    const char byte = static_cast<char>(file.get() ^ 4);
    file.seekp(at);
    file.put(byte);
  } else {
    fs::remove(log);
  }
  const auto before = payload(dir);

  std::uint64_t lost = 0;
  for (int start = 0; start < 2; ++start) {
    Service service(dir);
    CHECK_THAT(service.log(), Contains("acknowledged changes are missing") &&
                                  Contains("are kept in " + dir.path("data/before_recovery")));
    CHECK(fs::exists(dir.path("data/before_recovery/1/CURRENT")));
    const auto client = Client::connect(service.address, {}).value();
    CHECK(stat(*client, "precis_doubtful_recovery") == 1);
    lost = static_cast<std::uint64_t>(stat(*client, "precis_lost_changes"));
    CHECK(lost > 0);
    CHECK(client->segments().value().size() < kSegments);
    const std::string said = std::to_string(lost) + " change";
    const Ran status = run({PRECISCTL_PATH, "--address", service.address, "status"});
    CHECK(status.exit_code == 0);
    CHECK_THAT(status.out, Contains("WARNING: " + said) && Contains("DIR/before_recovery"));
    const auto answered = client->status().value();
    CHECK(answered.doubtful_recovery);
    CHECK(answered.lost_changes == lost);
    CHECK(answered.kept_bytes > 0);
    CHECK(answered.kept_log_bytes > 0);
    const Ran fsck = run({PRECISCTL_PATH, "--address", service.address, "fsck"});
    CHECK(fsck.exit_code != 0);
    CHECK_THAT(fsck.out, Contains(said) && Contains("--accept-loss " + std::to_string(lost)) &&
                             Contains("DIR/before_recovery"));
    // It still serves and stores.
    const Model model = client->register_model(tiny_model()).value();
    const auto path = random_tokens(random, 100);
    REQUIRE(put_all(*client, model, path, random_kv(random, model.spec, 0, 100), PutOptions(),
                    Durability::kFsync)
                .ok());
    for (const auto& [name, size] : before) CHECK(payload(dir)[name] == size);
    const Ran in_use = run({PRECISD_PATH, "--data", dir.path("data"), "--accept-loss", "1"});
    CHECK_THAT(in_use.err, Contains("is in use"));
    service.kill();
  }

  const auto accept = [&](std::uint64_t changes) {
    return run({PRECISD_PATH, "--data", dir.path("data"), "--config", dir.path("audited.toml"),
                "--accept-loss", std::to_string(changes)});
  };
  std::ofstream(dir.path("audited.toml")) << "audit_log = \"" + dir.path("audit") + "\"\n";
  const Ran other = accept(lost + 1);
  CHECK(other.exit_code != 0);
  CHECK_THAT(other.err, Contains("--accept-loss " + std::to_string(lost)));
  const Ran accepted = accept(lost);
  CHECK(accepted.exit_code == 0);
  CHECK_THAT(accepted.out, Contains("accepted the loss of " + std::to_string(lost)));
  CHECK_FALSE(fs::exists(dir.path("data/before_recovery")));
  CHECK_THAT(accept(lost).err, Contains("nothing is missing"));
  check_audit(dir.path("audit"), lost);
  Service service(dir);
  CHECK_THAT(service.log(), !Contains("acknowledged changes are missing"));
  const auto client = Client::connect(service.address, {}).value();
  CHECK(stat(*client, "precis_doubtful_recovery") == 0);
  CHECK(run({PRECISCTL_PATH, "--address", service.address, "fsck"}).exit_code == 0);
}

}  // namespace

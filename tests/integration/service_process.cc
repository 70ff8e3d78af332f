#include "tests/integration/service_process.h"

#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

namespace precis::testing {
namespace {

// If precisd takes longer to stop, it hangs.
constexpr std::chrono::seconds kStop{120};

}  // namespace

TempDir::TempDir() {
  std::string name = (std::filesystem::temp_directory_path() / "precis-test-XXXXXX").string();
  PRECIS_CHECK(::mkdtemp(name.data()) != nullptr);
  path_ = name;
}

TempDir::~TempDir() {
  if (kept_) return;
  std::error_code ignored;  // A folder left behind is no test failure.
  std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> precisd_command(const std::string& data_dir,
                                         const std::vector<std::string>& flags) {
  std::vector<std::string> command{PRECISD_PATH, "--data", data_dir};
  command.insert(command.end(), flags.begin(), flags.end());
  const auto unless_given = [&](const char* flag, const char* value) {
    if (std::ranges::find(flags, flag) == flags.end()) {
      command.insert(command.end(), {flag, value});
    }
  };
  unless_given("--listen", "127.0.0.1:0");
  unless_given("--memory", "256MiB");
  unless_given("--log-level", "error");
  return command;
}

ServiceProcess::ServiceProcess(const TempDir& dir, const std::vector<std::string>& flags,
                               const std::vector<std::string>& before) {
  const Status status = run(dir.path("data"), flags, before);
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  PRECIS_CHECK(!"precisd did not become ready");
}

Result<std::unique_ptr<ServiceProcess>> ServiceProcess::start(
    const std::string& data_dir, const std::vector<std::string>& flags) {
  std::unique_ptr<ServiceProcess> service(new ServiceProcess());
  PRECIS_TRY(service->run(data_dir, flags, {}));
  return service;
}

Status ServiceProcess::run(const std::string& data_dir, const std::vector<std::string>& flags,
                           std::vector<std::string> before) {
  const std::vector<std::string> command = precisd_command(data_dir, flags);
  before.insert(before.end(), command.begin(), command.end());
  process_ = std::make_unique<Process>(before);
  const std::string ready = "precisd ready address=";
  const auto line = process_->read_line();
  if (!line || !line->starts_with(ready)) {
    return Status::unavailable("precisd did not become ready: it said '" +
                               line.value_or("nothing") + "'");
  }
  address_ = line->substr(ready.size());
  return {};
}

std::shared_ptr<Client> ServiceProcess::connect(const ConnectOptions& options) const {
  return Client::connect(address_, options).value();
}

int ServiceProcess::kill() {
  process_->signal(SIGKILL);
  return process_->wait();
}

int ServiceProcess::stop() {
  process_->signal(SIGTERM);
  const auto until = std::chrono::steady_clock::now() + kStop;
  for (;;) {
    if (const auto code = process_->ended()) return *code;
    if (std::chrono::steady_clock::now() > until) {
      std::fprintf(stderr, "precisd at %s does not stop, so it is killed\n", address_.c_str());
      return kill();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

std::string ServiceProcess::last_words() {
  const auto ended = process_->ended();
  if (!ended) return {};
  std::string words = "precisd ended by itself with " + std::to_string(*ended);
  while (const auto line = process_->read_line()) words += "\n  " + *line;
  return words;
}

double stat(Client& client, const std::string& name) {
  const msg::Stats stats = client.stats().value();
  for (const msg::Stat& row : stats.rows) {
    if (row.name == name) return row.value;
  }
  std::fprintf(stderr, "no stat is called %s\n", name.c_str());
  PRECIS_CHECK(!"a stat is missing");
}

}  // namespace precis::testing

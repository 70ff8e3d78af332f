#include "tests/bench/service/stage.h"

#include <signal.h>
#include <time.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <utility>

#include "tests/bench/all_at_once.h"
#include "tests/bench/service/on_core.h"

namespace precis::bench {
namespace {

std::mutex beginning;    // held while a folder or a process is created
pid_t started_last = 0;  // guarded by `beginning`

}  // namespace

Folder::Folder(std::string path) : path_(std::move(path)) {
  const std::lock_guard lock(beginning);
  std::filesystem::create_directories(path_);
}
Folder::~Folder() {
  std::error_code ignored;  // The parent folder is removed, too.
  std::filesystem::remove_all(path_, ignored);
}

double seconds_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

Status need_memory(std::uint64_t bytes) {
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word && word != "MemAvailable:") {
  }
  std::uint64_t kibibytes = 0;
  if (!(file >> kibibytes) || kibibytes * 1024 >= bytes) return {};
  return Status::unsupported("it takes " + std::to_string(bytes >> 20) + " MiB of memory, and " +
                             std::to_string(kibibytes >> 10) + " MiB are to be had");
}

Result<Ready> start_precisd(const StageOptions& options) {
  std::vector<std::string> command = {PRECISD_PATH,
                                      "--data",
                                      options.folder,
                                      "--listen",
                                      "127.0.0.1:0",
                                      "--memory",
                                      std::to_string(options.memory_bytes),
                                      "--log-level",
                                      "error"};
  if (options.transport == "tcp") command.insert(command.end(), {"--listen-unix", "off"});
  if (options.admin_port != 0) {
    command.insert(command.end(), {"--admin", "127.0.0.1:" + std::to_string(options.admin_port)});
  }
  std::optional<OnCore> placed;
  if (options.core) placed.emplace(*options.core);
  Ready ready;
  {
    const std::lock_guard lock(beginning);
    ready.process = std::make_unique<testing::Process>(command);
    started_last = ready.process->pid();
  }
  const std::string begin = "precisd ready address=";
  const auto line = ready.process->read_line();
  if (!line || !line->starts_with(begin)) {
    return Status::unavailable("precisd said '" + line.value_or("nothing") + "'");
  }
  ready.address = line->substr(begin.size());
  return ready;
}

void end_precisd() {
  beginning.lock();  // never unlocked
  if (started_last > 0) ::kill(started_last, SIGKILL);
}

Result<std::unique_ptr<Stage>> Stage::open(const StageOptions& options, const ModelSpec& spec) {
  PRECIS_TRY(need_memory(options.memory_bytes));
  PRECIS_ASSIGN(Ready ready, start_precisd(options));
  auto stage = std::make_unique<Stage>();
  stage->process_ = std::move(ready.process);
  for (std::size_t i = 0; i < options.clients; ++i) {
    PRECIS_ASSIGN(auto client, Client::connect(ready.address));
    stage->clients_.push_back(std::move(client));
  }
  PRECIS_ASSIGN(stage->model_, stage->client().register_model(spec));
  PRECIS_ASSIGN(const msg::ServerStatus status, stage->client().status());
  if (options.transport == "shm" && status.transport.find("shared") == std::string::npos) {
    return Status::unsupported("no memory can be shared with the service, so bytes go over '" +
                               status.transport + "'");
  }
  return stage;
}

double Stage::cpu_seconds() const {
  clockid_t clock;
  timespec time{};
  PRECIS_CHECK(::clock_getcpuclockid(process_->pid(), &clock) == 0);
  PRECIS_CHECK(::clock_gettime(clock, &time) == 0);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

Result<double> Stage::together(const std::function<Status(std::size_t i)>& body) {
  std::vector<Status> statuses(clients_.size());
  const double seconds =
      all_at_once(clients_.size(), [&](std::size_t i) { statuses[i] = body(i); });
  for (const Status& status : statuses) PRECIS_TRY(status);
  return seconds;
}

void Stage::kill() {
  process_->signal(SIGKILL);
  process_->wait();
  process_.reset();
}

Status Stage::stop() {
  process_->signal(SIGTERM);
  const int code = process_->wait();
  process_.reset();
  return code == 0 ? Status()
                   : Status::internal("precisd ended with status " + std::to_string(code));
}

}  // namespace precis::bench

// precis_bench: measures put, get, lookup and restart of a real precisd, each with this machine's
// ceiling in the same run. Prints one row a line to standard output; report.py shows the rows. If a
// figure has several rows, its measured row counts, or else its last reason for not measuring.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <regex>
#include <thread>

#include "tests/bench/row.h"
#include "tests/bench/service/plan.h"
#include "tests/bench/service/stage.h"

namespace precis::bench {
namespace {

// A part of the benchmark and the transports it is measured over: each requested one, the first
// requested one, or shm only.
struct Part {
  enum class Over { kEach, kFirst, kShm };
  const char* name;
  Over over;
  Jobs (*jobs)(const Plan& plan, const std::string& transport);
};
constexpr Part kParts[] = {
    {"put_get", Part::Over::kEach, put_get},
    {"put_compressed", Part::Over::kEach, put_compressed},
    {"ping_pong", Part::Over::kEach, ping_pong},
    {"first_layer", Part::Over::kEach, first_layer},
    {"server_cpu", Part::Over::kShm, server_cpu},
    {"cold", Part::Over::kFirst, cold},
    {"chain", Part::Over::kFirst, chain},
    {"coded", Part::Over::kEach, coded},
    {"commit", Part::Over::kFirst, commit},
    {"lookup", Part::Over::kEach, lookup},
    {"admin", Part::Over::kEach, admin},
    {"restart", Part::Over::kFirst, restart},
};

std::vector<std::string> transports_of(const Part& part, const std::vector<std::string>& wanted) {
  if (part.over == Part::Over::kFirst) return {wanted.front()};
  std::vector<std::string> chosen;
  for (const std::string& transport : wanted) {
    if (part.over == Part::Over::kEach || transport == "shm") chosen.push_back(transport);
  }
  return chosen;
}

Jobs jobs_of(const Plan& plan, const std::vector<std::string>& transports,
             const std::string& only) {
  const std::regex pattern(only);
  Jobs jobs;
  for (const Part& part : kParts) {
    if (!std::regex_search(part.name, pattern)) continue;
    for (const std::string& transport : transports_of(part, transports)) {
      std::ranges::move(part.jobs(plan, transport), std::back_inserter(jobs));
    }
  }
  return jobs;
}

void print_owed(const Job& job, const std::string& why_not) {
  for (Row row : job.owed) {
    row.why_not = why_not;
    print(row);
  }
}

Status measured(const Job& job) {
  try {
    return job.measure();
  } catch (const std::exception& error) {  // of a file function: a full disk, for example
    return Status::internal(error.what());
  }
}

// Measures all jobs. If a job fails, prints its rows with the reason and continues. Returns false
// if any job failed for a reason other than kUnsupported.
bool measure_all(const Jobs& jobs) {
  // Each row is printed as failed first and again when measured, so that no row is missing if this
  // program dies.
  for (const Job& job : jobs) print_owed(job, "the bench ended before it");
  bool whole = true;
  for (const Job& job : jobs) {
    const Status status = measured(job);
    if (status.ok()) continue;
    print_owed(job, status.to_string());
    whole = whole && status.code() == StatusCode::kUnsupported;
  }
  return whole;
}

void remove_folder(const std::string& path) {
  std::error_code ignored;  // The owner of the parent folder can remove the rest.
  std::filesystem::remove_all(path, ignored);
}

// Removes the folder, which may hold gigabytes, if this program is interrupted. (precisd gets the
// interrupt, too.) Call it before any other thread starts.
void remove_when_interrupted(const std::string& path) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals, path] {
    int number = 0;
    sigwait(&signals, &number);
    end_precisd();
    remove_folder(path);
    std::_Exit(128 + number);
  }).detach();
}

std::string part_names() {
  std::string names;
  for (const Part& part : kParts) names += std::string(names.empty() ? "" : ", ") + part.name;
  return names;
}

}  // namespace
}  // namespace precis::bench

int main(int argc, char** argv) {
  using namespace precis;
  CLI::App app("Prints one JSON object a line: a figure and its ceiling.");
  bench::Plan plan;
  std::vector<std::string> transports = {"shm", "tcp"};
  std::vector<std::size_t> mebibytes = {1, 4, 16, 64, 256, 512};
  plan.clients = {1, 8};
  plan.rounds = 3;
  std::string only = ".*", dir = ".";
  bool quick = false;
  app.add_option("--transport", transports)->check(CLI::IsMember({"shm", "tcp"}));
  auto* const sizes = app.add_option("--mib", mebibytes)->check(CLI::Range(1, 1024));
  app.add_option("--clients", plan.clients)->check(CLI::Range(1, 64));
  app.add_option("--runs", plan.rounds)->check(CLI::Range(1, 1000));
  app.add_option("--dir", dir)->check(CLI::ExistingDirectory);
  app.add_option("--only", only, bench::part_names());
  auto* const records =
      app.add_option("--records", plan.head_records)->check(CLI::Range(4096, 1 << 24));
  app.add_flag("--quick", quick);
  CLI11_PARSE(app, argc, argv);

  if (quick && sizes->empty()) mebibytes = {1, 16, 64};
  for (const std::size_t size : mebibytes) plan.sizes.push_back(size << 20);
  plan.sustained_bytes = quick ? std::size_t{512} << 20 : std::size_t{4} << 30;
  if (records->empty()) plan.head_records = quick ? 50'000 : 1'000'000;
  plan.samples = quick ? 300 : 3000;
  plan.dir = dir + "/precis-bench-" + std::to_string(::getpid());
  plan.began = [](const std::string& what) { std::fprintf(stderr, "%s\n", what.c_str()); };

  bench::remove_when_interrupted(plan.dir);
  bool whole = false;
  try {
    std::filesystem::create_directory(plan.dir);
    whole = bench::measure_all(bench::jobs_of(plan, transports, only));
  } catch (const std::exception& error) {  // from --only's regex or the new folder
    std::fprintf(stderr, "precis_bench: %s\n", error.what());
  }
  bench::remove_folder(plan.dir);
  return whole ? 0 : 1;
}

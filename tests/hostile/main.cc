// precis_hostile (./dev hostile): runs clients that break every rule of the wire against their own
// precisd. Exits 0 if the service withstood all attacks.
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/hostile/attacks.h"
#include "tests/hostile/mutated.h"
#include "tests/hostile/neighbour.h"

namespace {

using namespace precis::hostile;

struct Options {
  std::uint64_t sessions = 10'000;
  double seconds = 0;  // of the neighbour's measurement
  std::uint32_t seed = std::random_device()();
  std::string json, only;
};

void tell(const Finding& finding) {
  std::string numbers;
  for (const auto& [name, number] : finding.numbers)
    numbers += fmt::format(" {}={:g}", name, number);
  fmt::print("{:4}  {:6}  {}:{}\n",
             finding.issue_row == 0 ? "" : fmt::format("({})", finding.issue_row),
             finding.wrong.empty() ? "held" : "BROKEN", finding.name, numbers);
  for (const std::string& wrong : finding.wrong) fmt::print("              {}\n", wrong);
  std::fflush(stdout);
}

void write_json(const std::vector<Finding>& findings, const Options& options) {
  auto rows = nlohmann::json::array();
  for (const Finding& finding : findings) {
    nlohmann::json row{{"issue_row", finding.issue_row},
                       {"name", finding.name},
                       {"held", finding.wrong.empty()},
                       {"wrong", finding.wrong},
                       {"seed", options.seed}};
    for (const auto& [name, number] : finding.numbers) row[name] = number;
    rows.push_back(std::move(row));
  }
  std::ofstream(options.json) << rows.dump(2) << "\n";
}

int run(const Options& options) {
  fmt::print("seed {}\n", options.seed);
  Victim victim;
  std::vector<Finding> findings;
  const auto add = [&](Finding finding) {
    tell(finding);
    findings.push_back(std::move(finding));
    return victim.is_alive();
  };
  bool alive = true;
  for (const Attack& attack : attacks()) {
    if (!alive || attack.name.find(options.only) == std::string::npos) continue;
    Finding finding{attack.issue_row, attack.name, {}, {}};
    attack.run(victim, finding);
    victim.check(finding);
    alive = add(std::move(finding));
  }
  if (alive && options.sessions > 0) {
    alive = add(attack_by_mutation(victim, {.sessions = options.sessions, .seed = options.seed}));
  }
  if (alive && options.seconds > 0) alive = add(measure_neighbour(victim, options.seconds));
  if (!options.json.empty()) write_json(findings, options);
  const bool held = std::ranges::all_of(findings, [](const Finding& f) { return f.wrong.empty(); });
  fmt::print("{}\n", held ? "the service held" : "the service did not hold");
  return held ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Hostile clients against a precisd of their own", "precis_hostile");
  app.add_option("--sessions", options.sessions, "The number of mutated sessions");
  app.add_option("--seconds", options.seconds,
                 "Also measure two tenants, one of them hostile, for this long");
  app.add_option("--seed", options.seed, "The seed of every choice");
  app.add_option("--json", options.json,
                 "Write a list of the attacks and their counts to this file");
  app.add_option("--only", options.only, "Only attacks with this in their name");
  CLI11_PARSE(app, argc, argv);
  rlimit descriptors{};
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  descriptors.rlim_cur = descriptors.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &descriptors);
  return run(options);
}

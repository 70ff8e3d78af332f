// ./dev simulate: runs the service, its clients and a faulty store in simulated time, seed by seed.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "client/cli/progress.h"
#include "tests/simulate/world.h"

namespace {

using precis::simulate::Outcome;

// A folder that is removed at the end.
struct Folder {
  std::string path = (std::filesystem::temp_directory_path() / "precis-simulate-XXXXXX").string();
  const bool made = ::mkdtemp(path.data()) != nullptr;
  ~Folder() {
    std::error_code ignored;
    if (made) std::filesystem::remove_all(path, ignored);
  }
};

void add(Outcome& sum, const Outcome& one) {
  sum.status = one.status;
  sum.steps += one.steps;
  sum.operations += one.operations;
  sum.failed += one.failed;
  sum.crashes += one.crashes;
  sum.consolidations += one.consolidations;
  sum.simulated_seconds += one.simulated_seconds;
}

}  // namespace

int main(int argc, char** argv) {
  precis::simulate::Plot plot;
  plot.seed = 1;
  std::uint64_t seeds = 1;
  std::string json;
  CLI::App app("Runs service, clients and a faulty store in simulated time.", "simulate");
  app.add_option("--seed", plot.seed, "The first seed")->capture_default_str();
  app.add_option("--seeds", seeds, "The number of seeds")->capture_default_str();
  app.add_option("--clients", plot.clients, "The number of clients")->capture_default_str();
  app.add_option("--operations", plot.operations, "The operations of each client")
      ->capture_default_str();
  app.add_flag("--trace", plot.trace, "Print every operation");
  app.add_option("--json", json, "Also write the numbers to this file");
  CLI11_PARSE(app, argc, argv);

  const Folder folder;
  if (!folder.made) {
    std::perror(folder.path.c_str());
    return 1;
  }
  plot.folder = folder.path;
  const auto began = std::chrono::steady_clock::now();
  Outcome sum;
  std::uint64_t done = 0;
  {
    std::optional<precis::cli::Progress> bar;
    if (!plot.trace) bar.emplace("simulate", seeds);
    for (; done < seeds && sum.status.ok(); ++done, ++plot.seed) {
      // About a third of what clients store fits into this limit.
      plot.max_disk_bytes = plot.seed % 3 == 0 ? 200'000 : 0;
      add(sum, play(plot));
      if (bar) bar->show(done, fmt::format("{} steps", sum.steps));
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  if (!json.empty()) {
    std::ofstream(json) << nlohmann::ordered_json{{"seeds", done},
                                                  {"last_seed", plot.seed - 1},
                                                  {"steps", sum.steps},
                                                  {"operations", sum.operations},
                                                  {"failed_operations", sum.failed},
                                                  {"crashes", sum.crashes},
                                                  {"consolidations", sum.consolidations},
                                                  {"simulated_seconds", sum.simulated_seconds},
                                                  {"seconds", took.count()},
                                                  {"failure", sum.status.message()}}
                               .dump(2)
                        << "\n";
  }
  fmt::print(
      "{} seeds: {} operations ({} failed, as they may) in {} steps and {:.0f} simulated "
      "seconds, {} crashes; {:.1f} s\n",
      done, sum.operations, sum.failed, sum.steps, sum.simulated_seconds, sum.crashes,
      took.count());
  if (sum.status.ok()) return 0;
  fmt::print(stderr, "seed {}: {}\nEvery operation of it: ./dev simulate --seed {} --trace\n",
             plot.seed - 1, sum.status.message(), plot.seed - 1);
  return 1;
}

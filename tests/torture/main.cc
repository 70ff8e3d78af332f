// precis_torture (./dev torture): precisd under load, killed with SIGKILL again and again. Exits 0
// if nothing that was acknowledged was ever lost or changed, and nothing else was left.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "client/cli/progress.h"
#include "client/cli/table.h"
#include "tests/torture/run.h"

namespace {

using namespace precis;

struct Summary {
  std::vector<std::pair<std::string, std::uint64_t>> numbers;
  double seconds = 0;
};

Summary summary_of(const torture::Run& run, bool failed, double seconds) {
  const torture::Counts& counts = run.counts();
  return {{{"kills", run.kills()},
           {"failures", failed ? 1u : 0u},
           {"puts", counts.puts},
           {"trims", counts.trims},
           {"removals", counts.removes},
           {"reads", counts.reads},
           {"unanswered", counts.unanswered},
           {"segments_checked", run.segments_checked()},
           {"bytes_checked", run.bytes_checked()}},
          seconds};
}

void print_table(const Summary& summary) {
  cli::Table table({{"WHAT"}, {"COUNT", true}});
  for (const auto& [name, value] : summary.numbers) {
    const bool bytes = name.starts_with("bytes");
    table.add({name, bytes ? cli::bytes_text(value) : cli::count_text(value)});
  }
  table.add({"time", cli::duration_text(summary.seconds)});
  fmt::print("{}", table.text());
}

bool write_json(const Summary& summary, std::uint32_t seed, const std::string& failure,
                const std::string& file) {
  nlohmann::ordered_json json;
  for (const auto& [name, value] : summary.numbers) json[name] = value;
  json["seconds"] = summary.seconds;
  json["seed"] = seed;
  json["failure"] = failure;
  std::ofstream out(file);
  out << json.dump(2) << "\n";
  return out.good();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Writers, readers, removers and trimmers on a real precisd, killed at random instants; "
      "after\n"
      "every restart what was acknowledged must be there bit for bit, and nothing else.");
  torture::RunOptions options;
  options.seed = std::random_device()();
  std::string dir, json;
  app.add_option("--kills", options.kills, "How often it is killed")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--seed", options.seed, "Of every choice (default: another each time)");
  app.add_option("--dir", dir, "An empty folder for the data (default: one in /tmp)");
  app.add_option("--json", json, "Writes the numbers to this file");
  CLI11_PARSE(app, argc, argv);

  std::optional<testing::TempDir> temporary;
  options.data_dir = dir.empty() ? temporary.emplace().path("data") : dir + "/data";
  if (std::filesystem::exists(options.data_dir)) {
    fmt::print(stderr, "precis_torture: {} is there already; give an empty folder\n",
               options.data_dir);
    return 2;
  }
  fmt::print("seed {}, data in {}\n", options.seed, options.data_dir);
  std::fflush(stdout);

  const auto began = std::chrono::steady_clock::now();
  std::optional<cli::Progress> bar(std::in_place, "torture", options.kills);
  options.progress = [&](std::uint32_t kills) {
    bar->show(kills, fmt::format("{} of {} kills", kills, options.kills));
  };
  torture::Run run(options);
  const Status status = run.all();
  bar.reset();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  const Summary summary = summary_of(run, !status.ok(), took.count());
  print_table(summary);
  bool written = true;
  if (!json.empty()) {
    written = write_json(summary, options.seed, status.ok() ? "" : status.to_string(), json);
  }
  if (!written) fmt::print(stderr, "precis_torture: {} cannot be written\n", json);
  if (status.ok()) return written ? 0 : 1;
  if (temporary) temporary->keep();
  fmt::print(stderr,
             "precis_torture: {}\n  again: ./dev torture --kills {} --seed {} (choices are the "
             "same, instants nearly)\n  the data is left in {}\n",
             status.to_string(), run.kills(), options.seed, options.data_dir);
  return 1;
}

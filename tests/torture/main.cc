// precis_torture (./dev torture): runs precisd under load and kills it with SIGKILL repeatedly or,
// with --clients, kills its clients. Exits 0 if nothing acknowledged was lost or changed, clients
// that were not killed saw no error, and nothing else was left. cluster_run.h describes --cluster.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "client/cli/progress.h"
#include "client/cli/table.h"
#include "tests/integration/ceph_cluster.h"
#include "tests/integration/etcd_members.h"
#include "tests/integration/s3_server.h"
#include "tests/torture/chaos.h"
#include "tests/torture/cluster_run.h"
#include "tests/torture/disturbed_node.h"
#include "tests/torture/run.h"

namespace {

using namespace precis;

constexpr std::uint64_t kBarSteps = 1000;
constexpr char kPause[] = "pause_p99_ms";  // in the table

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

Summary summary_of(const torture::Chaos& chaos, bool failed, double seconds) {
  const torture::Chaos::Rates rates = chaos.rates();
  const auto whole = [](double rate) { return static_cast<std::uint64_t>(rate + 0.5); };
  return {{{"rounds", chaos.rounds()},
           {"clients_killed", chaos.killed()},
           {"failures", failed ? 1u : 0u},
           {"operations", chaos.operations()},
           {"bytes_moved", chaos.bytes()},
           {"operations_while_one_stood", chaos.operations_beside_stopped()},
           {"per_second_before_kills", whole(rates.before)},
           {"per_second_in_the_1st_after", whole(rates.first_second)},
           {"per_second_in_the_2nd_after", whole(rates.second_second)},
           {"connected_again", chaos.connected_again()},
           {"bytes_of_the_service_at_most", chaos.peak_bytes()}},
          seconds};
}

Summary summary_of(const torture::ClusterCounts& counts, bool failed, double seconds) {
  const auto ms = static_cast<std::uint64_t>(1000 * counts.pause_p99_seconds + 0.5);
  Summary summary{counts.faults, seconds};
  const std::pair<std::string, std::uint64_t> others[] = {
      {"failures", failed ? 1u : 0u},
      {"acknowledged", counts.acknowledged},
      {"removed", counts.removed},
      {"turns_of_sessions", counts.turns},
      {"reads", counts.reads},
      {"misses", counts.misses},
      {"errors_expected", counts.errors},
      {"errors_undocumented", counts.errors_undocumented},
      {kPause, ms}};
  summary.numbers.insert(summary.numbers.end(), std::begin(others), std::end(others));
  return summary;
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
  for (const auto& [name, value] : summary.numbers) {
    if (name == kPause) {
      json["pause_p99_seconds"] = static_cast<double>(value) / 1000;
    } else {
      json[name] = value;
    }
  }
  json["seconds"] = summary.seconds;
  json["minutes"] = summary.seconds / 60;
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
      "every restart what was acknowledged must be there bit for bit, and nothing else. With\n"
      "--clients, client processes are killed instead: the others must not notice, and nothing\n"
      "of the dead may be left. With --cluster, nodes and etcd are killed and their links cut.");
  torture::RunOptions options;
  torture::ChaosOptions chaos_options;
  chaos_options.clients = 0;
  options.seed = std::random_device()();
  torture::ClusterOptions cluster_options;
  bool cluster = false, ceph = false, s3 = false;
  std::string dir, json;
  app.add_option("--kills", options.kills,
                 "The number of kills. With --cluster: of nodes, and no other faults are made")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--clients", chaos_options.clients, "Client processes, a third of them killed")
      ->check(CLI::Range(2, 1000));
  app.add_option("--seconds", chaos_options.seconds,
                 "Of killing clients; 0: three rounds of few operations")
      ->capture_default_str();
  app.add_flag("--tcp", chaos_options.tcp,
               "With --clients: bytes go over TCP alone (default: memory is shared)");
  app.add_option("--log-level", chaos_options.log_level,
                 "With --clients: as precisd's; its log goes to stderr")
      ->capture_default_str();
  app.add_flag("--cluster", cluster, "Three nodes of a cluster and three members of etcd");
  CLI::Option* const ceph_flag =
      app.add_flag("--ceph", ceph, "With --cluster: the nodes share a Ceph");
  app.add_flag("--s3", s3, "With --cluster: the nodes share a bucket of a SeaweedFS")
      ->excludes(ceph_flag);
  app.add_option("--minutes", cluster_options.minutes, "With --cluster: how long")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 10'000.0));
  app.add_option("--seed", options.seed, "The seed of every choice (default: a new one each time)");
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
  if (cluster && !testing::EtcdMembers::installed()) {
    fmt::print("precis_torture: skipped, because the Debian package etcd-server is missing\n");
    return 77;
  }
  if (cluster && !torture::DisturbedNode::available()) {
    fmt::print("precis_torture: skipped, because the Debian package libfaketime is missing\n");
    return 77;
  }
  if (ceph && !testing::CephCluster::available()) {
    fmt::print(
        "precis_torture: skipped, because ceph-mon or ceph-osd is missing, or not for this user\n");
    return 77;
  }
  if (s3 && !testing::S3Server::available()) {
    fmt::print("precis_torture: skipped, because ./dev has not installed SeaweedFS\n");
    return 77;
  }
  fmt::print("seed {}, data in {}\n", options.seed, options.data_dir);
  std::fflush(stdout);

  const auto began = std::chrono::steady_clock::now();
  const auto took = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  Summary summary;
  Status status;
  std::string again;
  if (cluster) {
    std::optional<cli::Progress> bar(std::in_place, "torture", kBarSteps);
    cluster_options.seed = options.seed;
    if (app.count("--kills") > 0) cluster_options.kills = options.kills;
    if (ceph) cluster_options.storage = torture::Storage::kCeph;
    if (s3) cluster_options.storage = torture::Storage::kS3;
    cluster_options.progress = [&](double done, const std::string& note) {
      bar->show(static_cast<std::uint64_t>(done * kBarSteps), note);
    };
    // A log shows what a run that stood still was doing.
    cluster_options.tell = [&](const std::string& what) {
      if (::isatty(STDOUT_FILENO) == 1) return;
      fmt::print("{:6.1f} s  {}\n", took(), what);
      std::fflush(stdout);
    };
    torture::ClusterCounts counts;
    status = torture::torture_cluster(cluster_options, counts);
    bar.reset();
    summary = summary_of(counts, !status.ok(), took());
    const char* const storage = ceph ? " --ceph" : s3 ? " --s3" : "";
    const std::string length = cluster_options.kills > 0
                                   ? fmt::format("--kills {}", cluster_options.kills)
                                   : fmt::format("--minutes {}", cluster_options.minutes);
    again = fmt::format("--cluster{} {}", storage, length);
  } else if (chaos_options.clients > 0) {
    std::optional<cli::Progress> bar(std::in_place, "torture", kBarSteps);
    chaos_options.seed = options.seed;
    chaos_options.data_dir = options.data_dir;
    chaos_options.progress = [&](double done, const std::string& note) {
      bar->show(static_cast<std::uint64_t>(done * kBarSteps), note);
    };
    torture::Chaos chaos(chaos_options);
    status = chaos.all();
    bar.reset();
    summary = summary_of(chaos, !status.ok(), took());
    again = fmt::format("--clients {} --seconds {}", chaos_options.clients, chaos_options.seconds);
  } else {
    std::optional<cli::Progress> bar(std::in_place, "torture", options.kills);
    options.progress = [&](std::uint32_t kills) {
      bar->show(kills, fmt::format("{} of {} kills", kills, options.kills));
    };
    torture::Run run(options);
    status = run.all();
    bar.reset();
    summary = summary_of(run, !status.ok(), took());
    again = fmt::format("--kills {}", run.kills());
  }
  print_table(summary);
  bool written = true;
  if (!json.empty()) {
    written = write_json(summary, options.seed, status.ok() ? "" : status.to_string(), json);
  }
  if (!written) fmt::print(stderr, "precis_torture: {} cannot be written\n", json);
  if (status.ok()) return written ? 0 : 1;
  if (temporary) temporary->keep();
  fmt::print(stderr,
             "precis_torture: {}\n  again: ./dev torture {} --seed {} (choices are the "
             "same, instants nearly)\n  the data is left in {}\n",
             status.to_string(), again, options.seed, options.data_dir);
  return 1;
}

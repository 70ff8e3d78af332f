// ./dev bench cluster: what nodes of a cluster serve together, and what a node serves of what
// another one has stored.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <functional>
#include <optional>

#include "client/cli/table.h"
#include "tests/bench/cluster/parts.h"
#include "tests/integration/ceph_cluster.h"
#include "tests/integration/etcd_members.h"

namespace precis::bench {
namespace {

constexpr char kNoCeph[] = "it needs ceph-mon, ceph-osd and librados2, and runs as root";

struct Named {
  std::string name, title;
  std::function<Result<Part>()> measure;
};

void show(const std::string& title, const Part& part) {
  cli::Table table({{title}, {"VALUE", true}});
  for (const Part::Line& line : part.lines) table.add({line.figure, line.value});
  fmt::print("{}\n", table.text());
  std::fflush(stdout);
}

Status measure(const ClusterOptions& options, const std::string& only, const std::string& file) {
  std::optional<testing::CephCluster> ceph;
  std::string settings;  // of nodes that use it
  std::vector<Named> parts = {
      {"spread", "MANY PROMPTS", [&] { return measure_spread(options); }},
      {"hot_prefix", "ONE HOT PREFIX", [&] { return measure_hot_prefix(options, settings); }},
      {"second_get", "FIRST AND LATER GETS", [&] { return measure_second_get(options, settings); }},
  };
  nlohmann::ordered_json json;
  std::string warnings;
  for (const Named& part : parts) {
    if (!only.empty() && only != part.name) continue;
    if (part.name != "spread" && !testing::CephCluster::available()) {
      fmt::print("{}: skipped: {}\n", part.name, kNoCeph);
      json[part.name] = {{"skipped", kNoCeph}};
      continue;
    }
    if (part.name != "spread" && !ceph) {
      ceph.emplace();
      settings = "cluster_ceph_conf = '" + ceph->conf() + "'\ncluster_ceph_user = '" +
                 ceph->user() + "'\n";
    }
    PRECIS_ASSIGN(const Part measured, part.measure());
    show(part.title, measured);
    json[part.name] = measured.json;
    warnings += measured.warning;
  }
  fmt::print("{}", warnings);
  if (file.empty()) return {};
  std::ofstream out(file);
  out << json.dump(2) << "\n";
  if (!out.flush()) return Status::invalid(file + " cannot be written");
  return {};
}

}  // namespace
}  // namespace precis::bench

int main(int argc, char** argv) {
  CLI::App app("Compares what nodes of a cluster serve, per CPU time, with what one does.");
  precis::bench::ClusterOptions options;
  std::string only, json;
  app.add_option("--prompts", options.prompts, "spread: prompts of 2 MiB of KV")
      ->capture_default_str();
  app.add_option("--runs", options.runs, "Runs of each; their median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--seconds", options.seconds, "The time of a run")->capture_default_str();
  app.add_option("--only", only, "Only this part")
      ->check(CLI::IsMember({"spread", "hot_prefix", "second_get"}));
  app.add_option("--json", json, "Also writes the figures to this file");
  CLI11_PARSE(app, argc, argv);
  if (!precis::testing::EtcdMembers::installed()) {
    fmt::print(stderr, "bench cluster: the Debian package etcd-server is missing\n");
    return 2;
  }
  const precis::Status status = precis::bench::measure(options, only, json);
  if (!status.ok()) fmt::print(stderr, "bench cluster: {}\n", status.to_string());
  return status.ok() ? 0 : 1;
}

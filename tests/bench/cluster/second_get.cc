// A node serves what another one stored: first from the shared storage, later from its own disk or
// RAM. Compared with what was put at the node itself.
#include <fmt/format.h>

#include <array>
#include <chrono>

#include "tests/bench/cluster/bench_nodes.h"
#include "tests/bench/cluster/parts.h"
#include "tests/bench/row.h"

namespace precis::bench {
namespace {

constexpr std::uint32_t kPrompts = 12, kTokens = 512, kRepeats = 3;
constexpr double kMark = 0.9;

// Bytes that were read, and how long that took.
struct Reads {
  double bytes = 0, seconds = 0;
  double rate() const { return bytes / 1e9 / seconds; }

  Status add(BenchNodes& node, const Prompt& prompt) {
    const auto began = std::chrono::steady_clock::now();
    PRECIS_ASSIGN(const std::uint64_t got, node.get(prompt));
    bytes += static_cast<double>(got);
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return {};
  }
};

Result<std::vector<Prompt>> put_some(BenchNodes& node) {
  std::vector<Prompt> prompts;
  for (std::uint32_t p = 0; p < kPrompts; ++p) {
    PRECIS_ASSIGN(Prompt prompt, node.put(kTokens, Durability::kShared));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

struct Run {
  Reads first, second_ram, here_ram, second_disk, here_disk;
};

// `here` was put at this node since it lost its disk, `others` before. Each read of one is followed
// by a read of the other.
Result<Run> measure_run(BenchNodes& node) {
  PRECIS_ASSIGN(const auto others, put_some(node));
  PRECIS_TRY(node.restart(/*keeps_disk=*/false));
  PRECIS_ASSIGN(const auto here, put_some(node));
  PRECIS_TRY(node.settle_uploads());
  Run run;
  for (const Prompt& prompt : others) PRECIS_TRY(run.first.add(node, prompt));
  for (std::uint32_t n = 0; n < kRepeats * kPrompts; ++n) {
    PRECIS_TRY(run.here_ram.add(node, here[n % kPrompts]));
    PRECIS_TRY(run.second_ram.add(node, others[n % kPrompts]));
  }
  PRECIS_TRY(node.restart(/*keeps_disk=*/true));
  PRECIS_TRY(node.lookup(here[0]).status());  // connects again, which shall not be measured
  for (std::uint32_t n = 0; n < kPrompts; ++n) {
    PRECIS_TRY(run.here_disk.add(node, here[n]));
    PRECIS_TRY(run.second_disk.add(node, others[n]));
  }
  return run;
}

}  // namespace

Result<Part> measure_second_get(const ClusterOptions& options, const std::string& ceph_settings) {
  BenchNodes node(1, ceph_settings + "cluster_name = 'second'\n");
  PRECIS_TRY(node.connect(1));
  std::vector<Run> runs;
  for (std::uint32_t run = 0; run < options.runs; ++run) {
    PRECIS_ASSIGN(runs.emplace_back(), measure_run(node));
  }
  struct Kind {
    const char *figure, *name;
    Reads Run::*reads, Run::*base;
    bool has_mark;
  };
  const std::array<Kind, 5> rows = {{
      {"put here, from its RAM (warm)", "warm", &Run::here_ram, &Run::here_ram, false},
      {"first get of what only the shared storage has", "first", &Run::first, &Run::here_ram,
       false},
      {"second get, from RAM", "second", &Run::second_ram, &Run::here_ram, true},
      {"put here, from its disk", "put_here_disk", &Run::here_disk, &Run::here_ram, false},
      {"later get, from its disk; share of put here, from disk", "later_disk", &Run::second_disk,
       &Run::here_disk, true},
  }};
  Part part;
  for (const Kind& row : rows) {
    std::vector<double> rates, shares;
    for (const Run& run : runs) {
      rates.push_back((run.*row.reads).rate());
      shares.push_back((run.*row.reads).rate() / (run.*row.base).rate());
    }
    const double share = median(shares);
    const std::string mark = row.has_mark ? fmt::format(" (mark: {})", kMark) : "";
    part.lines.push_back(
        {row.figure + mark + ", GB/s; share", fmt::format("{:.2f} {:.2f}", median(rates), share)});
    auto& json = part.json[row.name];
    json = {{"gb_per_second", median(rates)}, {"share", share}, {"share_of_each_run", shares}};
    if (row.has_mark) {
      json["mark"] = kMark;
      json["met"] = share >= kMark;
    }
  }
  return part;
}

}  // namespace precis::bench

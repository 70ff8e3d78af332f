// ./dev bench eviction: prints the share of a trace's prompt blocks that the RAM tier would hit, by
// policy and capacity. A block is a hit only if all blocks before it in its prompt are hits.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cachesvc/store/eviction_policy.h"
#include "tests/bench/trace.h"
#include "tests/unit/store/lru_policy.h"

namespace precis::bench {
namespace {

HotKey key_of(std::uint64_t block) {
  HotKey key;
  std::memcpy(key.segment.bytes.data(), &block, sizeof block);
  return key;
}

// The share of all blocks that are hits if `capacity` blocks are kept.
double had(const std::vector<TraceRequest>& prompts, EvictionPolicy& policy, std::size_t capacity) {
  std::set<HotKey> kept;
  std::uint64_t blocks = 0, hits = 0;
  for (const TraceRequest& prompt : prompts) {
    bool prefix = true;
    for (const std::uint64_t block : prompt.blocks) {
      ++blocks;
      const HotKey key = key_of(block);
      if (kept.contains(key)) {
        policy.used(key);
        if (prefix) ++hits;
        continue;
      }
      prefix = false;
      if (kept.size() == capacity) {
        const HotKey gone = *policy.victim([](const HotKey&) { return true; });
        policy.removed(gone);
        kept.erase(gone);
      }
      policy.added(key, 1);
      kept.insert(key);
    }
  }
  return static_cast<double>(hits) / static_cast<double>(blocks);
}

int run(const std::string& trace, const std::string& json_path) {
  const auto prompts = read_trace(trace);
  if (!prompts.ok()) {
    fmt::print(stderr, "bench eviction: {}\n", prompts.status().message());
    return 2;
  }
  std::set<std::uint64_t> distinct;
  for (const TraceRequest& prompt : *prompts) {
    distinct.insert(prompt.blocks.begin(), prompt.blocks.end());
  }
  const double most = had(*prompts, *testing::make_lru_policy(), distinct.size());
  fmt::print(
      "{} prompts, {} blocks of which {} differ; with room for all of them {:.1f}% are had\n\n",
      prompts->size(),
      [&] {
        std::size_t sum = 0;
        for (const TraceRequest& prompt : *prompts) sum += prompt.blocks.size();
        return sum;
      }(),
      distinct.size(), 100 * most);
  fmt::print("{:>12} {:>10} {:>10} {:>10}\n", "blocks kept", "of all", "lru", "s3-fifo");
  nlohmann::json rows = nlohmann::json::array();
  for (std::size_t part = 256; part >= 2; part /= 2) {
    const std::size_t capacity = std::max<std::size_t>(distinct.size() / part, 1);
    const double lru = had(*prompts, *testing::make_lru_policy(), capacity);
    const double s3 = had(*prompts, *make_s3_fifo_policy(), capacity);
    fmt::print("{:>12} {:>9.1f}% {:>9.2f}% {:>9.2f}%\n", capacity,
               100.0 / static_cast<double>(part), 100 * lru, 100 * s3);
    for (const auto& [name, value] : {std::pair{"lru", lru}, {"s3-fifo", s3}}) {
      rows.push_back({{"bench", "eviction"},
                      {"params", {{"policy", name}, {"blocks", capacity}}},
                      {"value", value},
                      {"unit", "share of blocks"},
                      {"ceiling", most},
                      {"ceiling_name", "room for every block"},
                      {"share", most > 0 ? value / most : 0.0}});
    }
  }
  if (json_path.empty()) return 0;
  std::ofstream out(json_path);
  out << rows.dump(1) << "\n";
  if (out.good()) return 0;
  fmt::print(stderr, "bench eviction: {} cannot be written\n", json_path);
  return 1;
}

}  // namespace
}  // namespace precis::bench

int main(int argc, char** argv) {
  CLI::App app("Measures which share of a trace's blocks the RAM tier would have had.",
               "bench eviction");
  std::string trace, json_path;
  app.add_option("--trace", trace, "JSON lines with 'hash_ids', the blocks of a prompt by id")
      ->required();
  app.add_option("--json", json_path, "Write the rows to this file");
  CLI11_PARSE(app, argc, argv);
  return precis::bench::run(trace, json_path);
}

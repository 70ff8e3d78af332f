#include <array>
#include <chrono>
#include <utility>

#include "tests/bench/row.h"
#include "tests/bench/service/admin_load.h"
#include "tests/bench/service/payload.h"
#include "tests/bench/service/plan.h"
#include "tests/bench/service/stage.h"
#include "tests/bench/service/timed.h"

namespace precis::bench {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;
constexpr std::uint32_t kLayers = 4;
constexpr std::uint32_t kPaths = 64;  // the lists have this many rows
constexpr unsigned kPerSecond = 200;
constexpr double kSliceSeconds = 0.25;
constexpr std::array kQuantiles = {std::pair{"p50", 0.5}, std::pair{"p99", 0.99}};

Row row_of(const std::string& transport, const char* quantile) {
  return {"get_beside_admin",
          {{"transport", transport},
           {"bytes", kBytes},
           {"quantile", quantile},
           {"admin_per_s", kPerSecond}},
          "s",
          "the same gets without admin requests",
          {}};
}

// Seconds of each get within one slice.
Result<std::vector<double>> slice_of(Client& client, const LookupMatch& match) {
  std::vector<double> seconds;
  for (const auto began = std::chrono::steady_clock::now(); seconds_since(began) < kSliceSeconds;) {
    PRECIS_ASSIGN(const auto one, timed(1, [&] { return get(client, match).status(); }));
    seconds.push_back(one.front());
  }
  return seconds;
}

// A round takes the gets of both kinds in slices that alternate, so that both see the same machine.
Status measure(const Plan& plan, const std::string& transport) {
  const std::size_t slices = plan.samples / 300;  // of each kind in a round
  plan.began("hot get beside requests to the admin port, over " + transport);
  const Folder folder(plan.dir + "/admin");
  StageOptions options{folder.path(), transport};
  options.admin_port = free_port();
  PRECIS_ASSIGN(const auto stage, Stage::open(options, bench_model(kLayers)));
  PRECIS_ASSIGN(const auto load, AdminLoad::open(options.admin_port, kPerSecond));
  const Payload payload(bench_model(kLayers), kBytes);
  for (std::uint32_t path = 0; path < kPaths; ++path) {
    PRECIS_TRY(put(stage->client(), stage->model(), payload, path).status());
  }
  PRECIS_ASSIGN(const LookupMatch match, find_hot(stage->client(), stage->model(), payload, 0));
  std::array<Row, kQuantiles.size()> rows;
  for (std::size_t q = 0; q < rows.size(); ++q) rows[q] = row_of(transport, kQuantiles[q].first);
  for (std::size_t round = 0; round <= plan.rounds; ++round) {
    std::array<std::vector<double>, 2> seconds;  // without and with
    for (std::size_t slice = 0; slice < 2 * slices; ++slice) {
      const bool beside = (slice + round) % 2 == 1;
      const std::uint64_t before = load->answered();
      load->run(beside);
      PRECIS_ASSIGN(const auto part, slice_of(stage->client(), match));
      load->run(false);
      PRECIS_TRY(load->status());
      if (beside && load->answered() == before) {
        return Status::internal("no admin request was answered beside the gets");
      }
      seconds[beside].insert(seconds[beside].end(), part.begin(), part.end());
    }
    for (std::size_t q = 0; q < rows.size() && round > 0; ++q) {
      const double share = kQuantiles[q].second;
      rows[q].samples.add(quantile(seconds[1], share), quantile(seconds[0], share));
    }
  }
  for (const Row& row : rows) print(row);
  return {};
}

}  // namespace

Jobs admin(const Plan& plan, const std::string& transport) {
  std::vector<Row> owed;
  for (const auto& [name, share] : kQuantiles) owed.push_back(row_of(transport, name));
  return {{std::move(owed), [&plan, transport] { return measure(plan, transport); }}};
}

}  // namespace precis::bench

#include <array>
#include <chrono>
#include <memory>
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

// Each row compares gets beside requests to the service's own admin port with gets beside
// something else. If another service answers the same requests, the gets share the machine's cores
// with equal work, and nothing else. The admin port then costs the service only the difference.
enum Beside { kNothing, kOther, kOwn };
struct Kind {
  const char *bench, *ceiling_name;
  Beside ceiling;
};
constexpr std::array kKinds = {
    Kind{"get_beside_admin", "the same gets while another precisd answers", kOther},
    Kind{"get_and_admin", "the same gets without admin requests", kNothing}};

Row row_of(const std::string& transport, const Kind& kind, const char* quantile) {
  return {kind.bench,
          {{"transport", transport},
           {"bytes", kBytes},
           {"quantile", quantile},
           {"admin_per_s", kPerSecond}},
          "s",
          kind.ceiling_name,
          {}};
}

std::vector<Row> rows_of(const std::string& transport) {
  std::vector<Row> rows;
  for (const Kind& kind : kKinds) {
    for (const auto& [name, share] : kQuantiles) rows.push_back(row_of(transport, kind, name));
  }
  return rows;
}

// A precisd with kPaths segments, and requests to its admin port.
struct Service {
  Service(const Plan& plan, const std::string& transport, const char* name)
      : folder(plan.dir + "/" + name), options{folder.path(), transport} {
    options.admin_port = free_port();
  }
  Status start(const Payload& payload) {
    PRECIS_ASSIGN(stage, Stage::open(options, bench_model(kLayers)));
    PRECIS_ASSIGN(load, AdminLoad::open(options.admin_port, kPerSecond));
    for (std::uint32_t path = 0; path < kPaths; ++path) {
      PRECIS_TRY(put(stage->client(), stage->model(), payload, path).status());
    }
    return {};
  }

  const Folder folder;
  StageOptions options;
  std::unique_ptr<Stage> stage;
  std::unique_ptr<AdminLoad> load;
};

// Seconds of each get within one slice.
Result<std::vector<double>> slice_of(Client& client, const LookupMatch& match) {
  std::vector<double> seconds;
  for (const auto began = std::chrono::steady_clock::now(); seconds_since(began) < kSliceSeconds;) {
    PRECIS_ASSIGN(const auto one, timed(1, [&] { return get(client, match).status(); }));
    seconds.push_back(one.front());
  }
  return seconds;
}

// Gets of one slice, beside these requests; null: none.
Result<std::vector<double>> slice_beside(AdminLoad* load, Client& client,
                                         const LookupMatch& match) {
  if (load == nullptr) return slice_of(client, match);
  const std::uint64_t before = load->answered();
  load->run(true);
  auto seconds = slice_of(client, match);
  load->run(false);
  PRECIS_TRY(load->status());
  if (load->answered() > before) return seconds;
  return Status::internal("no admin request was answered beside the gets");
}

// A round takes the gets of all kinds in slices that alternate, so that all see the same machine.
Status measure(const Plan& plan, const std::string& transport) {
  const std::size_t slices = plan.samples / 300;  // of each kind in a round
  plan.began("hot get beside requests to the admin port, over " + transport);
  const Payload payload(bench_model(kLayers), kBytes);
  Service own(plan, transport, "admin"), other(plan, transport, "other_admin");
  PRECIS_TRY(own.start(payload));
  PRECIS_TRY(other.start(payload));
  Client& client = own.stage->client();
  PRECIS_ASSIGN(const LookupMatch match, find_hot(client, own.stage->model(), payload, 0));
  const std::array<AdminLoad*, 3> loads = {nullptr, other.load.get(), own.load.get()};
  std::vector<Row> rows = rows_of(transport);
  for (std::size_t round = 0; round <= plan.rounds; ++round) {
    std::array<std::vector<double>, loads.size()> seconds;
    for (std::size_t slice = 0; slice < loads.size() * slices; ++slice) {
      const std::size_t beside = (slice + round) % loads.size();
      PRECIS_ASSIGN(const auto part, slice_beside(loads[beside], client, match));
      seconds[beside].insert(seconds[beside].end(), part.begin(), part.end());
    }
    for (std::size_t r = 0; r < rows.size() && round > 0; ++r) {
      const Kind& kind = kKinds[r / kQuantiles.size()];
      const double share = kQuantiles[r % kQuantiles.size()].second;
      rows[r].samples.add(quantile(seconds[kOwn], share), quantile(seconds[kind.ceiling], share));
    }
  }
  for (const Row& row : rows) print(row);
  return {};
}

}  // namespace

Jobs admin(const Plan& plan, const std::string& transport) {
  return {{rows_of(transport), [&plan, transport] { return measure(plan, transport); }}};
}

}  // namespace precis::bench

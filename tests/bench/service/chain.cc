#include <algorithm>
#include <chrono>
#include <span>
#include <thread>

#include "tests/bench/row.h"
#include "tests/bench/service/drop_cached.h"
#include "tests/bench/service/payload.h"
#include "tests/bench/service/plan.h"
#include "tests/bench/service/stage.h"

namespace precis::bench {
namespace {

constexpr std::uint32_t kLayers = 8;
constexpr std::size_t kSegments = 50;
constexpr std::size_t kLinksMax = 12;  // that the service leaves of them
constexpr std::chrono::milliseconds kPoll{100};
constexpr int kSamePolls = 20;
constexpr std::size_t kLargest = std::size_t{64} << 20;

// Each round reads two prefixes of equal bytes: one was put as a single segment, and one as
// kSegments segments, which the service has consolidated since. Both are read from the disk first,
// then from memory.
class Chain {
 public:
  Chain(const Plan& plan, const std::string& transport, std::size_t bytes)
      : turn_(bench_model(kLayers), bytes / kSegments),
        whole_(bench_model(kLayers), kSegments * turn_.bytes()),
        rounds_(plan.rounds + 1),
        folder_(plan.dir + "/chain"),
        options_{folder_.path() + "/data", transport,
                 4 * rounds_ * whole_.bytes() + (std::size_t{512} << 20)} {}

  Status prepare() {
    PRECIS_ASSIGN(stage_, Stage::open(options_, bench_model(kLayers)));
    for (std::uint32_t round = 0; round < rounds_; ++round) {
      PRECIS_TRY(put(stage_->client(), stage_->model(), whole_, one(round), keep_everything(),
                     Durability::kWal)
                     .status());
      PRECIS_TRY(put_chain(many(round)));
    }
    PRECIS_TRY(stage_->stop());
    drop_cached(folder_.path());
    PRECIS_ASSIGN(stage_, Stage::open(options_, bench_model(kLayers)));
    return wait_until_tidy();
  }

  struct Rates {
    double one = 0, many = 0;  // GB/s
  };
  Result<Rates> rates(std::uint32_t round, bool in_memory) {
    PRECIS_ASSIGN(const double one_rate, rate(one(round), 1, in_memory));
    PRECIS_ASSIGN(const double many_rate, rate(many(round), kLinksMax, in_memory));
    return Rates{one_rate, many_rate};
  }

 private:
  // The service first returns the space of the segments that were consolidated. Its reads and
  // writes would slow the gets down.
  Status wait_until_tidy() {
    double before = -1;
    for (int same = 0; same < kSamePolls;) {
      PRECIS_ASSIGN(const msg::Stats stats, stage_->client().stats());
      const auto is_disk_bytes = [](const msg::Stat& row) {
        return row.name == "precis_disk_bytes";
      };
      const auto row = std::ranges::find_if(stats.rows, is_disk_bytes);
      if (row == stats.rows.end()) return Status::internal("precisd counts no precis_disk_bytes");
      same = row->value == before ? same + 1 : 0;
      before = row->value;
      std::this_thread::sleep_for(kPoll);
    }
    return {};
  }

  static std::uint32_t one(std::uint32_t round) { return 2 * round; }
  static std::uint32_t many(std::uint32_t round) { return 2 * round + 1; }

  Status put_chain(std::uint32_t path) {
    const auto tokens = whole_.path(path);
    for (std::size_t s = 1; s <= kSegments; ++s) {
      PRECIS_ASSIGN(Put put, stage_->client().begin_put(stage_->model(),
                                                        std::span(tokens).first(s * turn_.tokens()),
                                                        keep_everything()));
      for (std::uint32_t l = 0; l < kLayers; ++l) PRECIS_TRY(put.start_layer(l, turn_.layer(l)));
      PRECIS_TRY(put.wait_layers());
      PRECIS_TRY(put.commit(Durability::kWal).status());
    }
    for (std::size_t links = kSegments; links > kLinksMax; std::this_thread::yield()) {
      PRECIS_ASSIGN(const auto match, find(stage_->client(), stage_->model(), whole_, path));
      links = match.links.size();
    }
    return {};
  }

  Result<double> rate(std::uint32_t path, std::size_t links_max, bool in_memory) {
    PRECIS_ASSIGN(const LookupMatch match, find(stage_->client(), stage_->model(), whole_, path));
    if (match.links.empty() || match.links.size() > links_max) {
      return Status::internal("a prefix of at most " + std::to_string(links_max) +
                              " segments has " + std::to_string(match.links.size()));
    }
    for (const auto& link : match.links) {
      if (link.segment.in_memory == in_memory) continue;
      return Status::internal(in_memory ? "a segment that was read is not in memory"
                                        : "a segment that nobody read is in memory");
    }
    const auto began = std::chrono::steady_clock::now();
    PRECIS_ASSIGN(const std::uint64_t bytes, get(stage_->client(), match));
    return static_cast<double>(bytes) * 1e-9 / seconds_since(began);
  }

  const Payload turn_, whole_;
  const std::size_t rounds_;
  const Folder folder_;
  const StageOptions options_;
  std::unique_ptr<Stage> stage_;
};

Row row_of(const char* name, const std::string& transport, std::size_t bytes) {
  return {name,
          {{"transport", transport}, {"bytes", bytes}, {"segments", std::uint64_t{kSegments}}},
          "GB/s",
          "one segment of the same bytes",
          {}};
}

Status measure(const Plan& plan, const std::string& transport, std::size_t bytes) {
  plan.began("get of a chain of " + std::to_string(bytes >> 20) + " MiB");
  Chain subject(plan, transport, bytes);
  PRECIS_TRY(subject.prepare());
  Row cold = row_of("get_chain_cold", transport, bytes);
  Row hot = row_of("get_chain", transport, bytes);
  for (std::uint32_t round = 0; round <= plan.rounds; ++round) {
    PRECIS_ASSIGN(const auto first, subject.rates(round, /*in_memory=*/false));
    PRECIS_ASSIGN(const auto second, subject.rates(round, /*in_memory=*/true));
    if (round == 0) continue;
    cold.samples.add(first.many, first.one);
    hot.samples.add(second.many, second.one);
  }
  print(cold);
  print(hot);
  return {};
}

}  // namespace

Jobs chain(const Plan& plan, const std::string& transport) {
  Jobs jobs;
  for (const std::size_t bytes : plan.sizes) {
    if (bytes > kLargest) continue;
    jobs.push_back(
        {{row_of("get_chain_cold", transport, bytes), row_of("get_chain", transport, bytes)},
         [&plan, transport, bytes] { return measure(plan, transport, bytes); }});
  }
  return jobs;
}

}  // namespace precis::bench

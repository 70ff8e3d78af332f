#include <algorithm>
#include <numeric>

#include "tests/bench/row.h"
#include "tests/bench/service/bare.h"
#include "tests/bench/service/payload.h"
#include "tests/bench/service/plan.h"
#include "tests/bench/service/stage.h"
#include "tests/bench/service/transport_ceiling.h"

namespace precis::bench {
namespace {

constexpr std::uint32_t kLayers = 8;
// The segments that are read occupy as much memory as the ceiling's buffers, and each figure takes
// at least a few milliseconds.
constexpr std::size_t kHotBytes = std::size_t{256} << 20;
constexpr std::size_t kRoundBytes = std::size_t{64} << 20;

// Measures one size with one number of clients.
class PutGet {
 public:
  PutGet(Stage& stage, const Payload& payload, std::size_t clients)
      : stage_(stage),
        payload_(payload),
        clients_(clients),
        times_(std::max<std::size_t>(kRoundBytes / (payload.bytes() * clients), 1)),
        hot_paths_(
            static_cast<std::uint32_t>(std::max<std::size_t>(kHotBytes / payload.bytes(), 1))) {}

  std::size_t times() const { return times_; }

  Status fill() {
    for (std::uint32_t path = 0; path < hot_paths_; ++path) {
      PRECIS_TRY(bench::put(stage_.client(), stage_.model(), payload_, path, keep_everything(),
                            Durability::kWal)
                     .status());
    }
    return {};
  }

  struct PutRates {
    double ingest = 0, whole = 0;
  };
  // `payloads`: one for each client. `check`: whether to read one of the puts back before its
  // removal.
  Result<PutRates> put_rates(std::span<const Payload> payloads, bool check) {
    const std::size_t puts = clients_ * times_;
    std::vector<PutSeconds> made(puts);
    PRECIS_ASSIGN(const double seconds, stage_.together([&](std::size_t i) -> Status {
      for (std::size_t t = i * times_; t < (i + 1) * times_; ++t) {
        PRECIS_ASSIGN(made[t], bench::put(stage_.client(i), stage_.model(), payloads[i],
                                          hot_paths_ + static_cast<std::uint32_t>(t)));
      }
      return {};
    }));
    // The newest put is checked: commits at `memory` do not wait for the disk, so older ones may
    // already have been dropped.
    if (check) PRECIS_TRY(check_path(hot_paths_ + static_cast<std::uint32_t>(times_) - 1));
    for (const PutSeconds& put : made) {
      const auto removed = stage_.client().remove_segment(put.segment, /*recursive=*/false);
      if (removed.status().code() != StatusCode::kNotFound) PRECIS_TRY(removed.status());
    }
    const double ingest = std::accumulate(made.begin(), made.end(), 0.0,
                                          [](double sum, const auto& p) { return sum + p.ingest; });
    const double gigabytes = static_cast<double>(payload_.bytes() * puts) * 1e-9;
    return PutRates{gigabytes / ingest * static_cast<double>(clients_), gigabytes / seconds};
  }

  // GB/s of gets of segments in memory. If `by_path`, the measured time includes the lookup.
  Result<double> get_rate(bool by_path) {
    std::vector<LookupMatch> matches;
    const std::uint32_t first = next_;
    for (std::size_t t = 0; t < clients_ * times_; ++t) {
      PRECIS_ASSIGN(LookupMatch match,
                    find_hot(stage_.client(), stage_.model(), payload_, next_++ % hot_paths_));
      matches.push_back(std::move(match));
    }
    std::vector<std::uint64_t> bytes(clients_);
    PRECIS_ASSIGN(const double seconds, stage_.together([&](std::size_t i) -> Status {
      for (std::size_t t = i * times_; t < (i + 1) * times_; ++t) {
        const std::uint32_t path = (first + static_cast<std::uint32_t>(t)) % hot_paths_;
        if (by_path) {
          PRECIS_ASSIGN(matches[t], find(stage_.client(i), stage_.model(), payload_, path));
        }
        PRECIS_ASSIGN(const std::uint64_t got, bench::get(stage_.client(i), matches[t]));
        bytes[i] += got;
      }
      return {};
    }));
    return std::accumulate(bytes.begin(), bytes.end(), 0.0) * 1e-9 / seconds;
  }

  Status check_path(std::uint32_t path) {
    PRECIS_ASSIGN(const LookupMatch match,
                  find_hot(stage_.client(), stage_.model(), payload_, path));
    return check_bytes(stage_.client(), match, payload_);
  }

 private:
  Stage& stage_;
  const Payload& payload_;
  const std::size_t clients_, times_;  // each client puts and gets `times_` times a round
  const std::uint32_t hot_paths_;
  std::uint32_t next_ = 0;
};

enum Figure : std::size_t { kIngest, kPut, kForeign, kHot, kByPath, kBarePut, kBareGet };
constexpr const char* kNames[] = {"put_ingest",  "put",      "put_foreign", "get_hot",
                                  "get_by_path", "put_bare", "get_bare"};

// Smaller transfers measure mostly the requests.
constexpr std::size_t kBareBytesMin = std::size_t{64} << 20;
bool has_bare(std::size_t bytes, std::size_t clients) {
  return clients == 1 && bytes >= kBareBytesMin;
}

// Indexed by Figure. get_by_path is for the comparison with peers, which has one client.
std::vector<Row> rows_of(const std::string& transport, std::size_t bytes, std::size_t clients) {
  std::vector<Row> rows;
  for (const char* name : kNames) {
    rows.push_back(
        {name, {{"transport", transport}, {"bytes", bytes}, {"clients", clients}}, "GB/s", "", {}});
  }
  if (!has_bare(bytes, clients)) rows.resize(kBarePut);
  if (clients != 1) rows.resize(kByPath);
  return rows;
}

Status measure(const Plan& plan, const std::string& transport, std::size_t bytes,
               std::size_t clients) {
  plan.began("put and get of " + std::to_string(bytes >> 20) + " MiB over " + transport +
             ", clients: " + std::to_string(clients));
  const Payload payload(bench_model(kLayers), bytes);
  // Memory for the segments that are read, for every put under way with its layers, and a reserve.
  const std::uint64_t moved = payload.bytes() * clients;  // the payloads take as much again
  const std::uint64_t memory =
      2 * (moved + std::max(kHotBytes, payload.bytes())) + (std::uint64_t{512} << 20);
  PRECIS_TRY(need_memory(memory + 2 * moved + 2 * std::max(kHotBytes, payload.bytes())));
  const Folder folder(plan.dir + "/put_get");
  PRECIS_ASSIGN(const auto stage,
                Stage::open({folder.path(), transport, memory, clients}, bench_model(kLayers)));
  PRECIS_ASSIGN(TransportCeiling ceiling,
                TransportCeiling::open(transport, payload.bytes(), clients));
  PutGet subject(*stage, payload, clients);
  PRECIS_TRY(subject.fill());

  std::vector<Payload> pushed;
  for (std::size_t i = 0; i < clients; ++i) {
    PRECIS_ASSIGN(Payload copy, payload.copy_for(stage->client(i)));
    pushed.push_back(std::move(copy));
  }
  const std::vector<Payload> foreign(clients, payload);
  std::unique_ptr<Bare> bare;
  if (has_bare(bytes, clients)) {
    PRECIS_ASSIGN(bare, Bare::make(transport, bench_model(kLayers), pushed.front(), ceiling));
  }

  std::vector<Row> rows = rows_of(transport, payload.bytes(), clients);
  for (std::size_t round = 0; round <= plan.rounds; ++round) {
    const bool last = round == plan.rounds;
    const auto add = [&](Figure figure, double value, double beside) {
      if (round > 0) rows[figure].samples.add(value, beside);
    };
    PRECIS_ASSIGN(const double before_put, ceiling.rate(subject.times()));
    PRECIS_ASSIGN(const auto put, subject.put_rates(pushed, last));
    add(kIngest, put.ingest, before_put);
    add(kPut, put.whole, before_put);
    PRECIS_ASSIGN(const double before_foreign, ceiling.rate(subject.times()));
    PRECIS_ASSIGN(const auto put_foreign, subject.put_rates(foreign, last));
    add(kForeign, put_foreign.whole, before_foreign);
    PRECIS_ASSIGN(const double before_get, ceiling.rate(subject.times()));
    PRECIS_ASSIGN(const double get, subject.get_rate(/*by_path=*/false));
    add(kHot, get, before_get);
    if (clients != 1) continue;
    PRECIS_ASSIGN(const double before_by_path, ceiling.rate(subject.times()));
    PRECIS_ASSIGN(const double by_path, subject.get_rate(/*by_path=*/true));
    add(kByPath, by_path, before_by_path);
    if (!bare) continue;
    PRECIS_ASSIGN(const double before_bare, ceiling.rate(subject.times()));
    PRECIS_ASSIGN(const double bare_put, bare->put_rate());
    PRECIS_ASSIGN(const double bare_get, bare->get_rate());
    add(kBarePut, bare_put, before_bare);
    add(kBareGet, bare_get, before_bare);
  }
  PRECIS_TRY(subject.check_path(0));
  for (Row& row : rows) {
    row.ceiling_name = ceiling.name();
    print(row);
  }
  return {};
}

}  // namespace

Jobs put_get(const Plan& plan, const std::string& transport) {
  Jobs jobs;
  for (const std::size_t bytes : plan.sizes) {
    for (const std::size_t clients : plan.clients) {
      jobs.push_back({rows_of(transport, bytes, clients), [&plan, transport, bytes, clients] {
                        return measure(plan, transport, bytes, clients);
                      }});
    }
  }
  return jobs;
}

}  // namespace precis::bench

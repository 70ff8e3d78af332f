#include <unistd.h>

#include "tests/bench/plain_file.h"
#include "tests/bench/row.h"
#include "tests/bench/service/payload.h"
#include "tests/bench/service/plan.h"
#include "tests/bench/service/stage.h"
#include "tests/bench/service/timed.h"

namespace precis::bench {
namespace {

constexpr std::uint32_t kLayers = 8;
constexpr Durability kDurabilities[] = {Durability::kMemory, Durability::kWal, Durability::kFsync};

// ---- one small segment at a time

constexpr std::size_t kSmallBytes = std::size_t{1} << 20;
constexpr std::size_t kCommits = 100;  // whose quantiles make one figure

// What commit() alone took, of puts whose layers had been taken in.
Result<std::vector<double>> commit_often(Stage& stage, const Payload& payload,
                                         Durability durability) {
  std::vector<double> seconds;
  std::vector<SegmentId> made;
  for (std::uint32_t path = 0; path < kCommits; ++path) {
    PRECIS_ASSIGN(const PutSeconds put, bench::put(stage.client(), stage.model(), payload, path,
                                                   keep_everything(), durability));
    seconds.push_back(put.whole - put.ingest);
    made.push_back(put.segment);
  }
  for (const SegmentId& segment : made) {
    PRECIS_TRY(stage.client().remove_segment(segment, /*recursive=*/false).status());
  }
  return seconds;
}

Status measure_latency(const Plan& plan, Stage& stage, PlainFile& plain, Durability durability) {
  plan.began("commit at " + std::string(durability_name(durability)));
  const Payload payload(bench_model(kLayers), kSmallBytes);
  const bool sync = durability == Durability::kFsync;
  ColdPool pool(std::size_t{256} << 20);
  constexpr double kQuantiles[] = {0.5, 0.99};
  Samples samples[2];
  for (std::size_t round = 0; round <= plan.rounds; ++round) {
    PRECIS_ASSIGN(std::vector<double> written,
                  timed(kCommits, [&] { return plain.append(pool.next(kSmallBytes), sync); }));
    plain.remove();
    PRECIS_ASSIGN(std::vector<double> committed, commit_often(stage, payload, durability));
    for (std::size_t q = 0; round > 0 && q < 2; ++q) {
      samples[q].add(quantile(committed, kQuantiles[q]), quantile(written, kQuantiles[q]));
    }
  }
  for (std::size_t q = 0; q < 2; ++q) {
    print({"commit",
           {{"durability", std::string(durability_name(durability))},
            {"bytes", payload.bytes()},
            {"quantile", q == 0 ? "p50" : "p99"}},
           "s",
           sync ? "write + fdatasync" : "plain write",
           samples[q]});
  }
  return {};
}

// ---- one large segment after the other

constexpr std::size_t kLargeBytes = std::size_t{128} << 20;
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
constexpr std::size_t kRoundsMax = 3;  // of gigabytes each

Status measure_sustained(const Plan& plan, Stage& stage, PlainFile& plain, Durability durability) {
  const std::size_t segments = plan.sustained_bytes / kLargeBytes;
  const std::size_t bytes = segments * kLargeBytes;
  plan.began("puts of " + std::to_string(bytes >> 20) + " MiB at " +
             std::string(durability_name(durability)));
  const Payload payload(bench_model(kLayers), kLargeBytes);
  const bool sync = durability == Durability::kFsync;
  const double gigabytes = static_cast<double>(bytes) * 1e-9;
  ColdPool pool(std::size_t{256} << 20);
  Samples samples;
  for (std::size_t round = 0; round < std::min(plan.rounds, kRoundsMax); ++round) {
    ::sync();  // neither pays for what the other left
    const auto plain_began = std::chrono::steady_clock::now();
    PRECIS_TRY(plain.write(pool, segments, kLargeBytes / kPieceBytes, kPieceBytes, sync));
    const double written = gigabytes / seconds_since(plain_began);
    plain.remove();
    ::sync();
    std::vector<SegmentId> made;
    const auto began = std::chrono::steady_clock::now();
    for (std::uint32_t path = 0; path < segments; ++path) {
      PRECIS_ASSIGN(const PutSeconds put, bench::put(stage.client(), stage.model(), payload, path,
                                                     keep_everything(), durability));
      made.push_back(put.segment);
    }
    samples.add(gigabytes / seconds_since(began), written);
    for (const SegmentId& segment : made) {
      PRECIS_TRY(stage.client().remove_segment(segment, /*recursive=*/false).status());
    }
  }
  print({"put_sustained",
         {{"durability", std::string(durability_name(durability))}, {"bytes", bytes}},
         "GB/s",
         sync ? "write + fdatasync" : "plain write",
         samples});
  return {};
}

}  // namespace

Status measure_commit(const Plan& plan, const std::string& transport) {
  const Folder folder(plan.dir + "/commit");
  PRECIS_ASSIGN(
      const auto stage,
      Stage::open({folder.path() + "/data", transport, 16 * kLargeBytes}, bench_model(kLayers)));
  PlainFile plain(folder.path() + "/plain");
  for (const Durability durability : kDurabilities) {
    PRECIS_TRY(measure_latency(plan, *stage, plain, durability));
  }
  for (const Durability durability : {Durability::kWal, Durability::kFsync}) {
    PRECIS_TRY(measure_sustained(plan, *stage, plain, durability));
  }
  return {};
}

}  // namespace precis::bench

#include <unistd.h>

#include <numeric>

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
constexpr Durability kSustained[] = {Durability::kWal, Durability::kFsync};

// ---- one small segment at a time

constexpr std::size_t kSmallBytes = std::size_t{1} << 20;
constexpr std::size_t kCommits = 100;  // commits per round; a figure is a quantile of them

// Seconds of commit() only, of puts whose layers the service already has.
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

// The ceiling of a durability.
const char* written_how(Durability durability) {
  return durability == Durability::kFsync ? "write + fdatasync" : "plain write";
}

struct Quantile {
  const char* name;
  double share;
};
constexpr Quantile kQuantiles[] = {{"p50", 0.5}, {"p99", 0.99}};

Row latency_row(Durability durability, const Quantile& quantile) {
  return {"commit",
          {{"durability", std::string(durability_name(durability))},
           {"bytes", kSmallBytes},
           {"quantile", quantile.name}},
          "s",
          written_how(durability),
          {}};
}

Status measure_latency(const Plan& plan, Stage& stage, PlainFile& plain, Durability durability) {
  plan.began("commit at " + std::string(durability_name(durability)));
  const Payload payload(bench_model(kLayers), kSmallBytes);
  const bool sync = durability == Durability::kFsync;
  ColdPool pool(std::size_t{256} << 20);
  std::vector<Row> rows;
  for (const Quantile& quantile : kQuantiles) rows.push_back(latency_row(durability, quantile));
  for (std::size_t round = 0; round <= plan.rounds; ++round) {
    PRECIS_ASSIGN(std::vector<double> written,
                  timed(kCommits, [&] { return plain.append(pool.next(kSmallBytes), sync); }));
    plain.remove();
    PRECIS_ASSIGN(std::vector<double> committed, commit_often(stage, payload, durability));
    for (std::size_t q = 0; round > 0 && q < rows.size(); ++q) {
      const double share = kQuantiles[q].share;
      rows[q].samples.add(quantile(committed, share), quantile(written, share));
    }
  }
  for (const Row& row : rows) print(row);
  return {};
}

// ---- many small segments at a time

constexpr std::size_t kCrowd = 8;       // clients
constexpr std::size_t kCrowdPuts = 16;  // puts of each client

// Seconds from the first commit() to the end of the last, divided by the number of commits. The
// service already has all layers.
Result<double> commit_at_once(Stage& stage, const Payload& payload, Durability durability) {
  std::vector<std::vector<Put>> puts(kCrowd);
  for (std::size_t i = 0; i < kCrowd; ++i) {
    for (std::size_t p = 0; p < kCrowdPuts; ++p) {
      const auto tokens = payload.path(static_cast<std::uint32_t>(i * kCrowdPuts + p));
      PRECIS_ASSIGN(Put put, stage.client(i).begin_put(stage.model(), tokens, keep_everything()));
      for (std::uint32_t l = 0; l < kLayers; ++l) PRECIS_TRY(put.layer(l, payload.layer(l)));
      puts[i].push_back(std::move(put));
    }
  }
  std::vector<std::vector<SegmentId>> made(kCrowd);
  PRECIS_ASSIGN(const double seconds, stage.together([&](std::size_t i) -> Status {
    for (Put& put : puts[i]) {
      PRECIS_ASSIGN(const msg::SegmentInfo stored, put.commit(durability));
      made[i].push_back(stored.id);
    }
    return {};
  }));
  for (const auto& segments : made) {
    for (const SegmentId& segment : segments) {
      PRECIS_TRY(stage.client().remove_segment(segment, /*recursive=*/false).status());
    }
  }
  return seconds / (kCrowd * kCrowdPuts);
}

Row crowd_row(Durability durability) {
  return {"commit_crowd",
          {{"durability", std::string(durability_name(durability))},
           {"bytes", kSmallBytes},
           {"clients", kCrowd}},
          "s",
          written_how(durability),
          {}};
}

Status measure_crowd(const Plan& plan, Stage& stage, PlainFile& plain, Durability durability) {
  plan.began("commit of " + std::to_string(kCrowd) + " clients at " +
             std::string(durability_name(durability)));
  const Payload payload(bench_model(kLayers), kSmallBytes);
  const bool sync = durability == Durability::kFsync;
  ColdPool pool(std::size_t{256} << 20);
  Row row = crowd_row(durability);
  for (std::size_t round = 0; round <= plan.rounds; ++round) {
    PRECIS_ASSIGN(const std::vector<double> written,
                  timed(kCommits, [&] { return plain.append(pool.next(kSmallBytes), sync); }));
    plain.remove();
    PRECIS_ASSIGN(const double committed, commit_at_once(stage, payload, durability));
    if (round == 0) continue;
    row.samples.add(committed, std::accumulate(written.begin(), written.end(), 0.0) / kCommits);
  }
  print(row);
  return {};
}

// ---- one large segment after another

constexpr std::size_t kLargeBytes = std::size_t{128} << 20;
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

std::size_t sustained_segments(const Plan& plan) { return plan.sustained_bytes / kLargeBytes; }

Row sustained_row(const Plan& plan, Durability durability) {
  return {"put_sustained",
          {{"durability", std::string(durability_name(durability))},
           {"bytes", sustained_segments(plan) * kLargeBytes}},
          "GB/s",
          written_how(durability),
          {}};
}

Status measure_sustained(const Plan& plan, Stage& stage, PlainFile& plain, Durability durability) {
  const std::size_t segments = sustained_segments(plan);
  const std::size_t bytes = segments * kLargeBytes;
  plan.began("puts of " + std::to_string(bytes >> 20) + " MiB at " +
             std::string(durability_name(durability)));
  const Payload payload(bench_model(kLayers), kLargeBytes);
  const bool sync = durability == Durability::kFsync;
  const double gigabytes = static_cast<double>(bytes) * 1e-9;
  ColdPool pool(std::size_t{256} << 20);
  // One round a pass, because a round writes gigabytes.
  ::sync();  // so that neither measurement pays for earlier writes
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
  Row row = sustained_row(plan, durability);
  row.samples.add(gigabytes / seconds_since(began), written);
  for (const SegmentId& segment : made) {
    PRECIS_TRY(stage.client().remove_segment(segment, /*recursive=*/false).status());
  }
  print(row);
  return {};
}

Status measure(const Plan& plan, const std::string& transport) {
  const Folder folder(plan.dir + "/commit");
  PRECIS_ASSIGN(const auto stage,
                Stage::open({folder.path() + "/data", transport, 16 * kLargeBytes, kCrowd},
                            bench_model(kLayers)));
  PlainFile plain(folder.path() + "/plain");
  for (const Durability durability : kDurabilities) {
    PRECIS_TRY(measure_latency(plan, *stage, plain, durability));
    PRECIS_TRY(measure_crowd(plan, *stage, plain, durability));
  }
  for (const Durability durability : kSustained) {
    PRECIS_TRY(measure_sustained(plan, *stage, plain, durability));
  }
  return {};
}

}  // namespace

Jobs commit(const Plan& plan, const std::string& transport) {
  std::vector<Row> rows;
  for (const Durability durability : kDurabilities) {
    for (const Quantile& quantile : kQuantiles) rows.push_back(latency_row(durability, quantile));
    rows.push_back(crowd_row(durability));
  }
  for (const Durability durability : kSustained) rows.push_back(sustained_row(plan, durability));
  return {{rows, [&plan, transport] { return measure(plan, transport); }}};
}

}  // namespace precis::bench

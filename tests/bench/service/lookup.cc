#include <atomic>
#include <optional>
#include <thread>

#include "tests/bench/row.h"
#include "tests/bench/service/payload.h"
#include "tests/bench/service/plan.h"
#include "tests/bench/service/raw_ping_pong.h"
#include "tests/bench/service/records.h"
#include "tests/bench/service/stage.h"
#include "tests/bench/service/timed.h"

namespace precis::bench {
namespace {

constexpr std::size_t kTransferBytes = std::size_t{64} << 20;
constexpr std::size_t kAskBytes = kLongPathTokens * sizeof(TokenId);
constexpr TokenId kUnknownToken = 1u << 30;  // larger than the first token of any stored path
constexpr std::size_t kAnswerBytes = 4096;   // approximate: a plan and a chain of eight segments

// Gets the same prefix repeatedly until stop().
class Transfers {
 public:
  Transfers(Client& client, LookupMatch match)
      : thread_([this, &client, match = std::move(match)] {
          while (!stopping_ && status_.ok()) status_ = get(client, match).status();
        }) {}
  Status stop() {
    stopping_ = true;
    thread_.join();
    return status_;
  }

 private:
  std::atomic<bool> stopping_{false};
  Status status_;  // written by the thread until it is joined
  std::jthread thread_;
};

struct Quantile {
  const char* name;
  double share;
};
constexpr Quantile kQuantiles[] = {{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}};

struct Case {
  const char* transfers;  // "running" or "none"
  const char* path;       // "known" or "new": see plan.h
};
constexpr Case kCases[] = {
    {"none", "new"}, {"none", "known"}, {"running", "new"}, {"running", "known"}};

Row row_of(const Plan& plan, const std::string& transport, const Case& of,
           const Quantile& quantile) {
  return {"lookup",
          {{"transport", transport},
           {"transfers", of.transfers},
           {"path", of.path},
           {"tokens", kLongPathTokens},
           {"head_records", plan.head_records},
           {"segments", record_segments(plan)},
           {"quantile", quantile.name}},
          "s",
          "ping-pong of its bytes, blocking",
          {}};
}

// `unknown`: first token of the last new path.
Status measure(const Plan& plan, const std::string& transport, Stage& stage, RawPingPong& raw,
               const Case& of, TokenId& unknown) {
  auto path = long_path();
  const bool is_new = of.path == std::string("new");
  std::vector<Row> rows;
  for (const Quantile& each : kQuantiles) rows.push_back(row_of(plan, transport, of, each));
  for (std::size_t round = 0; round <= plan.rounds; ++round) {
    PRECIS_ASSIGN(std::vector<double> raws,
                  timed(plan.samples, [&] { return raw.exchange(kAskBytes, kAnswerBytes); }));
    PRECIS_ASSIGN(std::vector<double> ours, timed(plan.samples, [&]() -> Status {
                    if (is_new) path.front() = ++unknown;
                    PRECIS_ASSIGN(const LookupMatch found,
                                  stage.client().lookup(stage.model(), path));
                    return found.matched_tokens == (is_new ? 0 : kLongPathTokens)
                               ? Status()
                               : Status::internal("what is stored of the long path is not found");
                  }));
    for (std::size_t q = 0; round > 0 && q < rows.size(); ++q) {
      const double share = kQuantiles[q].share;
      rows[q].samples.add(quantile(ours, share), quantile(raws, share));
    }
  }
  for (const Row& row : rows) print(row);
  return {};
}

Status measure_all(const Plan& plan, const std::string& transport) {
  PRECIS_ASSIGN(const auto raw, RawPingPong::open(kAskBytes));
  const Folder folder(plan.dir + "/lookup");
  PRECIS_TRY(copy_records(plan, transport, folder.path() + "/data"));
  StageOptions options{folder.path() + "/data", transport};
  options.clients = 2;
  PRECIS_ASSIGN(const auto stage, Stage::open(options, records_model()));
  PRECIS_ASSIGN(const Model moved, stage->client(1).register_model(bench_model(8)));
  const Payload payload(moved.spec, kTransferBytes);
  PRECIS_TRY(put(stage->client(1), moved, payload, 0).status());
  PRECIS_ASSIGN(const LookupMatch match, find_hot(stage->client(1), moved, payload, 0));

  TokenId unknown = kUnknownToken;
  for (const Case& of : kCases) {
    const bool alone = of.transfers == std::string("none");
    plan.began("lookup of a " + std::string(of.path) + " path over " + transport +
               (alone ? " alone" : " while transfers run"));
    std::optional<Transfers> transfers;
    if (!alone) transfers.emplace(stage->client(1), match);
    const Status measured = measure(plan, transport, *stage, *raw, of, unknown);
    if (transfers) PRECIS_TRY(transfers->stop());
    PRECIS_TRY(measured);
  }
  return {};
}

}  // namespace

Jobs lookup(const Plan& plan, const std::string& transport) {
  std::vector<Row> rows;
  for (const Case& of : kCases) {
    for (const Quantile& each : kQuantiles) rows.push_back(row_of(plan, transport, of, each));
  }
  return {{rows, [&plan, transport] { return measure_all(plan, transport); }}};
}

}  // namespace precis::bench

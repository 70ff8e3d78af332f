#include <atomic>
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
constexpr std::size_t kAnswerBytes = 4096;  // about: a plan and a chain of eight

// Gets the same prefix again and again while it lives.
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
  Status status_;  // the thread's until it is joined
  std::jthread thread_;
};

struct Quantile {
  const char* name;
  double share;
};
constexpr Quantile kQuantiles[] = {{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}};

}  // namespace

Status measure_lookup(const Plan& plan, const std::string& transport) {
  PRECIS_ASSIGN(const auto raw, RawPingPong::open(kAskBytes));
  const Folder folder(plan.dir + "/lookup");
  PRECIS_TRY(copy_records(plan, folder.path() + "/data"));
  StageOptions options{folder.path() + "/data", transport};
  options.clients = 2;
  PRECIS_ASSIGN(const auto stage, Stage::open(options, records_model()));
  PRECIS_ASSIGN(const Model moved, stage->client(1).register_model(bench_model(8)));
  const Payload payload(moved.spec, kTransferBytes);
  PRECIS_TRY(put(stage->client(1), moved, payload, 0).status());
  PRECIS_ASSIGN(LookupMatch match, find_hot(stage->client(1), moved, payload, 0));

  plan.began("lookup over " + transport + " while transfers run");
  const auto path = long_path();
  Samples samples[std::size(kQuantiles)];
  Transfers transfers(stage->client(1), std::move(match));
  for (std::size_t round = 0; round <= plan.rounds; ++round) {
    PRECIS_ASSIGN(std::vector<double> raws,
                  timed(plan.samples, [&] { return raw->exchange(kAskBytes, kAnswerBytes); }));
    PRECIS_ASSIGN(std::vector<double> ours, timed(plan.samples, [&]() -> Status {
                    PRECIS_ASSIGN(const LookupMatch found,
                                  stage->client().lookup(stage->model(), path));
                    return found.matched_tokens == kLongPathTokens
                               ? Status()
                               : Status::internal("the long path is not found whole");
                  }));
    for (std::size_t q = 0; round > 0 && q < std::size(kQuantiles); ++q) {
      samples[q].add(quantile(ours, kQuantiles[q].share), quantile(raws, kQuantiles[q].share));
    }
  }
  PRECIS_TRY(transfers.stop());
  for (std::size_t q = 0; q < std::size(kQuantiles); ++q) {
    print({"lookup",
           {{"transport", transport},
            {"tokens", kLongPathTokens},
            {"head_records", plan.head_records},
            {"quantile", kQuantiles[q].name}},
           "s",
           "ping-pong of its bytes, blocking",
           samples[q]});
  }
  return {};
}

}  // namespace precis::bench

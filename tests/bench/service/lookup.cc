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
constexpr TokenId kUnknownToken = 1u << 30;  // no stored path begins with it, nor with a later one
constexpr std::size_t kAnswerBytes = 4096;   // about: a plan and a chain of eight

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

// Beside `transfers`, of a path that is stored and asked for again and again ("known"), or of one
// that begins like no other ("new") and must be hashed whole.
Status measure(const Plan& plan, const std::string& transport, Stage& stage, RawPingPong& raw,
               const char* transfers, const char* which) {
  auto path = long_path();
  const bool is_new = which == std::string("new");
  TokenId unknown = kUnknownToken;
  Samples samples[std::size(kQuantiles)];
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
    for (std::size_t q = 0; round > 0 && q < std::size(kQuantiles); ++q) {
      samples[q].add(quantile(ours, kQuantiles[q].share), quantile(raws, kQuantiles[q].share));
    }
  }
  for (std::size_t q = 0; q < std::size(kQuantiles); ++q) {
    print({"lookup",
           {{"transport", transport},
            {"transfers", transfers},
            {"path", which},
            {"tokens", kLongPathTokens},
            {"head_records", plan.head_records},
            {"quantile", kQuantiles[q].name}},
           "s",
           "ping-pong of its bytes, blocking",
           samples[q]});
  }
  return {};
}

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

  plan.began("lookup over " + transport + " alone");
  PRECIS_TRY(measure(plan, transport, *stage, *raw, "none", "new"));
  PRECIS_TRY(measure(plan, transport, *stage, *raw, "none", "known"));
  plan.began("lookup over " + transport + " while transfers run");
  Transfers transfers(stage->client(1), std::move(match));
  const Status measured = measure(plan, transport, *stage, *raw, "running", "known");
  PRECIS_TRY(transfers.stop());
  return measured;
}

}  // namespace precis::bench

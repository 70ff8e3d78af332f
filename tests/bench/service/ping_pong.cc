#include <thread>

#include "tests/bench/row.h"
#include "tests/bench/service/on_core.h"
#include "tests/bench/service/payload.h"
#include "tests/bench/service/plan.h"
#include "tests/bench/service/raw_ping_pong.h"
#include "tests/bench/service/stage.h"
#include "tests/bench/service/timed.h"

namespace precis::bench {
namespace {

constexpr std::size_t kBytes = 64u << 10;
constexpr std::uint32_t kLayers = 1;
// Of the other three messages that two requests are, about.
constexpr std::size_t kMessageBytes = 512;

// precisd, and the raw ping-pong's other process, on core 0; clients on `client_core`.
Status measure(const Plan& plan, const std::string& transport, const char* placement,
               unsigned client_core) {
  const OnCore placed(client_core);
  PRECIS_ASSIGN(const auto raw, RawPingPong::open(kBytes, 0));
  const Folder folder(plan.dir + "/ping_pong");
  StageOptions options{folder.path(), transport};
  options.core = 0;
  PRECIS_ASSIGN(const auto stage, Stage::open(options, bench_model(kLayers)));
  const Payload payload(bench_model(kLayers), kBytes);
  PRECIS_TRY(put(stage->client(), stage->model(), payload, 0).status());
  const auto path = payload.path(0);

  Samples samples;
  for (std::size_t round = 0; round <= plan.rounds; ++round) {
    PRECIS_ASSIGN(std::vector<double> raws, timed(plan.samples, [&]() -> Status {
                    PRECIS_TRY(raw->exchange(kMessageBytes, kMessageBytes));
                    return raw->exchange(kMessageBytes, kBytes);
                  }));
    PRECIS_ASSIGN(std::vector<double> ours, timed(plan.samples, [&]() -> Status {
                    PRECIS_ASSIGN(const LookupMatch match,
                                  stage->client().lookup(stage->model(), path));
                    return get(stage->client(), match).status();
                  }));
    if (round > 0) samples.add(quantile(ours, 0.5), quantile(raws, 0.5));
  }
  print(
      {"lookup_get",
       {{"transport", transport}, {"placement", placement}, {"bytes", kBytes}, {"quantile", "p50"}},
       "s",
       "two ping-pongs, blocking",
       samples});
  return {};
}

}  // namespace

Status measure_ping_pong(const Plan& plan, const std::string& transport) {
  plan.began("lookup and get of 64 KiB over " + transport);
  PRECIS_TRY(measure(plan, transport, "one core", 0));
  if (std::thread::hardware_concurrency() < 2) return Status::unsupported("it has but one core");
  return measure(plan, transport, "two cores", 1);
}

}  // namespace precis::bench

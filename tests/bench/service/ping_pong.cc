#include <thread>
#include <utility>

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
// Approximate size of each of the other three messages of the two requests.
constexpr std::size_t kMessageBytes = 512;

Row row_of(const std::string& transport, const char* placement) {
  return {
      "lookup_get",
      {{"transport", transport}, {"placement", placement}, {"bytes", kBytes}, {"quantile", "p50"}},
      "s",
      "two ping-pongs, blocking",
      {}};
}

// precisd and the other process of the raw ping-pong run on core 0, clients on `client_core`.
Status measure(const Plan& plan, const std::string& transport, const char* placement,
               unsigned client_core) {
  if (client_core >= std::thread::hardware_concurrency()) {
    return Status::unsupported("this machine has but one core");
  }
  plan.began("lookup and get of 64 KiB over " + transport + ", " + placement);
  const OnCore placed(client_core);
  PRECIS_ASSIGN(const auto raw, RawPingPong::open(kBytes, 0));
  const Folder folder(plan.dir + "/ping_pong");
  StageOptions options{folder.path(), transport};
  options.core = 0;
  PRECIS_ASSIGN(const auto stage, Stage::open(options, bench_model(kLayers)));
  const Payload payload(bench_model(kLayers), kBytes);
  PRECIS_TRY(put(stage->client(), stage->model(), payload, 0).status());
  const auto path = payload.path(0);

  Row row = row_of(transport, placement);
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
    if (round > 0) row.samples.add(quantile(ours, 0.5), quantile(raws, 0.5));
  }
  print(row);
  return {};
}

}  // namespace

Jobs ping_pong(const Plan& plan, const std::string& transport) {
  Jobs jobs;
  for (const auto& [placement, core] : {std::pair{"one core", 0u}, {"two cores", 1u}}) {
    jobs.push_back({{row_of(transport, placement)}, [&plan, transport, placement, core] {
                      return measure(plan, transport, placement, core);
                    }});
  }
  return jobs;
}

}  // namespace precis::bench

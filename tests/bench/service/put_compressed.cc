#include <algorithm>

#include "tests/bench/row.h"
#include "tests/bench/service/payload.h"
#include "tests/bench/service/plan.h"
#include "tests/bench/service/stage.h"
#include "tests/bench/service/stages_alone.h"
#include "tests/bench/service/transport_ceiling.h"

namespace precis::bench {
namespace {

constexpr std::uint32_t kLayers = 8;
constexpr std::size_t kBytes = std::size_t{256} << 20;  // 8K tokens
constexpr std::uint32_t kKeepPpm = 200'000;

Row row_of(const std::string& transport, const std::string& recipe) {
  return {"put_compressed",
          {{"transport", transport}, {"bytes", kBytes}, {"recipe", recipe + " at 20%"}},
          "GB/s",
          "",
          {}};
}

Status measure(const Plan& plan, const std::string& transport, const std::string& recipe) {
  plan.began("put with " + recipe + " over " + transport);
  const Payload payload(bench_model(kLayers), kBytes);
  const Folder folder(plan.dir + "/put_compressed");
  PRECIS_ASSIGN(const auto stage,
                Stage::open({folder.path(), transport, 3 * kBytes}, bench_model(kLayers)));
  PRECIS_ASSIGN(TransportCeiling ceiling, TransportCeiling::open(transport, payload.bytes(), 1));
  PRECIS_ASSIGN(const Payload pushed, payload.copy_for(stage->client()));
  PutOptions options;
  options.recipe = recipe;
  options.keep = Budget::ratio_ppm(kKeepPpm);
  PRECIS_ASSIGN(const auto stages, StagesAlone::make(bench_model(kLayers), pushed, options));
  const double gigabytes = static_cast<double>(payload.bytes()) * 1e-9;
  Row row = row_of(transport, recipe);
  row.ceiling_name = "the slower of " + ceiling.name() + ", and the stages alone";
  for (std::size_t round = 0; round <= plan.rounds; ++round) {
    PRECIS_ASSIGN(const double moved, ceiling.rate(1));
    PRECIS_ASSIGN(const double compressed, stages->rate());
    PRECIS_ASSIGN(const PutSeconds seconds,
                  put(stage->client(), stage->model(), pushed, 0, options));
    if (round == plan.rounds) {
      PRECIS_ASSIGN(const LookupMatch match, find_hot(stage->client(), stage->model(), payload, 0));
      PRECIS_TRY(check_kept(stage->client(), match, payload));
    }
    PRECIS_TRY(stage->client().remove_segment(seconds.segment, /*recursive=*/false).status());
    if (round > 0) row.samples.add(gigabytes / seconds.whole, std::min(moved, compressed));
  }
  print(row);
  return {};
}

}  // namespace

Jobs put_compressed(const Plan& plan, const std::string& transport) {
  Jobs jobs;
  for (const char* recipe : {"lagkv", "keydiff"}) {
    jobs.push_back({{row_of(transport, recipe)},
                    [&plan, transport, recipe] { return measure(plan, transport, recipe); }});
  }
  return jobs;
}

}  // namespace precis::bench

#include <algorithm>

#include "tests/bench/row.h"
#include "tests/bench/service/payload.h"
#include "tests/bench/service/plan.h"
#include "tests/bench/service/stage.h"
#include "tests/bench/service/transport_ceiling.h"

namespace precis::bench {
namespace {

constexpr std::uint32_t kLayers = 32;
constexpr std::uint32_t kPaths = 4;
constexpr std::size_t kBytes = std::size_t{64} << 20;

Row row_of(const std::string& transport) {
  return {"first_layer", {{"transport", transport}, {"bytes", kBytes}}, "s", "", {}};
}

// One get gives both figures: the time until its first layer is usable, and the average time of a
// layer.
Status measure(const Plan& plan, const std::string& transport) {
  plan.began("first layer over " + transport);
  const Folder folder(plan.dir + "/first_layer");
  PRECIS_ASSIGN(const auto stage, Stage::open({folder.path(), transport}, bench_model(kLayers)));
  const Payload payload(bench_model(kLayers), kBytes);
  PRECIS_ASSIGN(TransportCeiling ceiling, TransportCeiling::open(transport, payload.bytes(), 1));
  for (std::uint32_t path = 0; path < kPaths; ++path) {
    PRECIS_TRY(put(stage->client(), stage->model(), payload, path).status());
  }
  Row row = row_of(transport);
  row.ceiling_name = "one of 32 layers at the faster rate of the get and of " + ceiling.name();
  for (std::size_t round = 0; round <= plan.rounds; ++round) {
    PRECIS_ASSIGN(const double moved, ceiling.rate(kPaths));
    const double at_ceiling = static_cast<double>(payload.bytes()) * 1e-9 / moved / kLayers;
    std::vector<double> firsts, layers;
    for (std::uint32_t path = 0; path < kPaths; ++path) {
      PRECIS_ASSIGN(const LookupMatch match,
                    find_hot(stage->client(), stage->model(), payload, path));
      const auto began = std::chrono::steady_clock::now();
      PRECIS_ASSIGN(const Prefix prefix, stage->client().get(match));
      PRECIS_TRY(prefix.wait_layer(0));
      firsts.push_back(seconds_since(began));
      PRECIS_TRY(prefix.wait());
      layers.push_back(seconds_since(began) / kLayers);
    }
    // The smaller of the two: a slow get must not allow its first layer more time.
    if (round > 0) row.samples.add(median(firsts), std::min(median(layers), at_ceiling));
  }
  print(row);
  return {};
}

}  // namespace

Jobs first_layer(const Plan& plan, const std::string& transport) {
  return {{{row_of(transport)}, [&plan, transport] { return measure(plan, transport); }}};
}

}  // namespace precis::bench

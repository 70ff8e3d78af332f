#include <chrono>
#include <string>

#include "tests/bench/row.h"
#include "tests/bench/service/payload.h"
#include "tests/bench/service/plan.h"
#include "tests/bench/service/stage.h"

namespace precis::bench {
namespace {

constexpr std::uint32_t kLayers = 8;
constexpr std::uint32_t kRaw = 0, kCoded = 1;  // numbers of paths
constexpr std::size_t kLargest = std::size_t{256} << 20;

Row row_of(const std::string& transport, std::size_t bytes, const std::string& encoding) {
  return {"get_coded",
          {{"transport", transport}, {"bytes", bytes}, {"encoding", encoding}},
          "GB/s of rows",
          "the same entries in bf16",
          {}};
}

// Each round gets the same entries from memory twice: as they were pushed, and coded.
Status measure(const Plan& plan, const std::string& transport, std::size_t bytes,
               const std::string& encoding) {
  plan.began("get of " + encoding + " rows over " + transport);
  const ModelSpec model = bench_model(kLayers);
  const Payload payload(model, bytes);
  const Folder folder(plan.dir + "/coded");
  const std::uint64_t memory = 4 * payload.bytes() + (std::uint64_t{512} << 20);
  PRECIS_ASSIGN(const auto stage, Stage::open({folder.path() + "/data", transport, memory}, model));
  PutOptions coded = keep_everything();
  coded.recipe += "(encoding=" + encoding + ")";
  Client& client = stage->client();
  PRECIS_TRY(put(client, stage->model(), payload, kRaw).status());
  PRECIS_TRY(put(client, stage->model(), payload, kCoded, coded).status());
  const auto rate = [&](std::uint32_t path) -> Result<double> {
    PRECIS_ASSIGN(const LookupMatch match, find_hot(client, stage->model(), payload, path));
    const auto began = std::chrono::steady_clock::now();
    PRECIS_TRY(get(client, match).status());
    return static_cast<double>(payload.bytes()) * 1e-9 / seconds_since(began);
  };
  Row row = row_of(transport, bytes, encoding);
  for (std::uint32_t round = 0; round <= plan.rounds; ++round) {
    PRECIS_ASSIGN(const double raw, rate(kRaw));
    PRECIS_ASSIGN(const double found, rate(kCoded));
    if (round > 0) row.samples.add(found, raw);  // the first one maps the memory
  }
  print(row);
  return {};
}

}  // namespace

Jobs coded(const Plan& plan, const std::string& transport) {
  Jobs jobs;
  for (const std::size_t bytes : plan.sizes) {
    if (bytes > kLargest) continue;
    for (const char* encoding : {"int8", "k6v4", "int4"}) {
      jobs.push_back({{row_of(transport, bytes, encoding)}, [&plan, transport, bytes, encoding] {
                        return measure(plan, transport, bytes, encoding);
                      }});
    }
  }
  return jobs;
}

}  // namespace precis::bench

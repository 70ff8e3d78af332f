#include <time.h>

#include <cstring>

#include "tests/bench/row.h"
#include "tests/bench/service/payload.h"
#include "tests/bench/service/plan.h"
#include "tests/bench/service/stage.h"
#include "tests/bench/transport_ceilings.h"

namespace precis::bench {
namespace {

constexpr std::uint32_t kLayers = 8;
constexpr std::uint32_t kPaths = 4;
constexpr std::size_t kBytes = std::size_t{64} << 20;

double thread_cpu_seconds() {
  timespec time{};
  PRECIS_CHECK(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

Row row_of(const std::string& transport) {
  return {"server_cpu",
          {{"transport", transport}, {"bytes", kBytes}},
          "ms/GB",
          "memcpy, its own CPU",
          {}};
}

Status measure(const Plan& plan, const std::string& transport) {
  plan.began("CPU of precisd per GB got over " + transport);
  const Folder folder(plan.dir + "/server_cpu");
  PRECIS_ASSIGN(const auto stage, Stage::open({folder.path(), transport}, bench_model(kLayers)));
  const Payload payload(bench_model(kLayers), kBytes);
  for (std::uint32_t path = 0; path < kPaths; ++path) {
    PRECIS_TRY(put(stage->client(), stage->model(), payload, path).status());
  }
  ColdPool from(kPaths * kBytes), to(kPaths * kBytes);
  Row row = row_of(transport);
  for (std::size_t round = 0; round <= plan.rounds; ++round) {
    const double copy_began = thread_cpu_seconds();
    for (std::uint32_t path = 0; path < kPaths; ++path) {
      std::memcpy(to.next(kBytes).data(), from.next(kBytes).data(), kBytes);
    }
    const double copied = thread_cpu_seconds() - copy_began;

    std::vector<LookupMatch> matches;
    for (std::uint32_t path = 0; path < kPaths; ++path) {
      PRECIS_ASSIGN(LookupMatch match, find_hot(stage->client(), stage->model(), payload, path));
      matches.push_back(std::move(match));
    }
    std::uint64_t bytes = 0;
    const double began = stage->cpu_seconds();
    for (const LookupMatch& match : matches) {
      PRECIS_ASSIGN(const std::uint64_t got, get(stage->client(), match));
      bytes += got;
    }
    const double served = stage->cpu_seconds() - began;
    if (round == 0) continue;
    row.samples.add(served * 1e12 / static_cast<double>(bytes),
                    copied * 1e12 / static_cast<double>(kPaths * kBytes));
  }
  print(row);
  return {};
}

}  // namespace

Jobs server_cpu(const Plan& plan, const std::string& transport) {
  return {{{row_of(transport)}, [&plan, transport] { return measure(plan, transport); }}};
}

}  // namespace precis::bench

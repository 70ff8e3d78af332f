#include <algorithm>
#include <cstdlib>

#include "tests/bench/plain_file.h"
#include "tests/bench/row.h"
#include "tests/bench/service/drop_cached.h"
#include "tests/bench/service/payload.h"
#include "tests/bench/service/plan.h"
#include "tests/bench/service/stage.h"
#include "tests/bench/service/transport_ceiling.h"

namespace precis::bench {
namespace {

constexpr std::uint32_t kLayers = 8;
constexpr std::size_t kRoundBytes = std::size_t{64} << 20;  // minimum read in a round
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;   // largest read of the plain file
constexpr std::size_t kAtOnce = 8;                          // number of concurrent reads
constexpr std::size_t kBlockBytes = 4096;

// Measures one size. Each round reads parts of the store and of the plain file that no earlier
// round has read, because the host may cache data that this machine does not.
class Cold {
 public:
  Cold(const Plan& plan, const std::string& transport, std::size_t bytes)
      : payload_(bench_model(kLayers), bytes),
        times_(std::max<std::size_t>(kRoundBytes / bytes, 1)),
        rounds_(plan.rounds + 1),
        folder_(plan.dir + "/cold"),
        options_{folder_.path() + "/data", transport, 3 * times_ * bytes + (512u << 20)},
        plain_(folder_.path() + "/plain"),
        places_(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, kAtOnce * kPieceBytes)),
                &std::free) {}

  std::size_t round_bytes() const { return times_ * payload_.bytes(); }

  Status prepare() {
    {
      ColdPool pool(std::size_t{256} << 20);
      const std::size_t pieces = round_bytes() / piece_bytes();
      PRECIS_TRY(plain_.write(pool, 2 * rounds_, pieces, piece_bytes(), false));
    }
    PRECIS_ASSIGN(stage_, Stage::open(options_, bench_model(kLayers)));
    for (std::uint32_t path = 0; path < rounds_ * times_; ++path) {
      PRECIS_TRY(put(stage_->client(), stage_->model(), payload_, path, keep_everything(),
                     Durability::kWal)
                     .status());
    }
    PRECIS_TRY(stage_->stop());
    drop_cached(folder_.path());
    PRECIS_ASSIGN(stage_, Stage::open(options_, bench_model(kLayers)));
    return {};
  }

  // The faster of one read at a time and several at a time: which one is faster depends on the
  // disk.
  Result<double> disk_rate(std::size_t round) {
    PRECIS_ASSIGN(const double one, disk_rate(1, 2 * round));
    PRECIS_ASSIGN(const double several, disk_rate(kAtOnce, 2 * round + 1));
    return std::max(one, several);
  }

  // GB/s of getting the round's segments. Either all or none of them must be in memory.
  Result<double> get_rate(std::size_t round, bool in_memory) {
    std::vector<LookupMatch> matches;
    for (std::size_t t = 0; t < times_; ++t) {
      PRECIS_ASSIGN(LookupMatch match, find(stage_->client(), stage_->model(), payload_,
                                            static_cast<std::uint32_t>(round * times_ + t)));
      if (match.links.back().segment.in_memory != in_memory) {
        return Status::internal(in_memory ? "a segment that was read is not in memory"
                                          : "a segment that nobody read is in memory");
      }
      matches.push_back(std::move(match));
    }
    double bytes = 0;
    const auto began = std::chrono::steady_clock::now();
    for (const LookupMatch& match : matches) {
      PRECIS_ASSIGN(const std::uint64_t got, get(stage_->client(), match));
      bytes += static_cast<double>(got);
    }
    return bytes * 1e-9 / seconds_since(began);
  }

 private:
  std::size_t piece_bytes() const { return std::min(kPieceBytes, payload_.bytes()); }

  Result<double> disk_rate(std::size_t at_once, std::size_t group) {
    std::vector<MutableBytes> into;
    for (std::size_t i = 0; i < at_once; ++i) {
      into.push_back(MutableBytes(places_.get() + i * piece_bytes(), piece_bytes()));
    }
    const auto began = std::chrono::steady_clock::now();
    PRECIS_TRY(plain_.read_direct(into, group * round_bytes(), round_bytes()));
    return static_cast<double>(round_bytes()) * 1e-9 / seconds_since(began);
  }

  const Payload payload_;
  const std::size_t times_, rounds_;
  const Folder folder_;
  const StageOptions options_;
  PlainFile plain_;
  const std::unique_ptr<std::byte, decltype(&std::free)> places_;  // read buffers
  std::unique_ptr<Stage> stage_;
};

Row row_of(const char* name, const std::string& transport, std::size_t bytes) {
  const std::uint64_t clients = 1;
  return {name,
          {{"transport", transport}, {"bytes", bytes}, {"clients", clients}},
          "GB/s",
          "direct read, 1 or " + std::to_string(kAtOnce) + " at a time",
          {}};
}

Status measure(const Plan& plan, const std::string& transport, std::size_t bytes) {
  plan.began("cold get of " + std::to_string(bytes >> 20) + " MiB");
  Cold subject(plan, transport, bytes);
  PRECIS_TRY(subject.prepare());
  PRECIS_ASSIGN(TransportCeiling ceiling,
                TransportCeiling::open(transport, subject.round_bytes(), 1));
  Row cold = row_of("get_cold", transport, bytes), again = row_of("get_again", transport, bytes);
  again.ceiling_name = ceiling.name();
  for (std::size_t round = 0; round <= plan.rounds; ++round) {
    PRECIS_ASSIGN(const double disk, subject.disk_rate(round));
    PRECIS_ASSIGN(const double first, subject.get_rate(round, /*in_memory=*/false));
    PRECIS_ASSIGN(const double moved, ceiling.rate(1));
    PRECIS_ASSIGN(const double second, subject.get_rate(round, /*in_memory=*/true));
    if (round == 0) continue;
    cold.samples.add(first, disk);
    again.samples.add(second, moved);
  }
  print(cold);
  print(again);
  return {};
}

}  // namespace

Jobs cold(const Plan& plan, const std::string& transport) {
  Jobs jobs;
  for (const std::size_t bytes : plan.sizes) {
    jobs.push_back({{row_of("get_cold", transport, bytes), row_of("get_again", transport, bytes)},
                    [&plan, transport, bytes] { return measure(plan, transport, bytes); }});
  }
  return jobs;
}

}  // namespace precis::bench

#include "cachesvc/pipeline/restore_rate.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

namespace precis {
namespace {

constexpr std::size_t kProbeBytes = 8u << 20;  // beyond the private caches of one core
constexpr double kProbeSecondsMin = 1e-6;      // a clock may be coarse
constexpr double kNewShare = 0.2;              // the weight of a new measurement in the average
constexpr std::uint64_t kWorthMeasuring = 64u << 10;  // latency dominates smaller gets

}  // namespace

RestoreRate::RestoreRate(const Clock& clock) {
  std::vector<char> from(kProbeBytes, 1), to(kProbeBytes, 2);
  const auto began = clock.now();
  std::memcpy(to.data(), from.data(), kProbeBytes);
  const std::chrono::duration<double> took = clock.now() - began;
  const double rate = to[kProbeBytes / 2] * static_cast<double>(kProbeBytes) /
                      std::max(took.count(), kProbeSecondsMin);
  served_.bytes_per_second = rate;
  cold_.bytes_per_second = rate;
  shared_.bytes_per_second = rate;
}

void RestoreRate::update(Rate& rate, std::uint64_t bytes, double seconds) {
  if (bytes < kWorthMeasuring || seconds <= 0) return;
  const double now = static_cast<double>(bytes) / seconds;
  // The first measurement replaces the estimate entirely.
  const double share = rate.measured.exchange(true) ? kNewShare : 1.0;
  rate.bytes_per_second = (1 - share) * rate.bytes_per_second + share * now;
}

double RestoreRate::predict_seconds(std::uint64_t bytes, std::uint64_t cold_bytes,
                                    std::uint64_t shared_bytes) const {
  const Rate& shared = knows_shared() ? shared_ : cold_;
  return static_cast<double>(bytes) / served_.bytes_per_second +
         static_cast<double>(cold_bytes - shared_bytes) / cold_.bytes_per_second +
         static_cast<double>(shared_bytes) / shared.bytes_per_second;
}

}  // namespace precis

#include "cachesvc/server/hot_segments.h"

namespace precis {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000, kStaysHot = 10 * kSecond;
// Once other nodes serve most of a prefix, it stays hot here above 1/kRestShare of the rate.
constexpr std::uint64_t kRestShare = 8;

}  // namespace

void HotSegments::served(const SegmentId& tip, std::uint64_t bytes) {
  if (bytes_per_s_ == 0) return;
  const std::uint64_t now_ns = clock_.monotonic_ns();
  if (now_ns - forgot_ns_ > kStaysHot) forget_cold(now_ns);
  Rate& rate = rates_[tip];
  if (now_ns - rate.since_ns > kSecond) {
    rate.since_ns = now_ns;
    rate.bytes = 0;
  }
  rate.bytes += bytes;
  const bool was_hot = now_ns < rate.hot_until_ns;
  if (rate.bytes > (was_hot ? bytes_per_s_ / kRestShare : bytes_per_s_)) {
    rate.hot_until_ns = now_ns + kStaysHot;
  }
}

bool HotSegments::is_hot(const SegmentId& tip) const {
  const auto rate = rates_.find(tip);
  return rate != rates_.end() && clock_.monotonic_ns() < rate->second.hot_until_ns;
}

void HotSegments::forget_cold(std::uint64_t now_ns) {
  forgot_ns_ = now_ns;
  std::erase_if(rates_, [&](const auto& each) {
    const Rate& rate = each.second;
    return now_ns > rate.hot_until_ns && now_ns - rate.since_ns > kSecond;
  });
}

}  // namespace precis

#include "cachesvc/server/request_rates.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace precis {

void RequestRates::set_tenants(const std::vector<TenantConfig>& tenants) {
  const auto before = std::exchange(buckets_, {});
  for (const TenantConfig& tenant : tenants) {
    const std::uint32_t rate = tenant.max_requests_per_s;
    if (rate == 0) continue;
    const auto was = before.find(tenant.name);
    const bool stays = was != before.end() && was->second.per_second == rate;
    buckets_.emplace(tenant.name,
                     stays ? was->second : Bucket{rate, static_cast<double>(rate), {}});
  }
}

Status RequestRates::take(std::string_view tenant, Clock::Time now) {
  const auto found = buckets_.find(tenant);
  if (found == buckets_.end()) return {};
  Bucket& bucket = found->second;
  const double rate = bucket.per_second;
  const double passed = std::chrono::duration<double>(now - bucket.since).count();
  bucket.held = std::min(rate, bucket.held + std::max(0.0, passed) * rate);
  bucket.since = now;
  if (bucket.held >= 1) {
    bucket.held -= 1;
    return {};
  }
  const double wait_ms = std::ceil((1 - bucket.held) / rate * 1000);
  return Status::rejected("tenant '" + found->first + "' may send " +
                              std::to_string(bucket.per_second) +
                              " requests per second (max_requests_per_s); retry later",
                          static_cast<std::uint32_t>(std::max(1.0, wait_ms)));
}

}  // namespace precis

// How many requests a tenant may send in a second (max_requests_per_s). A token bucket per tenant
// that has a limit: it holds the requests of one second, and fills steadily. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cachesvc/base/clock.h"
#include "cachesvc/base/tenant_config.h"
#include "precis/status.h"

namespace precis {

class RequestRates {
 public:
  // Replaces the limits. A tenant whose limit is as before keeps what its bucket holds; another
  // begins with a full one.
  void set_tenants(const std::vector<TenantConfig>& tenants);
  // Counts one request. kRejected, with the time until the next one, if the bucket is empty.
  Status take(std::string_view tenant, Clock::Time now);

 private:
  struct Bucket {
    std::uint32_t per_second = 1;
    double held = 1;  // requests, at `since`
    Clock::Time since{};
  };
  std::map<std::string, Bucket, std::less<>> buckets_;
};

}  // namespace precis

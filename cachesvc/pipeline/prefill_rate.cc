#include "cachesvc/pipeline/prefill_rate.h"

#include <algorithm>

namespace precis {
namespace {

constexpr double kNewest = 0.05;  // the share of the newest put in the average

}  // namespace

void PrefillRate::put_took(const std::string& tenant, const Digest& model, std::uint64_t tokens,
                           double seconds) {
  if (tokens < kTokensLeast || seconds <= 0) return;
  const double measured = std::clamp(seconds / static_cast<double>(tokens), kLeast, kMost);
  std::lock_guard lock(mutex_);
  double& known = seconds_per_token_.emplace(Key{tenant, model}, kUnknown).first->second;
  known += kNewest * (measured - known);
}

double PrefillRate::seconds_per_token(const std::string& tenant, const Digest& model) const {
  std::lock_guard lock(mutex_);
  const auto known = seconds_per_token_.find({tenant, model});
  return known == seconds_per_token_.end() ? kUnknown : known->second;
}

}  // namespace precis

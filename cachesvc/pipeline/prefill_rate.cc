#include "cachesvc/pipeline/prefill_rate.h"

namespace precis {
namespace {

constexpr double kNewest = 0.05;  // the share of the newest put in the average

}  // namespace

void PrefillRate::put_took(const Digest& model, std::uint64_t tokens, double seconds) {
  if (tokens == 0 || seconds <= 0) return;
  const double measured = seconds / static_cast<double>(tokens);
  std::lock_guard lock(mutex_);
  const auto [known, is_new] = seconds_per_token_.emplace(model, measured);
  if (!is_new) known->second += kNewest * (measured - known->second);
}

double PrefillRate::seconds_per_token(const Digest& model) const {
  std::lock_guard lock(mutex_);
  if (const auto known = seconds_per_token_.find(model); known != seconds_per_token_.end()) {
    return known->second;
  }
  if (seconds_per_token_.empty()) return kUnknown;
  double sum = 0;
  for (const auto& [other, seconds] : seconds_per_token_) sum += seconds;
  return sum / static_cast<double>(seconds_per_token_.size());
}

}  // namespace precis

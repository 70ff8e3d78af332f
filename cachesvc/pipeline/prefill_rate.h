// How long a model's prefill takes a token, measured from puts: a worker pushes each layer when it
// has computed it, so a put lasts about as long as the prefill of its tokens.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "precis/types.h"

namespace precis {

// Thread-safe.
class PrefillRate {
 public:
  // Ignores puts of few tokens. A client decides how long its put lasts, so a rate is clamped to
  // plausible values, and does not affect another tenant's.
  void put_took(const std::string& tenant, const Digest& model, std::uint64_t tokens,
                double seconds);
  // An exponential average; kUnknown for a model without puts.
  double seconds_per_token(const std::string& tenant, const Digest& model) const;

  static constexpr double kUnknown = 1e-4, kLeast = 1e-5, kMost = 1e-3;
  static constexpr std::uint64_t kTokensLeast = 64;

 private:
  using Key = std::pair<std::string, Digest>;  // bounded by the models that tenants may register
  mutable std::mutex mutex_;
  std::map<Key, double> seconds_per_token_;
};

}  // namespace precis

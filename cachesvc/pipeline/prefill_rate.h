// How long a model's prefill takes a token, measured from puts: a worker pushes each layer when it
// has computed it, so a put lasts about as long as the prefill of its tokens.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "precis/types.h"

namespace precis {

// Thread-safe.
class PrefillRate {
 public:
  void put_took(const Digest& model, std::uint64_t tokens, double seconds);
  // An exponential average. For a model without puts, the mean of the other models or kUnknown.
  double seconds_per_token(const Digest& model) const;

  static constexpr double kUnknown = 1e-4;

 private:
  mutable std::mutex mutex_;
  std::map<Digest, double> seconds_per_token_;
};

}  // namespace precis

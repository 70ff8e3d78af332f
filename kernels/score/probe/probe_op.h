// Arithmetic of kvprobe (policies/scores.md, "kvprobe").
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/common/host_device.h"
#include "kernels/score/keys/key_scores_op.h"

namespace precis::kernels {

// Two keys are never taken as more alike than this, so that the logarithm of their difference is
// finite.
inline constexpr float kDifferenceMin = 1e-6f;
// Scores are e^-80 to e^80: finite, and not zero.
inline constexpr float kLogScoreMax = 80.0f;
// The scale of distances to the segment's end, in tokens.
inline constexpr float kDistanceTokens = 512.0f;

// The coefficients of a head that belong to no channel.
struct ProbeOp {
  float log_key, log_value, difference, log_difference, distance, constant;
};

// The sums over the channels of a key k, without its RoPE, and of its value v.
struct ProbeSums {
  float along;       // k . anchor; the anchor has length 1
  float key;         // k . the key's coefficients
  float key_norm;    // ||k||^2
  float value;       // v . the value's coefficients
  float value_norm;  // ||v||^2
};

// log(1 + after / scale), where `after` tokens of the segment follow this one.
PRECIS_HOST_DEVICE PRECIS_INLINE float log_distance(std::uint32_t after) {
  return std::log(1.0f + static_cast<float>(after) / kDistanceTokens);
}

PRECIS_HOST_DEVICE PRECIS_INLINE float probe_score(const ProbeOp& op, const ProbeSums& sums,
                                                   float log_distance) {
  const float key_norm = guarded_norm(std::sqrt(sums.key_norm));
  const float value_norm = guarded_norm(std::sqrt(sums.value_norm));
  const float apart = 1.0f - sums.along / key_norm;
  const float difference = apart > kDifferenceMin ? apart : kDifferenceMin;
  const float log_score = sums.key + sums.value + op.log_key * std::log(key_norm) +
                          op.log_value * std::log(value_norm) + op.difference * difference +
                          op.log_difference * std::log(difference) + op.distance * log_distance +
                          op.constant;
  if (!(log_score > -kLogScoreMax)) return std::exp(-kLogScoreMax);  // also if it is NaN
  return std::exp(log_score < kLogScoreMax ? log_score : kLogScoreMax);
}

}  // namespace precis::kernels

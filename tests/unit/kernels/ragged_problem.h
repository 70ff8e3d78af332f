// Random attentions over ragged heads, and their results in f64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/common/element_op.h"
#include "precis/ragged_attention.h"

namespace precis::kernels::test {

struct OwnedRows {
  std::uint32_t head, count;
  std::vector<std::byte> keys, values;
};

struct RaggedProblem {
  std::uint32_t heads, group, dim;
  Dtype dtype;
  float scale;
  std::vector<float> queries;
  std::vector<OwnedRows> parts;

  std::vector<RaggedRows> rows() const {
    std::vector<RaggedRows> all;
    for (const OwnedRows& part : parts) {
      all.push_back({part.head, part.count, part.keys.data(), part.values.data()});
    }
    return all;
  }
  double element(const std::vector<std::byte>& from, std::size_t i) const {
    if (dtype == Dtype::kF32) return reinterpret_cast<const float*>(from.data())[i];
    if (dtype == Dtype::kF8E4M3) return f32_of_f8(static_cast<std::uint8_t>(from[i]));
    const auto half = reinterpret_cast<const std::uint16_t*>(from.data())[i];
    return dtype == Dtype::kBf16 ? f32_of_bf16(half) : f32_of_f16(half);
  }
  Result<std::vector<float>> attend(const RaggedAttention& attention) const {
    const auto all = rows();
    std::vector<float> out(queries.size(), -1);
    PRECIS_TRY(attention.attend({heads, group, dim, dtype, queries, scale, all}, out));
    return out;
  }
  std::vector<double> reference() const {
    std::vector<double> out(queries.size());
    for (std::size_t q = 0; q < std::size_t{heads} * group; ++q) {
      std::vector<double> logits;
      double largest = -1e300;
      for (const OwnedRows& part : parts) {
        for (std::size_t r = 0; part.head == q / group && r < part.count; ++r) {
          double sum = 0;
          for (std::size_t c = 0; c < dim; ++c) {
            sum += queries[q * dim + c] * element(part.keys, r * dim + c);
          }
          logits.push_back(sum * scale);
          largest = std::max(largest, logits.back());
        }
      }
      double total = 0;
      std::size_t at = 0;
      for (const OwnedRows& part : parts) {
        for (std::size_t r = 0; part.head == q / group && r < part.count; ++r, ++at) {
          const double weight = std::exp(logits[at] - largest);
          total += weight;
          for (std::size_t c = 0; c < dim; ++c) {
            out[q * dim + c] += weight * element(part.values, r * dim + c);
          }
        }
      }
      for (std::size_t c = 0; c < dim && total > 0; ++c) out[q * dim + c] /= total;
    }
    return out;
  }
};

inline std::vector<std::byte> random_rows(std::mt19937_64& random, std::size_t count, Dtype dtype) {
  std::normal_distribution<float> normal;
  std::vector<std::byte> bytes(count * dtype_size_bytes(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = bits_of_f32(normal(random));
    const auto half = static_cast<std::uint16_t>(bits >> 16);
    // The bits of an f16 from 1 to 2, with a random sign.
    const auto f16 = static_cast<std::uint16_t>(0x3c00u | (bits & 0x83ffu));
    if (dtype == Dtype::kF32) std::memcpy(bytes.data() + 4 * i, &bits, 4);
    if (dtype == Dtype::kBf16) std::memcpy(bytes.data() + 2 * i, &half, 2);
    if (dtype == Dtype::kF16) std::memcpy(bytes.data() + 2 * i, &f16, 2);
    // The bits of an f8 from 0.5 to 2, with a random sign.
    if (dtype == Dtype::kF8E4M3) bytes[i] = static_cast<std::byte>(0x30u | (bits & 0x8fu));
  }
  return bytes;
}

inline RaggedProblem random_problem(std::mt19937_64& random, Dtype dtype, std::uint32_t group,
                                    std::uint32_t dim) {
  RaggedProblem p{static_cast<std::uint32_t>(1 + random() % 4), group, dim, dtype, 0, {}, {}};
  p.scale = 1 / std::sqrt(static_cast<float>(dim));
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < std::size_t{p.heads} * group * dim; ++i) {
    p.queries.push_back(3 * normal(random));
  }
  for (std::uint32_t head = 0; head < p.heads; ++head) {
    for (std::size_t part = random() % 3; part <= 2; ++part) {
      const auto count = static_cast<std::uint32_t>(part == 2 ? random() % 1400 : random() % 40);
      p.parts.push_back({head, count, random_rows(random, std::size_t{count} * dim, dtype),
                         random_rows(random, std::size_t{count} * dim, dtype)});
    }
  }
  std::ranges::shuffle(p.parts, random);
  return p;
}

}  // namespace precis::kernels::test

#include "tests/bench/kernels/layers.h"

#include <algorithm>
#include <cmath>

#include "precis/profile.h"

namespace precis::bench {
namespace {

// xorshift64*, one element a step: filling gigabytes must not take longer than measuring.
class Bf16Source {
 public:
  explicit Bf16Source(std::uint64_t seed) : state_(seed) {}
  // Both signs, magnitudes from 1/8 to 2: no subnormals, no overflow in any sum of squares.
  void fill(std::span<std::uint16_t> out) {
    for (std::uint16_t& x : out) {
      state_ ^= state_ >> 12;
      state_ ^= state_ << 25;
      state_ ^= state_ >> 27;
      const std::uint64_t bits = state_ * 0x2545f4914f6cdd1du >> 32;
      const auto exponent = static_cast<std::uint16_t>(124 + (bits >> 8 & 3));
      x = static_cast<std::uint16_t>((bits & 0x807fu) | exponent << 7);
    }
  }

 private:
  std::uint64_t state_;
};

}  // namespace

const std::vector<ModelShape>& model_shapes() {
  static const std::vector<ModelShape> shapes = {
      {"llama-3.1-8b", 32, 32, 8, 128, 4096, 500000.0},
      {"smollm2-135m", 30, 9, 3, 64, 576, 100000.0},
      {"one-head-group", 1, 4, 1, 128, 512, 500000.0},
  };
  return shapes;
}

Layers::Layers(const ModelShape& shape, std::uint32_t num_tokens, std::uint32_t window,
               std::size_t pool_bytes)
    : shape_(shape),
      num_tokens_(num_tokens),
      window_(window),
      count_(std::max<std::size_t>(2, (pool_bytes - 1) / (2 * shape.keys_bytes(num_tokens)) + 1)),
      entries_(count_ * shape.keys_bytes(num_tokens)) {  // K's and V's, of two bytes each
  const std::size_t q_elements = std::size_t{shape.num_q_heads} * shape.head_dim;
  Bf16Source source(20261121);
  queries_.resize(q_elements * window);
  o_proj_.resize(q_elements * shape.hidden);
  source.fill(entries_.all());
  for (auto* out : {&queries_, &o_proj_}) source.fill(*out);
  gram_ = kernels::gram_matrices(
      {reinterpret_cast<const std::byte*>(o_proj_.data()), shape.hidden, Dtype::kBf16, {}},
      shape.num_q_heads, shape.head_dim);
  query_mean_.assign(q_elements, 0.5f);
  query_covariance_.assign(q_elements * shape.head_dim, 0.01f);
  lse_.assign(std::size_t{shape.num_q_heads} * window, std::log(static_cast<float>(num_tokens)));
  probe_.assign(std::size_t{shape.num_kv_heads} * ProbeRows{shape.head_dim}.count(), 0.01f);
  for (std::uint32_t c = 0; c < shape.head_dim / 2; ++c) {
    rope_frequencies_.push_back(std::pow(shape.rope_theta, -2.0 * c / shape.head_dim));
  }
}

Bytes Layers::keys(std::size_t i) const {
  const std::size_t size = shape_.keys_bytes(num_tokens_);
  return std::as_bytes(entries_.all()).subspan(i % count_ * 2 * size, size);
}

kernels::LayerInput Layers::input(std::size_t i) const {
  const Bytes k = keys(i);
  const auto view = [&](const void* data, std::uint32_t heads, std::uint32_t rows) {
    return HeadsView::packed(data, heads, rows, shape_.head_dim, Dtype::kBf16);
  };
  kernels::LayerInput input;
  input.layer = 0;
  input.num_layers = 1;
  input.num_q_heads = shape_.num_q_heads;
  input.keys = view(k.data(), shape_.num_kv_heads, num_tokens_);
  input.values = view(k.data() + k.size(), shape_.num_kv_heads, num_tokens_);
  input.queries = view(queries_.data(), shape_.num_q_heads, window_);
  input.query_mean = query_mean_;
  input.query_covariance = query_covariance_;
  input.o_proj = {reinterpret_cast<const std::byte*>(o_proj_.data()), shape_.hidden, Dtype::kBf16,
                  gram_};
  input.rope_frequencies = rope_frequencies_;
  input.probe = probe_;
  return input;
}

kernels::LayerInput Layers::input_with_lse(std::size_t i) const {
  kernels::LayerInput with = input(i);
  with.lse = lse_;
  return with;
}

}  // namespace precis::bench

// Random layers of a real model's shape, enough of them that no cache still holds a layer when it
// is used again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "precis/kernels.h"
#include "tests/bench/kernels/arena_array.h"

namespace precis::bench {

struct ModelShape {
  std::string name;
  std::uint32_t num_layers, num_q_heads, num_kv_heads, head_dim, hidden;
  double rope_theta;
  std::size_t keys_bytes(std::uint32_t num_tokens) const {
    return std::size_t{2} * num_kv_heads * num_tokens * head_dim;  // bf16
  }
};
// Two models, and a single KV head like the first model's, for lengths at which eight heads do not
// fit in memory.
const std::vector<ModelShape>& model_shapes();

// Layers of bf16, [num_kv_heads, num_tokens, head_dim] each, with the inputs of every recipe.
class Layers {
 public:
  // At least two layers, and together at least `pool_bytes` of K and V. `window`: queries pushed.
  Layers(const ModelShape& shape, std::uint32_t num_tokens, std::uint32_t window,
         std::size_t pool_bytes);
  const ModelShape& shape() const { return shape_; }
  std::uint32_t num_tokens() const { return num_tokens_; }
  // Layer i modulo the number of layers.
  kernels::LayerInput input(std::size_t i) const;
  // With log-sum-exps of the queries, of plausible size.
  kernels::LayerInput input_with_lse(std::size_t i) const;
  Bytes keys(std::size_t i) const;

 private:
  ModelShape shape_;
  std::uint32_t num_tokens_, window_;
  std::size_t count_;
  ArenaArray<std::uint16_t> entries_;  // [count][2][num_kv_heads, num_tokens, head_dim]
  std::vector<std::uint16_t> queries_, o_proj_;
  std::vector<float> gram_, query_mean_, query_covariance_, lse_;
  std::vector<double> rope_frequencies_;
  std::vector<float> probe_;
};

}  // namespace precis::bench

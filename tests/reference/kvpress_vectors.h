// Reads kvpress_vectors.bin; make_kvpress_vectors.py describes the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "precis/kernels.h"

namespace precis::reference {

// Owns the memory that its input views: the inputs of every parity preset.
struct Layer {
  std::vector<std::byte> keys, values, queries, o_proj;
  std::vector<float> query_mean, query_covariance;
  kernels::LayerInput input;
};

// The entries that kvpress keeps of one layer.
struct Case {
  std::uint32_t layer = 0, removed_ppm = 0;
  std::string preset;
  std::vector<std::vector<std::uint32_t>> kept;  // per KV head, ascending positions
};

struct Vectors {
  std::vector<Layer> layers;
  std::vector<Case> cases;
};

// Throws std::runtime_error if the file is not as described.
Vectors read_vectors(const std::string& path);

}  // namespace precis::reference

// Reads kvpress_vectors.bin; make_kvpress_vectors.py describes the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace precis::reference {

struct Layer {
  std::vector<std::byte> keys, values;  // f16 [num_kv_heads, num_tokens, head_dim]
  std::vector<std::byte> queries;       // f16 [num_q_heads, window, head_dim]
};

// What kvpress keeps of one layer.
struct Case {
  std::uint32_t layer = 0, removed_ppm = 0;
  std::string preset;
  std::vector<std::vector<std::uint32_t>> kept;  // per KV head, ascending positions
};

struct Vectors {
  std::uint32_t num_q_heads = 0, num_kv_heads = 0, num_tokens = 0, head_dim = 0, window = 0;
  std::vector<Layer> layers;
  std::vector<Case> cases;
};

// Throws std::runtime_error if the file is not as described.
Vectors read_vectors(const std::string& path);

}  // namespace precis::reference

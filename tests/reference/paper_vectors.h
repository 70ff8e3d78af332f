// Reads paper_vectors.bin; make_paper_vectors.py describes the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "precis/kernels.h"
#include "precis/profile.h"

namespace precis::reference {

// A layer that owns the memory that its input views. The input has everything that any recipe
// needs; there are two kinds of queries.
struct PaperLayer {
  std::vector<std::byte> keys, values, queries, behind, o_proj;
  std::vector<float> behind_lse, query_mean, query_covariance, gram;
  kernels::LayerInput input;  // with the last queries
  HeadsView behind_view;      // queries behind the segment, for kvzip
};

// A policy's results for one layer.
struct PaperResult {
  kernels::LayerScores scores;
  std::vector<std::vector<std::uint32_t>> order;   // per KV head
  std::vector<std::vector<std::uint32_t>> counts;  // per budget and KV head
};

struct PaperCase {
  std::string recipe;
  std::optional<Profile> profile;  // only its table and sizes
  std::vector<PaperResult> layers;
};

struct PaperVectors {
  std::vector<std::uint32_t> budgets;  // entries of the segment
  std::vector<PaperLayer> layers;
  std::vector<PaperCase> cases;
};

// Throws std::runtime_error if the file is not as described.
PaperVectors read_paper_vectors(const std::string& path);

}  // namespace precis::reference

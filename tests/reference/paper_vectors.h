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

// A layer that owns what its input views, all that any recipe needs but for the queries, which are
// of two kinds.
struct PaperLayer {
  std::vector<std::byte> keys, values, queries, behind, o_proj;
  std::vector<float> behind_lse, query_mean, query_covariance, gram;
  kernels::LayerInput input;  // with the last queries
  HeadsView behind_view;      // queries behind the segment, for kvzip
};

// What a policy makes of one layer.
struct PaperResult {
  kernels::LayerScores scores;
  std::vector<std::vector<std::uint32_t>> order;   // per KV head
  std::vector<std::vector<std::uint32_t>> counts;  // per budget and KV head
};

struct PaperCase {
  std::string recipe;
  std::optional<Profile> profile;  // its table and sizes alone
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

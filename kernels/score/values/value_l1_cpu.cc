// |v||_1 of every token's value: one pass over V.
#include "kernels/common/isa.h"
#include "kernels/score/row_blocks.h"
#include "kernels/score/values/value_norms.h"

namespace precis::kernels {
namespace {

constexpr std::uint32_t kChunkTokens = 1024;  // one work item

template <Dtype dtype>
struct Magnitudes {
  float* norms;
  PRECIS_INLINE void operator()(const RowSpan& rows) const {
    for (std::size_t first = 0; first < rows.count; first += kRowsInBlock) {
      float sums[kRowsInBlock];
      sum_block<RowSum::kMagnitudes, dtype>(rows, first, sums);
      std::copy_n(sums, rows.block_count(first), norms + first);
    }
  }
};

PRECIS_INLINE void magnitudes_loop(const RowSpan& rows, float* norms) {
  switch (rows.dtype) {
    case Dtype::kBf16: return with_dim<Dtype::kBf16>(rows, Magnitudes<Dtype::kBf16>{norms});
    case Dtype::kF16: return with_dim<Dtype::kF16>(rows, Magnitudes<Dtype::kF16>{norms});
    case Dtype::kF32: return with_dim<Dtype::kF32>(rows, Magnitudes<Dtype::kF32>{norms});
    case Dtype::kF8E4M3: return with_dim<Dtype::kF8E4M3>(rows, Magnitudes<Dtype::kF8E4M3>{norms});
  }
}

}  // namespace

std::vector<float> value_l1_norms(const CpuContext& context, const HeadsView& values) {
  const std::size_t n = values.num_tokens, chunks = (n + kChunkTokens - 1) / kChunkTokens;
  std::vector<float> norms(values.num_heads * n);
  const auto body = for_isa<&magnitudes_loop>(context.isa);
  context.pool.parallel_for(values.num_heads * chunks, [&](std::size_t i) {
    const auto head = static_cast<std::uint32_t>(i / chunks);
    const auto first = static_cast<std::uint32_t>(i % chunks * kChunkTokens);
    const std::size_t count = std::min<std::size_t>(kChunkTokens, n - first);
    body({values.row(head, first), count, values.head_dim, values.dtype},
         norms.data() + head * n + first);
  });
  return norms;
}

}  // namespace precis::kernels

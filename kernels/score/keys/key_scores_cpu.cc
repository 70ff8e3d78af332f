// knorm, keydiff and kvdiff on the CPU: memory-bound passes over K, and V's norms.
#include <atomic>
#include <memory>
#include <vector>

#include "kernels/common/isa.h"
#include "kernels/score/keys/key_rows.h"
#include "kernels/score/score.h"
#include "precis/limits.h"

namespace precis::kernels {
namespace {

constexpr std::uint32_t kChunkTokens = 1024;  // one work item
static_assert(kChunkTokens % Unrotation::kBlockTokens == 0);

template <Dtype dtype>
struct RowNorms {
  float sign;
  float* norms;
  PRECIS_INLINE void operator()(const RowSpan& rows) const {
    for (std::size_t first = 0; first < rows.count; first += kRowsInBlock) {
      float sums[kRowsInBlock];
      sum_block<RowSum::kSquares, dtype>(rows, first, sums);
      for (float& x : sums) x = sign * std::sqrt(x);
      std::copy_n(sums, rows.block_count(first), norms + first);
    }
  }
};

PRECIS_INLINE void norms_loop(const RowSpan& rows, float sign, float* norms) {
  switch (rows.dtype) {
    case Dtype::kBf16: return with_dim<Dtype::kBf16>(rows, RowNorms<Dtype::kBf16>{sign, norms});
    case Dtype::kF16: return with_dim<Dtype::kF16>(rows, RowNorms<Dtype::kF16>{sign, norms});
    case Dtype::kF32: return with_dim<Dtype::kF32>(rows, RowNorms<Dtype::kF32>{sign, norms});
    case Dtype::kF8E4M3:
      return with_dim<Dtype::kF8E4M3>(rows, RowNorms<Dtype::kF8E4M3>{sign, norms});
  }
}

template <Dtype dtype>
struct UnitKeys {
  float *sum, *inverses;
  PRECIS_INLINE void operator()(const KeyRows& keys) const {
    add_unit_keys<dtype>(keys, sum, inverses);
  }
};
template <Dtype dtype>
struct KeyScores {
  const float* anchor;
  float* scores;
  PRECIS_INLINE void operator()(const KeyRows& keys) const {
    score_keys<dtype>(keys, anchor, scores);
  }
};

PRECIS_INLINE void unit_keys_loop(const KeyRows& keys, float* sum, float* inverses) {
  switch (keys.rows.dtype) {
    case Dtype::kBf16: return run_pass<Dtype::kBf16>(keys, UnitKeys<Dtype::kBf16>{sum, inverses});
    case Dtype::kF16: return run_pass<Dtype::kF16>(keys, UnitKeys<Dtype::kF16>{sum, inverses});
    case Dtype::kF32: return run_pass<Dtype::kF32>(keys, UnitKeys<Dtype::kF32>{sum, inverses});
    case Dtype::kF8E4M3:
      return run_pass<Dtype::kF8E4M3>(keys, UnitKeys<Dtype::kF8E4M3>{sum, inverses});
  }
}

PRECIS_INLINE void scores_loop(const KeyRows& keys, const float* anchor, float* scores) {
  switch (keys.rows.dtype) {
    case Dtype::kBf16: return run_pass<Dtype::kBf16>(keys, KeyScores<Dtype::kBf16>{anchor, scores});
    case Dtype::kF16: return run_pass<Dtype::kF16>(keys, KeyScores<Dtype::kF16>{anchor, scores});
    case Dtype::kF32: return run_pass<Dtype::kF32>(keys, KeyScores<Dtype::kF32>{anchor, scores});
    case Dtype::kF8E4M3:
      return run_pass<Dtype::kF8E4M3>(keys, KeyScores<Dtype::kF8E4M3>{anchor, scores});
  }
}

// A head's tokens [first, first + count).
struct Chunk {
  std::uint32_t head, index, first, count;
  Chunk(const HeadsView& heads, std::size_t of_head, std::size_t of_chunk)
      : head(static_cast<std::uint32_t>(of_head)),
        index(static_cast<std::uint32_t>(of_chunk)),
        first(index * kChunkTokens),
        count(std::min(kChunkTokens, heads.num_tokens - first)) {}
  RowSpan rows(const HeadsView& heads) const {
    return {heads.row(head, first), count, heads.head_dim, heads.dtype};
  }
};

std::size_t num_chunks(const HeadsView& heads) {
  return (heads.num_tokens + kChunkTokens - 1) / kChunkTokens;
}

// norms[num_heads, n] = sign * ||row||.
void signed_norms(const CpuContext& context, const HeadsView& heads, float sign, float* norms) {
  const std::size_t chunks = num_chunks(heads);
  const auto body = for_isa<&norms_loop>(context.isa);
  context.pool.parallel_for(heads.num_heads * chunks, [&](std::size_t i) {
    const Chunk chunk(heads, i / chunks, i % chunks);
    body(chunk.rows(heads), sign, norms + std::size_t{chunk.head} * heads.num_tokens + chunk.first);
  });
}

// The second pass over a head directly follows the first and walks backwards, so that it finds the
// rows that the first pass read last in cache. Heads are taken in groups that give every thread
// several chunks of a pass, because no chunk of the second pass can begin before the first pass has
// read the whole head.
class KeyDifferences {
 public:
  KeyDifferences(const CpuContext& context, const HeadsView& keys, const Unrotation& turns,
                 std::span<float> scores)
      : context_(context),
        keys_(keys),
        turns_(turns),
        scores_(scores),
        chunks_(num_chunks(keys)),
        width_(key_sum_width(turns, keys.head_dim)),
        group_(std::clamp<std::size_t>((2 * context.pool.num_threads() + chunks_ - 1) / chunks_, 1,
                                       keys.num_heads)),
        partial_(keys.num_heads * chunks_ * width_),
        anchors_(keys.num_heads * width_),
        summed_(keys.num_heads),
        ready_(keys.num_heads) {}

  void run() {
    context_.pool.parallel_for(2 * keys_.num_heads * chunks_, [this](std::size_t i) {
      const std::size_t first_head = i / (2 * group_ * chunks_) * group_;
      const std::size_t chunks = std::min(group_, keys_.num_heads - first_head) * chunks_;
      const std::size_t j = i - 2 * first_head * chunks_;
      const std::size_t at = j < chunks ? j : 2 * chunks - 1 - j;
      const Chunk chunk(keys_, first_head + at / chunks_, at % chunks_);
      if (j < chunks) {
        sum(chunk);
      } else {
        score(chunk);
      }
    });
  }

 private:
  KeyRows rows(const Chunk& chunk) const {
    return {chunk.rows(keys_), chunk.first, turns_, turns_.pairs()};
  }
  float* scores(const Chunk& chunk) {
    return &scores_[std::size_t{chunk.head} * keys_.num_tokens + chunk.first];
  }

  void sum(const Chunk& chunk) {
    float* partial = &partial_[(std::size_t{chunk.head} * chunks_ + chunk.index) * width_];
    for_isa<&unit_keys_loop>(context_.isa)(rows(chunk), partial, scores(chunk));
    if (summed_[chunk.head].fetch_add(1, std::memory_order_acq_rel) + 1 < chunks_) return;
    make_anchor(chunk.head);
    ready_[chunk.head].store(1, std::memory_order_release);
    ready_[chunk.head].notify_all();
  }

  // The mean unit key. Sums of chunks are f32; they are summed in f64, in the order of chunks.
  void make_anchor(std::size_t head) {
    const float* partial = &partial_[head * chunks_ * width_];
    for (std::size_t c = 0; c < width_; ++c) {
      double total = 0;
      for (std::size_t k = 0; k < chunks_; ++k) total += partial[k * width_ + c];
      anchors_[head * width_ + c] = static_cast<float>(total / keys_.num_tokens);
    }
  }

  // Waits for the anchor. This cannot deadlock: all chunks of the head's first pass were started
  // before, each by a thread that will finish it.
  void score(const Chunk& chunk) {
    ready_[chunk.head].wait(0, std::memory_order_acquire);
    for_isa<&scores_loop>(context_.isa)(rows(chunk), &anchors_[chunk.head * width_], scores(chunk));
  }

  const CpuContext& context_;
  const HeadsView& keys_;
  const Unrotation& turns_;
  std::span<float> scores_;  // between the passes, the inverse norms
  std::size_t chunks_, width_, group_;
  // [num_heads, chunks, width], at most a 256th of K if a chunk is whole, and [num_heads, width].
  std::vector<float> partial_, anchors_;
  std::vector<std::atomic<std::uint32_t>> summed_, ready_;  // [num_heads]
};

}  // namespace

void score_knorm_cpu(const CpuContext& context, const LayerInput& input, std::span<float> scores) {
  signed_norms(context, input.keys, -1.0f, scores.data());
}

void score_keydiff_cpu(const CpuContext& context, const LayerInput& input,
                       std::span<float> scores) {
  const Unrotation none({}, 0, input.keys.dtype);
  KeyDifferences(context, input.keys, none, scores).run();
}

void score_kvdiff_cpu(const CpuContext& context, const LayerInput& input, std::span<float> scores) {
  const std::size_t n = input.num_tokens();
  KeyDifferences(context, input.keys, Unrotation(input.rope_frequencies, n, input.keys.dtype),
                 scores)
      .run();
  // One f32 per row of V: a 32nd of V at 64 channels of 16 bits, less for longer rows.
  const auto norms = std::make_unique_for_overwrite<float[]>(scores.size());
  signed_norms(context, input.values, 1.0f, norms.get());
  context.pool.parallel_for(input.num_kv_heads(), [&](std::size_t head) {
    const float* norm = norms.get() + head * n;
    float* score = &scores[head * n];
    double sum = 0;
    for (std::size_t t = 0; t < n; ++t) sum += norm[t];
    const auto mean = static_cast<float>(sum / static_cast<double>(n));
    for (std::size_t t = 0; t < n; ++t) score[t] = kvdiff_score(score[t], norm[t], mean);
  });
}

}  // namespace precis::kernels

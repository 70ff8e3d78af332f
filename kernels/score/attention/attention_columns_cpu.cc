// Two passes over K in chunks of tokens, so that scratch is small for any window and length
// (policies/scores.md, "Two passes"). Pass 1 finds each row's log-sum-exp (skipped if it was
// pushed). Pass 2 computes the logits again, reduces the weights of each column over the rows and
// pools them. Computing the logits twice costs less than storing them: a head's weights fit neither
// its share of the workspace nor a cache. If pooled rows keep their mass, a pass in between
// computes the mass.
#include "kernels/score/attention/attention_columns.h"

#include <cmath>
#include <limits>

#include "kernels/common/isa.h"
#include "kernels/score/attention/attention_chunks.h"
#include "kernels/score/attention/attention_stats.h"

namespace precis::kernels {
namespace {

constexpr float kLog2E = 1.44269504f;
// Tokens of one work item of each pass.
constexpr std::uint32_t kStatsTokens = 2048;
constexpr std::uint32_t kSumsTokens = 1024;    // halo included, if there is room
constexpr std::uint32_t kColumnsTokens = 512;  // held as f32 for 128 rows

// The loops for one products class, compiled for one instruction set.
struct Loops {
  void (*stats)(const HeadTask&, Range, Range, RowStats*);
  void (*masses)(const HeadTask&, std::uint32_t, std::uint32_t, double*);
  void (*sums)(const HeadTask&, std::uint32_t, std::uint32_t);
  void (*columns)(const HeadTask&, std::uint32_t, std::uint32_t, ChunkMoments*);

  static Loops by_vectors(Isa isa) {
    return {for_isa<&chunk_stats<AlongTokens>>(isa), for_isa<&chunk_masses<VectorProducts>>(isa),
            for_isa<&chunk_sums<VectorProducts>>(isa),
            for_isa<&chunk_columns<VectorProducts>>(isa)};
  }
  static Loops by_tiles() {
    return {for_avx512<&chunk_stats<AlongRows>>(), for_avx512<&chunk_masses<TileProducts>>(),
            for_avx512<&chunk_sums<TileProducts>>(), for_avx512<&chunk_columns<TileProducts>>()};
  }
};

bool by_tiles(Isa isa, const LayerInput& input) {
  return isa == Isa::kAmx && input.keys.dtype == Dtype::kBf16 &&
         input.queries.dtype == Dtype::kBf16;
}

// One head's observing rows in the layout that the products need, rounded up to whole blocks.
struct ObservingRows {
  std::vector<float> queries;
  std::unique_ptr<amx::Panels> packed, turned;
};

// Row r of KV head `head`.
const std::byte* observing_row(const LayerInput& input, const AttentionOp& op, std::uint32_t head,
                               std::size_t r) {
  const auto q_head = static_cast<std::uint32_t>(head * op.group + r % op.group);
  return input.queries.row(
      q_head, static_cast<std::uint32_t>(input.queries.num_tokens - op.rows + r / op.group));
}

ObservingRows observing_rows(const LayerInput& input, const AttentionOp& op, std::uint32_t head,
                             bool tiles) {
  const std::size_t dim = input.keys.head_dim, rows = std::size_t{op.group} * op.rows;
  const std::size_t padded = whole_tiles(rows, kBlockRows), panel = amx::panel_size(dim);
  ObservingRows out;
  if (tiles) {
    out.packed = std::make_unique<amx::Panels>(padded / amx::kPanel * panel);
    std::uint16_t* packed = out.packed->data();
    std::fill(packed, packed + padded / amx::kPanel * panel, std::uint16_t{0});
    for (std::size_t r = 0; r < rows; ++r) {
      const auto* q = reinterpret_cast<const std::uint16_t*>(observing_row(input, op, head, r));
      std::uint16_t* to = packed + r / amx::kPanel * panel + r % amx::kPanel * amx::kStep;
      for (std::size_t c = 0; c < dim; c += amx::kStep, to += amx::kTileSize) {
        std::copy(q + c, q + std::min(c + amx::kStep, dim), to);
      }
    }
    out.turned = std::make_unique<amx::Panels>(padded / amx::kPanel * panel);
    for (std::size_t i = 0; i < padded / amx::kPanel * panel; i += amx::kTileSize) {
      amx::pack_tile(packed + i, amx::kStep, amx::kPanel, amx::kStep, out.turned->data() + i);
    }
    return out;
  }
  out.queries.resize(padded * dim);
  std::vector<float> scratch(dim);
  for (std::size_t r = 0; r < rows; ++r) {
    const float* q =
        widen(input.queries.dtype, observing_row(input, op, head, r), dim, scratch.data());
    std::copy(q, q + dim, out.queries.data() + r * dim);
  }
  return out;
}

// Merges the sums of a row's chunks, `stride` apart, into one sum with the largest reference.
RowStats merged(const RowStats* chunks, std::size_t num_chunks, std::size_t stride) {
  RowStats all;
  for (std::size_t i = 0; i < num_chunks; ++i) {
    const RowStats& chunk = chunks[i * stride];
    if (chunk.sum == 0) continue;  // the row sees nothing of this chunk
    if (all.sum == 0) all.reference = chunk.reference;
    const float reference = std::max(all.reference, chunk.reference);
    all.sum = all.sum * std::exp2(all.reference - reference) +
              chunk.sum * std::exp2(chunk.reference - reference);
    all.reference = reference;
  }
  return all;
}

// The state of one call, over all KV heads.
class Passes {
 public:
  Passes(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
         const AttentionWants& wants)
      : context_(context),
        input_(input),
        wants_(wants),
        loops_(by_tiles(context.isa, input) ? Loops::by_tiles() : Loops::by_vectors(context.isa)),
        num_heads_(input.num_kv_heads()) {
    const AttentionOp op = result_.op =
        AttentionOp::of(recipe, input.num_tokens(), input.queries.num_tokens, input.group());
    rows_ = std::size_t{op.group} * op.rows;
    padded_rows_ = whole_tiles(rows_, kBlockRows);
    reference_.resize(num_heads_ * padded_rows_);
    share_.resize(num_heads_ * padded_rows_);
    result_.scores.resize(std::size_t{num_heads_} * op.columns);
    if (wants.mean) result_.mean.resize(result_.scores.size());
    const bool tiles = by_tiles(context.isa, input);
    for (std::uint32_t h = 0; h < num_heads_; ++h) {
      queries_.push_back(observing_rows(input, op, h, tiles));
      HeadTask task{};
      task.op = op;
      task.keys = input.keys.head(h);
      task.dtype = input.keys.dtype;
      task.head_dim = input.keys.head_dim;
      task.num_rows = rows_;
      task.exp_scale = kLog2E / std::sqrt(static_cast<float>(task.head_dim));
      task.queries = queries_[h].queries.data();
      task.packed_queries = tiles ? queries_[h].packed->data() : nullptr;
      task.turned_queries = tiles ? queries_[h].turned->data() : nullptr;
      task.reference = reference_.data() + h * padded_rows_;
      task.share = share_.data() + h * padded_rows_;
      task.scores = result_.scores.data() + std::size_t{h} * op.columns;
      task.mean = wants.mean ? result_.mean.data() + std::size_t{h} * op.columns : nullptr;
      tasks_.push_back(task);
    }
  }

  AttentionColumns run() {
    input_.lse.empty() ? find_stats() : take_lse();
    if (wants_.row_mass && result_.op.pools_rows()) find_scales();
    reduce_columns();
    return std::move(result_);
  }

 private:
  static std::size_t num_chunks(std::size_t tokens, std::size_t chunk) {
    return (tokens + chunk - 1) / chunk;
  }

  // Calls fn(item, head, first, last) for the chunks of the columns of every head.
  template <typename Fn>
  void for_chunks(std::uint32_t chunk, const Fn& fn) {
    const std::uint32_t tokens = result_.op.columns;
    const std::size_t chunks = num_chunks(tokens, chunk);
    context_.pool.parallel_for(num_heads_ * chunks, [&](std::size_t i) {
      const auto first = static_cast<std::uint32_t>(i % chunks * chunk);
      fn(i, i / chunks, first, std::min(tokens, first + chunk));
    });
  }

  // If there are more than kRowsAtOnce rows, each group of rows takes all tokens in one chunk, so
  // that the stats stay small compared with the rows.
  void find_stats() {
    const std::size_t n = input_.num_tokens(), goes = num_chunks(rows_, kRowsAtOnce);
    const std::size_t chunk = goes > 1 ? n : kStatsTokens, chunks = num_chunks(n, chunk);
    std::vector<RowStats> stats(num_heads_ * chunks * rows_);
    context_.pool.parallel_for(num_heads_ * goes * chunks, [&](std::size_t i) {
      const std::size_t head = i / chunks / goes, row = i / chunks % goes * kRowsAtOnce;
      const std::size_t first = i % chunks * chunk;
      loops_.stats(tasks_[head], {row, std::min(row + kRowsAtOnce, rows_)},
                   {first, std::min(first + chunk, n)},
                   stats.data() + (head * chunks + i % chunks) * rows_ + row);
    });
    context_.pool.parallel_for(num_heads_, [&](std::size_t head) {
      for (std::size_t r = 0; r < rows_; ++r) {
        const RowStats all = merged(stats.data() + head * chunks * rows_ + r, chunks, rows_);
        reference_[head * padded_rows_ + r] = all.reference;
        share_[head * padded_rows_ + r] = 1 / all.sum;
      }
    });
  }

  void take_lse() {
    const std::size_t pushed = input_.queries.num_tokens, group = result_.op.group;
    for (std::size_t i = 0; i < num_heads_ * rows_; ++i) {
      const std::size_t head = i / rows_, r = i % rows_, q_head = head * group + r % group;
      const float lse = input_.lse[q_head * pushed + pushed - result_.op.rows + r / group];
      reference_[head * padded_rows_ + r] = lse * kLog2E;
      share_[head * padded_rows_ + r] = 1;
    }
  }

  void find_scales() {
    const std::size_t chunks = num_chunks(result_.op.columns, kColumnsTokens);
    std::vector<double> masses(num_heads_ * chunks * rows_ * 2);
    for_chunks(kColumnsTokens,
               [&](std::size_t item, std::size_t head, std::uint32_t first, std::uint32_t last) {
                 loops_.masses(tasks_[head], first, last, masses.data() + item * rows_ * 2);
               });
    scales_.resize(num_heads_ * rows_);
    for (std::size_t i = 0; i < scales_.size(); ++i) {
      double before = 0, after = 0;
      for (std::size_t k = 0; k < chunks; ++k) {
        const double* of_row = masses.data() + ((i / rows_ * chunks + k) * rows_ + i % rows_) * 2;
        before += of_row[0];
        after += of_row[1];
      }
      scales_[i] = after > 0 ? static_cast<float>(before / after) : 1.0f;
    }
    for (std::size_t h = 0; h < num_heads_; ++h) tasks_[h].row_scale = scales_.data() + h * rows_;
  }

  // Whether rows are reduced block by block, to one value per query head and column.
  bool sums_only() const {
    return !result_.op.pools_rows() && !wants_.mean && !wants_.moments &&
           result_.op.row_reduce != RowReduce::kMeanVariance;
  }

  void reduce_columns() {
    if (sums_only()) {
      const std::uint32_t halo = result_.op.kernel / 2 * 2;
      const std::uint32_t chunk = kSumsTokens > 2 * halo ? kSumsTokens - halo : kSumsTokens;
      return for_chunks(chunk, [&](std::size_t, std::size_t head, std::uint32_t first,
                                   std::uint32_t last) { loops_.sums(tasks_[head], first, last); });
    }
    std::vector<ChunkMoments> moments(
        wants_.moments ? num_heads_ * num_chunks(result_.op.columns, kColumnsTokens) : 0);
    for_chunks(kColumnsTokens, [&](std::size_t item, std::size_t head, std::uint32_t first,
                                   std::uint32_t last) {
      loops_.columns(tasks_[head], first, last, wants_.moments ? &moments[item] : nullptr);
    });
    for (const ChunkMoments& chunk : moments) {
      result_.entropy += chunk.entropy;
      result_.variance += chunk.variance;
    }
  }

  const CpuContext& context_;
  const LayerInput& input_;
  const AttentionWants wants_;
  const Loops loops_;
  std::uint32_t num_heads_;
  std::size_t rows_ = 0, padded_rows_ = 0;  // per KV head
  // Per KV head. As large as the observing queries, or twice that if they are widened to f32.
  std::vector<ObservingRows> queries_;
  std::vector<float> reference_, share_;  // [num_kv_heads, padded_rows_], 0 past the rows
  std::vector<float> scales_;             // [num_kv_heads, rows_]
  std::vector<HeadTask> tasks_;
  AttentionColumns result_;
};

}  // namespace

AttentionColumns attention_columns(const CpuContext& context, const Recipe& recipe,
                                   const LayerInput& input, const AttentionWants& wants) {
  return Passes(context, recipe, input, wants).run();
}

}  // namespace precis::kernels

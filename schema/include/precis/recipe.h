// A recipe says how a segment was compressed: scorer x head allocator x layer allocator x selector,
// their parameters and the versions (policies.md sections 3 and Decisions). It is part of a
// segment's identity, so its canonical text is stable: equal recipes have equal texts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "precis/status.h"
#include "precis/types.h"

namespace precis {

// What a score is and who may compare it: policies.md 2 and 3. Attention scorers reduce the softmax
// weights of pushed queries as the recipe's attention parameters say; they differ in what they
// begin with (scorer_defaults) and in what is said here.
enum class Scorer : std::uint8_t {
  kStreamingLlm,     // the position itself: recent tokens first
  kWindowAttention,  // attention of the last queries on what lies before them
  kKnorm,            // -||k||_2
  kKeydiff,          // -cos(k, mean of unit keys)
  kLagkv,            // spread of a partition normalised by the next one's range (policies.md 2.15)
  kExternal,         // pushed by the client
  kLocalkv,          // as lagkv, normalised by the partition's own range
  kRandom,           // a hash of seed and place: the baseline that every policy must beat
  kTova,             // attention of the last query, mean over all query heads of the layer
  kH2o,              // attention of the last queries, summed, on every token they see
  kObservedMean,     // attention of all queries, mean over those that see the token
  kVatp,             // window attention x the token's ||v||_1
  kCake,             // window attention, mean + gamma x variance
  kLava,             // window attention x the head's largest ||v||_1
  kDefensive,        // worst case of window attention x output norm (D20)
  kExpectedAttention,  // attention expected of queries to come, by their mean and covariance
  kKvzip,              // attention of queries that repeat the segment after it (D18)
  kKvdiff,  // (1 - cos(k, mean of unit keys)), keys before RoPE, x ||v|| / the head's mean ||v||
};
// Of kTable: how a profile says what heads get (profile.h).
enum class TableKind : std::uint8_t {
  kCurves,   // LU-KV: what each head may lose as all lose more
  kWeights,  // HeadKV: each head's share of every budget
};
enum class Pool : std::uint8_t { kAvg, kMax };
enum class Reduce : std::uint8_t { kMean, kMax, kSum };
// kMeanVariance: mean + gamma x unbiased variance.
enum class RowReduce : std::uint8_t { kMean, kMax, kSum, kSumOfSquares, kMeanVariance };
// The order of reducing rows, pooling along tokens, and reducing the query group (policies.md 1.3).
enum class PoolOrder : std::uint8_t {
  kRowsGroupPool,
  kRowsPoolGroup,
  kPoolRowsGroup,
  kPoolGroupRows,
};
enum class HeadAllocator : std::uint8_t {
  kUniform,  // heads take turns
  kAda,      // the best scores of the layer, over a guarantee per head
  kFlat,     // the best scores of the layer
  kTable,    // a profile says, over all layers at once
};
// policies.md D6. The guarantees are joining orders; the blends are cuts at one budget.
enum class AdaMode : std::uint8_t {
  kPaperBlend,
  kRepoBlend,
  kGuaranteeInclWindow,
  kGuaranteeExclWindow,
};
enum class LayerAllocator : std::uint8_t {
  kUniform,     // layers take turns
  kPyramid,     // early layers more (D19)
  kPreference,  // by entropy and variance of the layer's attention (CAKE)
  kEntropy,     // by the entropy of the layer's scores (LAVa)
  kGlobalFlat,  // the best scores of all layers; `heads` says over which guarantee
  kTable,       // with HeadAllocator::kTable
};
enum class Selector : std::uint8_t {
  kTopk,
  kPartitionTopk,  // rank within the partition first (D9)
  kTwoStage,       // the best by score, then the best by score x output norm (CriticalKV, D7)
  kChunk,          // whole runs of tokens, the same in every head
  kThreshold,      // those that hold most of the mean attention first (DefensiveKV, D20)
};
// What kTwoStage multiplies by: ||v W_O||_1, ||v W_O||_2 by the Gram matrix of W_O, or ||v||_1.
enum class ValueNorm : std::uint8_t { kL1Exact, kL2Gram, kVL1 };
// kExactFloor: D2. kKvpressDouble: kvpress's double arithmetic, for parity presets alone.
enum class CountRule : std::uint8_t { kExactFloor, kKvpressDouble };

// Decimals stand as parts per million (ppm), so that texts and identities never depend on floats.
struct Recipe {
  std::string preset;  // the name it was written with; informative, not part of the identity

  Scorer scorer = Scorer::kKeydiff;
  // Attention scorers.
  std::uint32_t window = 32;  // the last `window` pushed queries observe; 0: all
  std::uint32_t kernel = 7;   // odd; 1: no pooling
  Pool pool = Pool::kMax;
  RowReduce row_reduce = RowReduce::kMean;
  Reduce group_reduce = Reduce::kMean;
  PoolOrder pool_order = PoolOrder::kRowsGroupPool;
  std::uint32_t gamma_ppm = 200'000'000;  // kMeanVariance
  // Partitions: kLagkv, kLocalkv, kPartitionTopk.
  std::uint32_t lag = 128;
  bool lag_kvpress_ranks = false;  // kLagkv: score = rank in its partition / lag (D17)
  std::uint32_t skip_layers = 0;   // kKnorm: the first layers are kept whole (D12)
  std::uint32_t seed = 0;          // kRandom
  // kExpectedAttention: (p + epsilon) x ||v||_2 if value_norm (D11).
  std::uint32_t ea_epsilon_ppm = 20'000;
  bool ea_value_norm = true;

  HeadAllocator heads = HeadAllocator::kUniform;
  AdaMode ada_mode = AdaMode::kGuaranteeExclWindow;
  std::uint32_t ada_alpha_ppm = 200'000;
  LayerAllocator layers = LayerAllocator::kUniform;
  std::uint32_t beta = 20;                                   // kPyramid
  std::uint32_t tau1_ppm = 1'000'000, tau2_ppm = 1'000'000;  // kPreference
  TableKind table = TableKind::kCurves;
  std::string profile;  // kTable: its name, or once resolved its digest (profile.h)

  Selector selector = Selector::kTopk;
  std::uint32_t first_stage_ppm = 500'000;     // kTwoStage: alpha of D7
  std::uint32_t epsilon_ppm = 100;             // kTwoStage
  ValueNorm value_norm = ValueNorm::kL1Exact;  // kTwoStage
  // kPartitionTopk, incrementally (D9): of every ranked partition floor(this x lag) entries,
  // whatever comes after it; budgets keep at most that. 0: the budget alone decides.
  std::uint32_t partition_keep_ppm = 0;
  std::uint32_t chunk = 20;          // kChunk: tokens
  std::uint32_t mass_ppm = 900'000;  // kThreshold

  std::uint32_t sinks = 0;        // protected first tokens of the whole path
  std::uint32_t recent = 0;       // protected last tokens of the segment
  bool protect_tail = false;      // the last partition and the remainder are protected (D9)
  std::uint32_t min_entries = 0;  // floor of the budget per head (D3)
  CountRule count_rule = CountRule::kExactFloor;

  // True where the kept set is defined at the requested budget alone (parity presets, blends):
  // inside it, seats go by (score desc, layer asc, head asc, position asc).
  bool is_cut() const {
    return count_rule == CountRule::kKvpressDouble ||
           (heads == HeadAllocator::kAda &&
            (ada_mode == AdaMode::kPaperBlend || ada_mode == AdaMode::kRepoBlend));
  }
  // Seats are known only when every layer's scores are.
  bool joins_layers() const {
    return layers == LayerAllocator::kPreference || layers == LayerAllocator::kEntropy ||
           layers == LayerAllocator::kGlobalFlat;
  }
  bool is_partitioned() const {
    return scorer == Scorer::kLagkv || scorer == Scorer::kLocalkv ||
           selector == Selector::kPartitionTopk;
  }
  bool needs_queries() const;
  // Of kKvzip: queries stand after the segment, see all of it, and bring their log-sum-exp.
  bool needs_lse() const { return scorer == Scorer::kKvzip; }
  // The most queries that a segment of `num_tokens` tokens may bring: they stand at its last
  // tokens, but for kKvzip, which repeats it and asks for more.
  std::uint32_t queries_max(std::uint32_t num_tokens) const;
  bool needs_scores() const { return scorer == Scorer::kExternal; }
  bool needs_query_stats() const { return scorer == Scorer::kExpectedAttention; }
  bool needs_rope() const { return scorer == Scorer::kKvdiff; }
  bool needs_profile() const { return heads == HeadAllocator::kTable; }
  // The model's output projections, or their Gram matrices.
  bool needs_o_proj() const {
    return scorer == Scorer::kDefensive ||
           (selector == Selector::kTwoStage && value_norm != ValueNorm::kVL1);
  }

  bool operator==(const Recipe&) const = default;
};

// What a scorer begins with, everything else at its default (policies.md, Presets).
Recipe scorer_defaults(Scorer scorer);
// Scores are made of softmax weights of pushed queries.
bool is_attention(Scorer scorer);
// The queries' own tokens are neither scored nor ranked, so `recent` covers `window`.
bool protects_window(Scorer scorer);

// The recipe's grammar version; part of the canonical text.
inline constexpr std::uint32_t kRecipeVersion = 1;

// Accepts a preset ("global_kvdiff"), one with parameters ("ada_snapkv(alpha=0.05, window=64)"),
// one that builds on another ("lukv(keydiff, profile=smollm2)", "criticalkv(tova)"), or a JSON
// object of fields. Unknown names, wrong types, out-of-range values and the invalid combinations of
// policies.md section 3 are kInvalidArgument with the reason and the choices; a "version" other
// than kRecipeVersion is kVersionMismatch.
Result<Recipe> parse_recipe(std::string_view text);
// Refuses the invalid combinations; parse_recipe has called it.
Status validate_recipe(const Recipe& recipe);
// Canonical JSON with every field that matters, keys sorted; parse_recipe(canonical(r)) == r but
// for `preset`.
std::string canonical_recipe(const Recipe& recipe);
// The canonical recipe as a call of its preset, with what differs from that:
// "snapkv(window=64)"; parse_recipe() of it is the recipe again. `canonical` itself where `preset`
// is none, or not of this build.
std::string recipe_call(const std::string& canonical, const std::string& preset);
// Every preset's name, sorted.
std::vector<std::string> preset_names();

// Budget arithmetic (D2, D3), integers only (doubles under kKvpressDouble, for parity).
// The number of entries T of a segment of `num_tokens` tokens, at least num_layers * num_kv_heads
// and at most all; kBytes divides by `entry_bytes` (record_format.h); kQuality is its cap here, the
// scores say the rest. kInvalidArgument if a ratio lies outside (0, 1], or if entries or bytes are
// 0. `num_tokens` > 0; `begin`: position of the first of them.
Result<std::uint64_t> budget_entries(const Recipe& recipe, const ModelSpec& model,
                                     std::uint32_t num_tokens, const Budget& budget,
                                     std::uint32_t begin = 0);

}  // namespace precis

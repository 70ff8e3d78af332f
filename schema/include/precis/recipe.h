// A recipe describes how a segment was compressed: scorer x head allocator x layer allocator x
// selector, with their parameters and versions (docs/design/policies.md). The recipe is part of a
// segment's identity, so its canonical text is stable: equal recipes have equal texts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "precis/entry_form.h"
#include "precis/status.h"
#include "precis/types.h"

namespace precis {

// policies/scores.md defines each score; policies.md, "Comparability of scores", defines how far
// its values can be compared. Attention scorers reduce the softmax weights of pushed queries by the
// recipe's attention parameters. They differ in their default parameters (scorer_defaults) and in
// the points below.
enum class Scorer : std::uint8_t {
  kStreamingLlm,     // the position: recent tokens first
  kWindowAttention,  // attention of the last queries to the tokens before them
  kKnorm,            // -||k||_2
  kKeydiff,          // -cos(k, mean of unit keys)
  kLagkv,            // spread of a partition normalised by the next partition's range (D9)
  kExternal,         // pushed by the client
  kLocalkv,          // like lagkv, but normalised by the partition's own range
  kRandom,           // a hash of seed and position: the baseline that every policy must beat
  kTova,             // attention of the last query, mean over all query heads of the layer
  kH2o,              // attention of the last queries, summed, for every token they attend to
  kObservedMean,     // attention of all queries, mean over the queries that can attend to the token
  kVatp,             // window attention x the token's ||v||_1
  kCake,             // window attention, mean + gamma x variance
  kLava,             // window attention x the head's largest ||v||_1
  kDefensive,        // worst case of window attention x output norm (D20)
  kExpectedAttention,  // expected attention of future queries, from their mean and covariance
  kKvzip,              // attention of queries that repeat the segment after its end (D18)
  kKvdiff,   // (1 - cos(k, mean of unit keys)), keys before RoPE, x ||v|| / the head's mean ||v||
  kKvprobe,  // a profile's function of one key before RoPE and its value
};
// The kind of table in a profile (profile.h). Budgets for kTable:
enum class TableKind : std::uint8_t {
  kCurves,   // LU-KV: each head's share to prune for each share pruned overall
  kWeights,  // HeadKV: each head's share of every budget
  kProbe,    // for kKvprobe: each head's coefficients
};
enum class Pool : std::uint8_t { kAvg, kMax };
enum class Reduce : std::uint8_t { kMean, kMax, kSum };
// kMeanVariance: mean + gamma x unbiased variance.
enum class RowReduce : std::uint8_t { kMean, kMax, kSum, kSumOfSquares, kMeanVariance };
// The order of three steps: reduce rows, pool along tokens, reduce the query group
// (policies/scores.md, "Reductions").
enum class PoolOrder : std::uint8_t {
  kRowsGroupPool,
  kRowsPoolGroup,
  kPoolRowsGroup,
  kPoolGroupRows,
};
enum class HeadAllocator : std::uint8_t {
  kUniform,  // heads take turns
  kAda,      // the best scores of the layer, above a guarantee per head
  kFlat,     // the best scores of the layer
  kTable,    // a profile gives the budgets, over all layers at once
};
// Modes of ada (D6). The guarantees are joining orders; the blends are cuts at one budget.
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
  kGlobalFlat,  // the best scores of all layers; `heads` gives the guarantee
  kTable,       // with HeadAllocator::kTable
};
enum class Selector : std::uint8_t {
  kTopk,
  kPartitionTopk,  // rank within the partition first (D9)
  kTwoStage,       // best by score, then best by score x output norm (CriticalKV, D7)
  kChunk,          // whole runs of tokens, the same in every head
  kThreshold,      // first the tokens with most of the mean attention (DefensiveKV, D20)
};
// kTwoStage multiplies scores by: ||v W_O||_1, ||v W_O||_2 (by the Gram matrix of W_O), or ||v||_1.
enum class ValueNorm : std::uint8_t { kL1Exact, kL2Gram, kVL1 };
// kExactFloor: D2. kKvpressDouble: kvpress's arithmetic in doubles, only for parity presets.
enum class CountRule : std::uint8_t { kExactFloor, kKvpressDouble };

// Decimals are stored as parts per million (ppm), so texts and identities never depend on floats.
struct Recipe {
  std::string preset;  // the name it was written with; for people, not part of the identity

  Scorer scorer = Scorer::kKeydiff;
  // Attention scorers.
  std::uint32_t window = 32;  // the last `window` pushed queries are used; 0: all
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
  std::string profile;  // if needs_profile(): its name, or after resolution its digest (profile.h)

  Selector selector = Selector::kTopk;
  std::uint32_t first_stage_ppm = 500'000;     // kTwoStage: alpha of D7
  std::uint32_t epsilon_ppm = 100;             // kTwoStage
  ValueNorm value_norm = ValueNorm::kL1Exact;  // kTwoStage
  // kPartitionTopk, incremental form (D9): each ranked partition keeps floor(this x lag) entries,
  // independent of later partitions, and budgets keep at most that. 0: only the budget decides.
  std::uint32_t partition_keep_ppm = 0;
  std::uint32_t chunk = 20;          // kChunk: tokens
  std::uint32_t mass_ppm = 900'000;  // kThreshold

  std::uint32_t sinks = 0;   // protected first tokens of the whole path
  std::uint32_t recent = 0;  // protected last tokens of the segment
  // At most this share of the segment's tokens is protected by `recent`, but one token at least.
  std::uint32_t recent_share_ppm = 1'000'000;
  bool protect_tail = false;  // the last partition and the remainder are protected (D9)
  // Floor of the budget per head for the whole path: a segment that begins at token b keeps at
  // least min_entries - b entries (D3).
  std::uint32_t min_entries = 0;
  CountRule count_rule = CountRule::kExactFloor;
  Encoding encoding = Encoding::kRaw;  // of the rows of K and V

  // True if the kept set is defined only at the requested budget (parity presets, blends). Within
  // that set, seats follow (score desc, layer asc, head asc, position asc).
  bool is_cut() const {
    return count_rule == CountRule::kKvpressDouble ||
           (heads == HeadAllocator::kAda &&
            (ada_mode == AdaMode::kPaperBlend || ada_mode == AdaMode::kRepoBlend));
  }
  // True if seats are known only after the scores of every layer are known.
  bool joins_layers() const {
    return layers == LayerAllocator::kPreference || layers == LayerAllocator::kEntropy ||
           layers == LayerAllocator::kGlobalFlat;
  }
  bool is_partitioned() const {
    return scorer == Scorer::kLagkv || scorer == Scorer::kLocalkv ||
           selector == Selector::kPartitionTopk;
  }
  // How many last tokens `recent` protects in a segment of `num_tokens`; sinks may leave fewer.
  std::uint32_t recent_tokens(std::uint32_t num_tokens) const;
  bool needs_queries() const;
  // kKvzip's queries come after the segment, attend to all of it, and include their log-sum-exp.
  bool needs_lse() const { return scorer == Scorer::kKvzip; }
  // The most queries that a segment of `num_tokens` tokens may have. Queries belong to the
  // segment's last tokens; only kKvzip repeats the segment and may have more.
  std::uint32_t queries_max(std::uint32_t num_tokens) const;
  bool needs_scores() const { return scorer == Scorer::kExternal; }
  bool needs_query_stats() const { return scorer == Scorer::kExpectedAttention; }
  bool needs_rope() const { return scorer == Scorer::kKvdiff || needs_probe(); }
  bool needs_probe() const { return scorer == Scorer::kKvprobe; }
  bool needs_profile() const { return heads == HeadAllocator::kTable || needs_probe(); }
  // True if the model's output projections, or their Gram matrices, are needed.
  bool needs_o_proj() const {
    return scorer == Scorer::kDefensive ||
           (selector == Selector::kTwoStage && value_norm != ValueNorm::kVL1);
  }

  bool operator==(const Recipe&) const = default;
};

// The recipe with the scorer's default parameters and every other field at its default
// (policies.md, "Presets").
Recipe scorer_defaults(Scorer scorer);
// True if the scores are computed from softmax weights of pushed queries.
bool is_attention(Scorer scorer);
// True if the queries' own tokens are neither scored nor ranked, so `recent` covers `window`.
bool protects_window(Scorer scorer);

inline constexpr std::uint32_t kRecipeVersion = 1;  // of the grammar; part of the canonical text

// Accepts a preset ("global_kvdiff"), a preset with parameters ("ada_snapkv(alpha=0.05,
// window=64)"), a preset built on another ("lukv(keydiff, profile=smollm2)", "criticalkv(tova)"),
// or a JSON object of fields. kInvalidArgument, with the reason and the choices, for unknown names,
// wrong types, values out of range and refused combinations. kVersionMismatch for a "version" other
// than kRecipeVersion.
Result<Recipe> parse_recipe(std::string_view text);
// kInvalidArgument for what policies.md, "Refused combinations", lists. parse_recipe calls it.
Status validate_recipe(const Recipe& recipe);
// Canonical JSON with every field that applies, except for encoding=raw and recent_share=1, sorted.
// parse_recipe(canonical_recipe(r)) == r except for `preset`.
std::string canonical_recipe(const Recipe& recipe);
// As parse_recipe(), but each thread keeps the last one, because successive segments usually have
// the same. The result is valid until the thread's next call.
Result<const Recipe*> stored_recipe(const std::string& text);
// The canonical recipe written as its preset with the parameters that differ: "snapkv(window=64)".
// parse_recipe() of the result gives the same recipe. Returns `canonical` if `preset` is empty or
// unknown to this build.
std::string recipe_call(const std::string& canonical, const std::string& preset);
// Every preset's name, sorted.
std::vector<std::string> preset_names();

// Budget arithmetic (D2, D3), in integers only (in doubles for kKvpressDouble, for parity). Returns
// the number of entries T of a segment of `num_tokens` > 0 tokens, whose first token has position
// `begin`. T is at least num_layers * num_kv_heads and at most all entries. kBytes is divided by
// record_entry_bytes() (record_format.h); kByteShare counts headers, too. kInvalidArgument if a
// ratio is outside (0, 1], if entries or bytes are 0, if the model's rows cannot have the recipe's
// encoding, or for kLoss.
Result<std::uint64_t> budget_entries(const Recipe& recipe, const ModelSpec& model,
                                     std::uint32_t num_tokens, const Budget& budget,
                                     std::uint32_t begin = 0);

}  // namespace precis

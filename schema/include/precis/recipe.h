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

enum class Scorer : std::uint8_t {
  kStreamingLlm,     // the position itself: recent tokens first
  kWindowAttention,  // softmax attention of the observation queries, pooled (policies.md 1.2, 1.3)
  kKnorm,            // -||k||_2
  kKeydiff,          // -cos(k, mean of unit keys)
  kLagkv,            // spread of a partition normalised by the next one's range (policies.md 2.15)
  kExternal,         // pushed by the client
};
enum class Pool : std::uint8_t { kAvg, kMax };
enum class Reduce : std::uint8_t { kMean, kMax, kSum };
// The order of reducing rows, pooling along tokens, and reducing the query group (policies.md 1.3).
enum class PoolOrder : std::uint8_t { kRowsGroupPool, kRowsPoolGroup };
enum class HeadAllocator : std::uint8_t { kUniform, kAda };
// policies.md D6. The guarantees are joining orders; the blends are cuts at one budget.
enum class AdaMode : std::uint8_t {
  kPaperBlend,
  kRepoBlend,
  kGuaranteeInclWindow,
  kGuaranteeExclWindow,
};
enum class LayerAllocator : std::uint8_t { kUniform };
enum class Selector : std::uint8_t { kTopk, kPartitionTopk };
// kExactFloor: D2. kKvpressDouble: kvpress's double arithmetic, for parity presets alone.
enum class CountRule : std::uint8_t { kExactFloor, kKvpressDouble };

struct Recipe {
  std::string preset;  // the name it was written with; informative, not part of the identity

  Scorer scorer = Scorer::kKeydiff;
  // kWindowAttention.
  std::uint32_t window = 32;  // the last `window` pushed queries observe
  std::uint32_t kernel = 7;   // odd
  Pool pool = Pool::kMax;
  Reduce row_reduce = Reduce::kMean;
  Reduce group_reduce = Reduce::kMean;
  PoolOrder pool_order = PoolOrder::kRowsGroupPool;
  // kLagkv and kPartitionTopk.
  std::uint32_t lag = 128;
  bool lag_kvpress_ranks = false;  // score = rank in its partition / lag, as kvpress does (D17)

  HeadAllocator heads = HeadAllocator::kUniform;
  AdaMode ada_mode = AdaMode::kGuaranteeExclWindow;
  std::uint32_t ada_alpha_ppm = 200000;
  LayerAllocator layers = LayerAllocator::kUniform;
  Selector selector = Selector::kTopk;

  std::uint32_t sinks = 0;        // protected first tokens of the whole path
  std::uint32_t recent = 0;       // protected last tokens of the segment
  bool protect_tail = false;      // kLagkv: the last partition and the remainder are protected (D9)
  std::uint32_t min_entries = 0;  // floor of the budget per head (D3)
  CountRule count_rule = CountRule::kExactFloor;

  // True where the kept set is defined at the requested budget alone (parity presets, blends):
  // inside it, seats go by (score desc, layer asc, head asc, position asc).
  bool is_cut() const {
    return count_rule == CountRule::kKvpressDouble ||
           (heads == HeadAllocator::kAda &&
            (ada_mode == AdaMode::kPaperBlend || ada_mode == AdaMode::kRepoBlend));
  }
  bool needs_queries() const { return scorer == Scorer::kWindowAttention; }
  bool needs_scores() const { return scorer == Scorer::kExternal; }

  bool operator==(const Recipe&) const = default;
};

// The recipe's grammar version; part of the canonical text.
inline constexpr std::uint32_t kRecipeVersion = 1;

// Accepts a preset ("ada_keydiff"), a preset with parameters ("ada_snapkv(alpha=0.05, window=64)")
// or a JSON object of fields. Unknown names, wrong types, out-of-range values and the invalid
// combinations of policies.md section 3 are kInvalidArgument with the reason and the choices; a
// "version" other than kRecipeVersion is kVersionMismatch.
Result<Recipe> parse_recipe(std::string_view text);
// Refuses the invalid combinations; parse_recipe has called it.
Status validate_recipe(const Recipe& recipe);
// Canonical JSON with every field that matters, keys sorted; parse_recipe(canonical(r)) == r but
// for `preset`.
std::string canonical_recipe(const Recipe& recipe);
// Every preset's name, sorted.
std::vector<std::string> preset_names();

// Budget arithmetic (D2, D3), integers only (doubles under kKvpressDouble, for parity).
// The number of entries T of a segment of `num_tokens` tokens, at least num_layers * num_kv_heads
// and at most all; kBytes divides by `entry_bytes` (record_format.h). kInvalidArgument if a ratio
// lies outside (0, 1], or if entries or bytes are 0. `num_tokens` > 0.
Result<std::uint64_t> budget_entries(const Recipe& recipe, const ModelSpec& model,
                                     std::uint32_t num_tokens, const Budget& budget);

}  // namespace precis

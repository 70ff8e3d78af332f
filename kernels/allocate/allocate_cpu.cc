#include "kernels/allocate/allocate.h"

#include <algorithm>

#include "kernels/allocate/layer_turns.h"
#include "kernels/common/segment_shape.h"
#include "kernels/select/best_tokens.h"
#include "kernels/select/select_op.h"

namespace precis::kernels {
namespace {

// Ranked scores of each head, best first, at most `limit` and at most as many as its order lists.
// The k-th entry of an order need not have the head's k-th best score: a selector may order entries
// differently, but heads compete by score.
Ranks best_ranks(const CpuContext& context, const Recipe& recipe, const SegmentShape& shape,
                 const RetentionOrders& orders, std::span<const float> scores,
                 std::uint64_t limit) {
  Ranks ranks(orders.order.size());
  context.pool.parallel_for(ranks.size(), [&](std::size_t h) {
    const std::span<const std::uint32_t> order = orders.order[h];
    const float* of_head = scores.data() + h * shape.num_tokens;
    const std::size_t count = std::min<std::uint64_t>(limit, order.size() - orders.protected_count);
    ranks[h].reserve(count);
    if (recipe.selector == Selector::kTopk) {
      for (const std::uint32_t token : order.subspan(orders.protected_count, count)) {
        ranks[h].push_back(score_rank(of_head[token]));
      }
      return;
    }
    for (const std::uint64_t key :
         best_keys(of_head, shape.sinks, shape.num_tokens - shape.recent, count)) {
      ranks[h].push_back(~static_cast<std::uint32_t>(key >> 32));
    }
  });
  return ranks;
}

}  // namespace

Status allocate_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                    const LayerScores& scores, const RetentionOrders& orders, std::uint64_t slots,
                    LayerTurns& turns) {
  PRECIS_CHECK(orders.order.size() == input.num_kv_heads() && input.layer < input.num_layers);
  turns = {};
  turns.num_tokens = input.num_tokens();
  turns.num_kv_heads = input.num_kv_heads();
  turns.protected_count = orders.protected_count;
  turns.weight = scores.weight;
  slots = std::min(slots, std::uint64_t{turns.num_kv_heads} * turns.num_tokens);
  const SegmentShape shape = SegmentShape::of(recipe, input.layer, input.begin, input.num_tokens());
  Ranks ranks;
  if (const std::uint64_t limit = ranks_wanted(recipe, turns, slots); limit > 0) {
    ranks = best_ranks(context, recipe, shape, orders, scores.scores, limit);
  }
  make_turns(recipe, slots, std::move(ranks), turns);
  return {};
}

}  // namespace precis::kernels

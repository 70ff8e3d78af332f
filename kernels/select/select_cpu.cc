#include "kernels/select/select.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/segment_shape.h"
#include "kernels/select/best_tokens.h"
#include "kernels/select/first_stage_op.h"
#include "kernels/select/ranked_limits_op.h"

namespace precis::kernels {
namespace {

using Order = std::vector<std::uint32_t>;

// One head: its scores, and the order to append its ranked tokens to.
struct HeadTask {
  const SegmentShape& shape;
  const float* scores;
  const float* second;  // null if the selector has one stage
  std::size_t limit;    // how many ranked tokens to append, at most as many as there are
  Order& order;
  std::uint32_t first() const { return shape.sinks; }
  std::uint32_t last() const { return shape.num_tokens - shape.recent; }
};

void append_topk(const HeadTask& head) {
  append_best(head.scores, head.first(), head.last(), head.limit, head.order);
}

void append_partition_topk(const HeadTask& head) {
  const std::uint32_t begin = head.first(), end = head.last(), lag = head.shape.lag;
  const std::size_t whole = (end - begin) / lag;
  // Takes one token at a time from every partition. Only the last partition can be short.
  const std::size_t ranks = whole == 0 ? head.limit : head.limit / whole + 1;
  std::vector<Order> partitions;
  for (std::uint32_t first = begin; first < end;) {
    const std::uint32_t last = end - first > lag ? first + lag : end;
    append_best(head.scores, first, last, ranks, partitions.emplace_back());
    first = last;
  }
  std::size_t left = head.limit;
  for (std::size_t rank = 0; left > 0 && rank < partitions[0].size(); ++rank) {
    for (std::size_t p = 0; left > 0 && p < partitions.size(); ++p) {
      if (rank >= partitions[p].size()) continue;
      head.order.push_back(partitions[p][rank]);
      --left;
    }
  }
}

void append_two_stage(const HeadTask& head, const FirstStage& first_stage) {
  Order by_score, by_second;
  append_best(head.scores, head.first(), head.last(), head.limit, by_score);
  append_best(head.second, head.first(), head.last(), head.limit, by_second);
  std::vector<bool> taken(head.shape.num_tokens);
  std::uint64_t chosen = 0;  // taken by stage 1 so far: a prefix of by_score
  auto next = by_second.begin();
  for (std::size_t ranked = 1; ranked <= by_score.size(); ++ranked) {
    std::uint32_t token = 0;
    bool found = false;
    if (first_stage(ranked) > chosen) {
      token = by_score[chosen++];
      found = !taken[token];  // if stage 2 has taken it, this turn takes stage 2's next token
    }
    if (!found) {
      while (taken[*next]) ++next;
      token = *next;
    }
    taken[token] = true;
    head.order.push_back(token);
  }
}

void append_threshold(const HeadTask& head, std::uint64_t mass_ppm) {
  const auto mass = [&](std::uint32_t t) {
    return head.second[t] > 0 && std::isfinite(head.second[t]) ? double{head.second[t]} : 0.0;
  };
  double total = 0, sum = 0;
  for (std::uint32_t t = head.first(); t < head.last(); ++t) total += mass(t);
  const double target = total * (static_cast<double>(mass_ppm) / static_cast<double>(kPpm));
  Order by_score, by_second;
  append_best(head.scores, head.first(), head.last(), head.limit, by_score);
  append_best(head.second, head.first(), head.last(), head.limit, by_second);
  std::vector<bool> taken(head.shape.num_tokens);
  std::size_t left = head.limit;
  for (const std::uint32_t t : by_second) {
    if (sum >= target) break;
    sum += mass(t);
    taken[t] = true;
    head.order.push_back(t);
    --left;
  }
  // by_score has at least `limit` tokens, so even without the taken tokens it fills the order.
  for (const std::uint32_t t : by_score) {
    if (left == 0) break;
    if (taken[t]) continue;
    head.order.push_back(t);
    --left;
  }
}

// The ranked tokens, run by run.
Order chunk_order(const Recipe& recipe, const SegmentShape& shape, const LayerScores& scores,
                  std::uint32_t num_heads) {
  const std::uint32_t begin = shape.sinks, end = shape.num_tokens - shape.recent;
  std::vector<float> means;  // of each run
  for (std::uint32_t first = begin; first < end; first += std::min(recipe.chunk, end - first)) {
    const std::uint32_t last = first + std::min(recipe.chunk, end - first);
    double sum = 0;
    for (std::size_t h = 0; h < num_heads; ++h) {
      for (std::uint32_t t = first; t < last; ++t) sum += scores.scores[h * shape.num_tokens + t];
    }
    means.push_back(static_cast<float>(sum / (last - first)));
  }
  Order order;
  Order runs;
  append_best(means.data(), 0, static_cast<std::uint32_t>(means.size()), means.size(), runs);
  for (const std::uint32_t run : runs) {
    const std::uint32_t first = begin + run * recipe.chunk;
    for (std::uint32_t t = first; t < first + std::min(recipe.chunk, end - first); ++t) {
      order.push_back(t);
    }
  }
  return order;
}

// RankedLimits of each head.
std::vector<std::size_t> ranked_limits(const Recipe& recipe, const SegmentShape& shape,
                                       std::span<const float> scores, std::uint32_t num_heads,
                                       std::uint64_t slots) {
  const RankedLimits of_layer = RankedLimits::of(recipe, shape, num_heads, slots);
  std::vector<std::size_t> limits(num_heads, of_layer.limit(0));
  if (!of_layer.compete) return limits;
  const auto shares = shares_of_best(scores.data(), shape.num_tokens, num_heads, shape.sinks,
                                     shape.num_tokens - shape.recent, of_layer.wanted);
  for (std::size_t h = 0; h < num_heads; ++h) limits[h] = of_layer.limit(shares[h]);
  return limits;
}

}  // namespace

Status select_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                  const LayerScores& scores, std::uint64_t slots, RetentionOrders& orders) {
  const std::uint32_t n = input.num_tokens(), num_heads = input.num_kv_heads();
  PRECIS_CHECK(scores.scores.size() == std::size_t{num_heads} * n);
  const bool two_scores = needs_second(recipe);
  PRECIS_CHECK(!two_scores || scores.second.size() == scores.scores.size());
  const SegmentShape shape = SegmentShape::of(recipe, input.layer, input.begin, n);
  const FirstStage first_stage = FirstStage::of(recipe, input, shape.protected_count());
  const Order chunks =
      recipe.selector == Selector::kChunk ? chunk_order(recipe, shape, scores, num_heads) : Order();
  slots = std::min(slots, std::uint64_t{num_heads} * n);
  const auto limits = ranked_limits(recipe, shape, scores.scores, num_heads, slots);
  orders.protected_count = shape.protected_count();
  orders.order.resize(num_heads);
  context.pool.parallel_for(num_heads, [&](std::size_t h) {
    Order& order = orders.order[h];
    order.clear();
    order.reserve(shape.protected_count() + limits[h]);
    for (std::uint32_t t = 0; t < shape.sinks; ++t) order.push_back(t);
    for (std::uint32_t i = 1; i <= shape.recent; ++i) order.push_back(n - i);
    const HeadTask head{shape, scores.scores.data() + h * n,
                        two_scores ? scores.second.data() + h * n : nullptr, limits[h], order};
    switch (recipe.selector) {
      case Selector::kTopk: return append_topk(head);
      case Selector::kPartitionTopk: return append_partition_topk(head);
      case Selector::kTwoStage: return append_two_stage(head, first_stage);
      case Selector::kThreshold: return append_threshold(head, recipe.mass_ppm);
      case Selector::kChunk:
        order.insert(order.end(), chunks.begin(),
                     chunks.begin() + static_cast<std::ptrdiff_t>(limits[h]));
        return;
    }
  });
  return {};
}

}  // namespace precis::kernels

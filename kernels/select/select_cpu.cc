#include "kernels/select/select.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/segment_shape.h"
#include "kernels/select/select_op.h"

namespace precis::kernels {
namespace {

constexpr std::uint64_t kPpm = 1'000'000;
using Order = std::vector<std::uint32_t>;

// One head: its scores, and the order to append its ranked tokens to.
struct HeadTask {
  const SegmentShape& shape;
  const float* scores;
  const float* second;  // null where the selector has one stage
  Order& order;
  std::uint32_t first() const { return shape.sinks; }
  std::uint32_t last() const { return shape.num_tokens - shape.recent; }
};

// Tokens [first, last) by (score desc, token asc).
Order sorted_tokens(const float* scores, std::uint32_t first, std::uint32_t last) {
  std::vector<std::uint64_t> keys(last - first);
  for (std::uint32_t t = first; t < last; ++t) keys[t - first] = retention_key(scores[t], t);
  std::sort(keys.begin(), keys.end());
  Order tokens(keys.size());
  std::ranges::transform(keys, tokens.begin(),
                         [](std::uint64_t key) { return static_cast<std::uint32_t>(key); });
  return tokens;
}

void append_topk(const HeadTask& head) {
  const Order tokens = sorted_tokens(head.scores, head.first(), head.last());
  head.order.insert(head.order.end(), tokens.begin(), tokens.end());
}

void append_partition_topk(const HeadTask& head) {
  const std::uint32_t end = head.last(), lag = head.shape.lag;
  std::vector<Order> partitions;
  for (std::uint32_t first = head.first(); first < end;) {
    const std::uint32_t last = end - first > lag ? first + lag : end;
    partitions.push_back(sorted_tokens(head.scores, first, last));
    first = last;
  }
  // Only the last partition can be short, so a rank's takers are a prefix but for that one.
  for (std::size_t rank = 0; !partitions.empty() && rank < partitions[0].size(); ++rank) {
    for (const Order& tokens : partitions) {
      if (rank < tokens.size()) head.order.push_back(tokens[rank]);
    }
  }
}

// How many of a head's first `ranked` ranked entries are chosen by score alone. Grows by at most
// one when `ranked` does.
struct FirstStage {
  std::uint64_t share_ppm = 0;
  std::uint64_t counted = 0;  // protected entries that count inside the share, and are chosen so
  std::uint64_t sure = 0;     // ranked entries chosen by score however few there are

  static FirstStage of(const Recipe& recipe, const LayerInput& input,
                       std::uint32_t protected_count) {
    FirstStage stage{recipe.first_stage_ppm};
    if (recipe.count_rule != CountRule::kKvpressDouble) return stage;
    stage.counted = protected_count;
    if (recipe.heads != HeadAllocator::kAda) return stage;
    // kvpress never takes back what its guarantee has given, so stage 2 cannot replace it.
    const std::uint64_t kept =
        input.entries / (std::uint64_t{input.num_layers} * input.num_kv_heads());
    const std::uint64_t safe = recipe.ada_alpha_ppm * kept / kPpm;
    stage.sure = safe > protected_count ? safe - protected_count : 0;
    return stage;
  }
  std::uint64_t operator()(std::uint64_t ranked) const {
    const std::uint64_t share = share_ppm * (ranked + counted) / kPpm;
    return std::max(std::min(ranked, sure), share > counted ? share - counted : 0);
  }
};

void append_two_stage(const HeadTask& head, const FirstStage& first_stage) {
  const Order by_score = sorted_tokens(head.scores, head.first(), head.last());
  const Order by_second = sorted_tokens(head.second, head.first(), head.last());
  std::vector<bool> taken(head.shape.num_tokens);
  std::uint64_t chosen = 0;  // stage 1 so far: a prefix of by_score
  auto next = by_second.begin();
  for (std::size_t ranked = 1; ranked <= by_score.size(); ++ranked) {
    std::uint32_t token = 0;
    bool found = false;
    if (first_stage(ranked) > chosen) {
      token = by_score[chosen++];
      found = !taken[token];  // else stage 2 had it already, and takes its next one instead
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
  std::vector<bool> taken(head.shape.num_tokens);
  for (const std::uint32_t t : sorted_tokens(head.second, head.first(), head.last())) {
    if (sum >= target) break;
    sum += mass(t);
    taken[t] = true;
    head.order.push_back(t);
  }
  for (const std::uint32_t t : sorted_tokens(head.scores, head.first(), head.last())) {
    if (!taken[t]) head.order.push_back(t);
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
  for (const std::uint32_t run :
       sorted_tokens(means.data(), 0, static_cast<std::uint32_t>(means.size()))) {
    const std::uint32_t first = begin + run * recipe.chunk;
    for (std::uint32_t t = first; t < first + std::min(recipe.chunk, end - first); ++t) {
      order.push_back(t);
    }
  }
  return order;
}

}  // namespace

Status select_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                  const LayerScores& scores, RetentionOrders& orders) {
  const std::uint32_t n = input.num_tokens(), num_heads = input.num_kv_heads();
  PRECIS_CHECK(scores.scores.size() == std::size_t{num_heads} * n);
  const bool two_scores =
      recipe.selector == Selector::kTwoStage || recipe.selector == Selector::kThreshold;
  PRECIS_CHECK(!two_scores || scores.second.size() == scores.scores.size());
  const SegmentShape shape = SegmentShape::of(recipe, input.layer, input.begin, n);
  const FirstStage first_stage = FirstStage::of(recipe, input, shape.protected_count());
  const Order chunks =
      recipe.selector == Selector::kChunk ? chunk_order(recipe, shape, scores, num_heads) : Order();
  orders.protected_count = shape.protected_count();
  orders.order.resize(num_heads);
  context.pool.parallel_for(num_heads, [&](std::size_t h) {
    Order& order = orders.order[h];
    order.clear();
    order.reserve(n);
    for (std::uint32_t t = 0; t < shape.sinks; ++t) order.push_back(t);
    for (std::uint32_t i = 1; i <= shape.recent; ++i) order.push_back(n - i);
    const HeadTask head{shape, scores.scores.data() + h * n,
                        two_scores ? scores.second.data() + h * n : nullptr, order};
    switch (recipe.selector) {
      case Selector::kTopk: return append_topk(head);
      case Selector::kPartitionTopk: return append_partition_topk(head);
      case Selector::kTwoStage: return append_two_stage(head, first_stage);
      case Selector::kThreshold: return append_threshold(head, recipe.mass_ppm);
      case Selector::kChunk: order.insert(order.end(), chunks.begin(), chunks.end()); return;
    }
  });
  return {};
}

}  // namespace precis::kernels

#include "tests/unit/kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>
#include <tuple>

#include "tests/unit/kernels/layer_fixture.h"

namespace precis::kernels::test {
namespace {

// How many of `ranked` entries stage 1 of two_stage chooses, in a head with `p` protected ones.
std::uint64_t stage_one(const Recipe& recipe, const LayerInput& in, std::uint64_t p,
                        std::uint64_t ranked) {
  if (recipe.count_rule == CountRule::kExactFloor) {
    return recipe.first_stage_ppm * ranked / 1'000'000;
  }
  std::uint64_t total = recipe.first_stage_ppm * (p + ranked) / 1'000'000;
  if (recipe.heads == HeadAllocator::kAda) {
    const std::uint64_t kept = in.entries / in.num_layers / in.num_kv_heads();
    total = std::max(total, std::min(p + ranked, recipe.ada_alpha_ppm * kept / 1'000'000));
  }
  return total - std::min(p, total);
}

using Tokens = std::vector<std::uint32_t>;

// One head and its ranked tokens [first, last).
struct HeadView {
  const Recipe& recipe;
  const LayerInput& in;
  const LayerScores& scores;
  std::uint32_t head, first, last;

  Tokens tokens() const {
    Tokens all(last - first);
    std::iota(all.begin(), all.end(), first);
    return all;
  }
  const float* score() const { return scores.scores.data() + head * in.num_tokens(); }
  const float* second() const { return scores.second.data() + head * in.num_tokens(); }
};

Tokens sorted(Tokens tokens, const float* scores) {
  std::sort(tokens.begin(), tokens.end(), [scores](std::uint32_t a, std::uint32_t b) {
    const int order = compare_scores(scores[a], scores[b]);
    return order != 0 ? order < 0 : a < b;
  });
  return tokens;
}

Tokens partition_order(const HeadView& v) {
  std::map<std::uint32_t, std::uint32_t> taken;  // tokens taken from each partition
  std::vector<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>> by_rank;
  for (const std::uint32_t t : sorted(v.tokens(), v.score())) {
    const std::uint32_t partition = (t - v.first) / v.recipe.lag;
    by_rank.emplace_back(taken[partition]++, partition, t);
  }
  std::sort(by_rank.begin(), by_rank.end());
  Tokens out;
  for (const auto& entry : by_rank) out.push_back(std::get<2>(entry));
  return out;
}

// The set that a budget of `ranked` entries keeps, by definition.
std::set<std::uint32_t> two_stage_set(const HeadView& v, std::uint64_t ranked) {
  const std::uint64_t first =
      stage_one(v.recipe, v.in, v.in.num_tokens() - (v.last - v.first), ranked);
  const Tokens by_score = sorted(v.tokens(), v.score());
  std::set<std::uint32_t> kept(by_score.begin(),
                               by_score.begin() + static_cast<std::ptrdiff_t>(first));
  for (const std::uint32_t t : sorted(v.tokens(), v.second())) {
    if (kept.size() < ranked) kept.insert(t);
  }
  return kept;
}

Tokens two_stage_order(const HeadView& v) {
  Tokens out;
  std::set<std::uint32_t> before;
  for (std::uint64_t ranked = 1; ranked <= v.last - v.first; ++ranked) {
    const std::set<std::uint32_t> kept = two_stage_set(v, ranked);
    std::set_difference(kept.begin(), kept.end(), before.begin(), before.end(),
                        std::back_inserter(out));
    if (out.size() != ranked) throw std::logic_error("a larger budget dropped an entry");
    before = kept;
  }
  return out;
}

Tokens threshold_order(const HeadView& v) {
  const auto mass = [&](std::uint32_t t) {
    return std::isfinite(v.second()[t]) ? std::max(0.0f, v.second()[t]) : 0.0f;
  };
  double total = 0, sum = 0;
  for (const std::uint32_t t : v.tokens()) total += mass(t);
  Tokens out;
  for (const std::uint32_t t : sorted(v.tokens(), v.second())) {
    if (sum >= total * (v.recipe.mass_ppm / 1e6)) break;
    sum += mass(t);
    out.push_back(t);
  }
  for (const std::uint32_t t : sorted(v.tokens(), v.score())) {
    if (std::find(out.begin(), out.end(), t) == out.end()) out.push_back(t);
  }
  return out;
}

// Every token has the worth of its run, so each run stays together and its tokens ascend.
Tokens chunk_order(const HeadView& v) {
  std::vector<float> worth(v.in.num_tokens());
  for (const std::uint32_t t : v.tokens()) {
    const std::uint32_t first = t - (t - v.first) % v.recipe.chunk;
    const std::uint32_t last = std::min(v.last, first + v.recipe.chunk);
    double sum = 0;
    for (std::uint32_t h = 0; h < v.in.num_kv_heads(); ++h) {
      for (std::uint32_t i = first; i < last; ++i) {
        sum += v.scores.scores[h * v.in.num_tokens() + i];
      }
    }
    worth[t] = static_cast<float>(sum / (last - first));
  }
  return sorted(v.tokens(), worth.data());
}

Tokens ranked_order(const HeadView& v) {
  switch (v.recipe.selector) {
    case Selector::kTopk: return sorted(v.tokens(), v.score());
    case Selector::kPartitionTopk: return partition_order(v);
    case Selector::kTwoStage: return two_stage_order(v);
    case Selector::kThreshold: return threshold_order(v);
    case Selector::kChunk: return chunk_order(v);
  }
  return {};
}

}  // namespace

int compare_scores(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) - std::isnan(b);
  return a > b ? -1 : a < b ? 1 : 0;
}

std::uint32_t reference_recent(const Recipe& recipe, std::uint32_t n, std::uint32_t sinks) {
  const std::uint64_t share = std::uint64_t{recipe.recent_share_ppm} * n / 1'000'000;
  const std::uint32_t most = share == 0 ? 1 : static_cast<std::uint32_t>(share);
  return std::min({recipe.recent, most, n - sinks});
}

RetentionOrders reference_orders(const Recipe& recipe, const LayerInput& in,
                                 const LayerScores& scores) {
  const std::uint32_t n = in.num_tokens();
  const std::uint32_t sinks = recipe.sinks > in.begin ? std::min(n, recipe.sinks - in.begin) : 0;
  std::uint32_t recent = reference_recent(recipe, n, sinks);
  if (recipe.protect_tail) {
    const std::uint32_t rest = n - sinks;
    recent = rest < 2 * recipe.lag ? rest : std::max(recent, recipe.lag + rest % recipe.lag);
  }
  if (in.layer < recipe.skip_layers) recent = n - sinks;
  RetentionOrders orders;
  orders.protected_count = sinks + recent;
  for (std::uint32_t h = 0; h < in.num_kv_heads(); ++h) {
    const HeadView head{recipe, in, scores, h, sinks, n - recent};
    std::vector<std::uint32_t> order;
    for (std::uint32_t t = 0; t < sinks; ++t) order.push_back(t);
    for (std::uint32_t t = n; t-- > n - recent;) order.push_back(t);
    const Tokens ranked = ranked_order(head);
    order.insert(order.end(), ranked.begin(), ranked.end());
    orders.order.push_back(order);
  }
  return orders;
}

std::vector<std::uint32_t> reference_slots(const Recipe& recipe, const RetentionOrders& orders,
                                           const std::vector<float>& scores,
                                           std::uint32_t num_tokens, std::uint64_t slots) {
  const std::uint32_t heads = static_cast<std::uint32_t>(orders.order.size());
  const std::uint64_t p = orders.protected_count, alpha = recipe.ada_alpha_ppm;
  std::vector<std::uint32_t> out;
  std::vector<std::uint64_t> ranked(heads);  // ranked entries given so far
  const bool uniform = recipe.heads == HeadAllocator::kUniform;
  for (std::uint64_t k = 0; k < (uniform ? num_tokens : p); ++k) {
    for (std::uint32_t h = 0; h < heads; ++h) out.push_back(h);
  }
  const auto next_score = [&](std::uint32_t h) {
    return scores[h * num_tokens + orders.order[h][p + ranked[h]]];
  };
  for (std::uint64_t b = 1; !uniform && b <= num_tokens - p; ++b) {
    std::uint64_t sure = alpha * b / 1'000'000;
    if (recipe.ada_mode == AdaMode::kGuaranteeInclWindow) {
      sure = alpha * (b + p) / 1'000'000;
      sure -= std::min(sure, p);
    }
    for (std::uint32_t h = 0; h < heads; ++h) {
      for (; ranked[h] < sure; ++ranked[h]) out.push_back(h);
    }
    while (out.size() < heads * (p + b)) {
      std::uint32_t best = heads;
      for (std::uint32_t h = 0; h < heads; ++h) {
        if (ranked[h] == num_tokens - p) continue;
        if (best == heads || compare_scores(next_score(h), next_score(best)) < 0) best = h;
      }
      ++ranked[best];
      out.push_back(best);
    }
  }
  out.resize(std::min<std::uint64_t>(slots, out.size()));
  return out;
}

}  // namespace precis::kernels::test

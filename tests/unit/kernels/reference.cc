#include "tests/unit/kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/unit/kernels/layer_fixture.h"

namespace precis::kernels::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Matrix = std::vector<std::vector<double>>;

double product(const HeadsView& a, std::uint32_t ha, std::uint32_t ta, const HeadsView& b,
               std::uint32_t hb, std::uint32_t tb) {
  double sum = 0;
  for (std::uint32_t c = 0; c < a.head_dim; ++c)
    sum += value_at(a, ha, ta, c) * value_at(b, hb, tb, c);
  return sum;
}

// The logits of query i of head q over the tokens it sees.
std::vector<double> visible_logits(const LayerInput& in, std::uint32_t q, std::uint32_t i) {
  const std::uint32_t stands_at = in.num_tokens() - in.queries.num_tokens + i;
  const std::uint32_t group = in.num_q_heads / in.num_kv_heads();
  std::vector<double> logits;
  for (std::uint32_t j = 0; j <= stands_at; ++j) {
    logits.push_back(product(in.queries, q, i, in.keys, q / group, j) /
                     std::sqrt(in.keys.head_dim));
  }
  return logits;
}

double log_sum_exp(const std::vector<double>& logits) {
  double sum = 0;
  for (const double z : logits) sum += std::exp(z);
  return std::log(sum);
}

double reduce(Reduce how, const std::vector<double>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  switch (how) {
    case Reduce::kMean: return sum / static_cast<double>(values.size());
    case Reduce::kSum: return sum;
    case Reduce::kMax: return *std::max_element(values.begin(), values.end());
  }
  return 0;
}

std::vector<double> pool(const Recipe& recipe, const std::vector<double>& x) {
  std::vector<double> out(x.size());
  const int half = static_cast<int>(recipe.kernel / 2), n = static_cast<int>(x.size());
  for (int j = 0; j < n; ++j) {
    double sum = 0, largest = -kInfinity;
    for (int t = j - half; t <= j + half; ++t) {
      if (t < 0 || t >= n) continue;  // zero for the average, -infinity for the maximum
      sum += x[t];
      largest = std::max(largest, x[t]);
    }
    out[j] = recipe.pool == Pool::kMax ? largest : sum / recipe.kernel;
  }
  return out;
}

// Column-wise reduction of rows of equal length.
std::vector<double> reduce_rows(Reduce how, const Matrix& rows) {
  std::vector<double> out(rows[0].size());
  for (std::size_t j = 0; j < out.size(); ++j) {
    std::vector<double> column;
    for (const auto& row : rows) column.push_back(row[j]);
    out[j] = reduce(how, column);
  }
  return out;
}

std::vector<double> window_attention(const Recipe& recipe, const LayerInput& in,
                                     std::uint32_t head) {
  const std::uint32_t m = in.queries.num_tokens, w = std::min(recipe.window, m);
  const std::uint32_t past = in.num_tokens() - w, group = in.num_q_heads / in.num_kv_heads();
  std::vector<double> scores(in.num_tokens(), kInfinity);
  if (past == 0) return scores;
  Matrix heads;
  for (std::uint32_t q = head * group; q < (head + 1) * group; ++q) {
    Matrix rows;
    for (std::uint32_t i = m - w; i < m; ++i) {
      std::vector<double> z = visible_logits(in, q, i);
      const double lse = in.lse.empty() ? log_sum_exp(z) : double{in.lse[q * m + i]};
      for (double& x : z) x = std::exp(x - lse);
      z.resize(past);
      rows.push_back(z);
    }
    heads.push_back(reduce_rows(recipe.row_reduce, rows));
  }
  std::vector<double> result;
  if (recipe.pool_order == PoolOrder::kRowsGroupPool) {
    result = pool(recipe, reduce_rows(recipe.group_reduce, heads));
  } else {
    for (auto& row : heads) row = pool(recipe, row);
    result = reduce_rows(recipe.group_reduce, heads);
  }
  std::copy(result.begin(), result.end(), scores.begin());
  return scores;
}

std::vector<double> keydiff(const LayerInput& in, std::uint32_t head) {
  const HeadsView& k = in.keys;
  std::vector<double> anchor(k.head_dim), scores;
  for (std::uint32_t t = 0; t < k.num_tokens; ++t) {
    const double norm = std::max(1e-12, std::sqrt(product(k, head, t, k, head, t)));
    for (std::uint32_t c = 0; c < k.head_dim; ++c) {
      anchor[c] += value_at(k, head, t, c) / norm / k.num_tokens;
    }
  }
  double length = 0;
  for (const double a : anchor) length += a * a;
  for (std::uint32_t t = 0; t < k.num_tokens; ++t) {
    double along = 0;
    for (std::uint32_t c = 0; c < k.head_dim; ++c) along += value_at(k, head, t, c) * anchor[c];
    const double norm = std::max(1e-12, std::sqrt(product(k, head, t, k, head, t)));
    scores.push_back(-along / norm / std::max(1e-12, std::sqrt(length)));
  }
  return scores;
}

// Softmax over the partition of the spread of its rows in the ranges of the next partition.
std::vector<double> lag_partition(const HeadsView& z, std::uint32_t head, std::uint32_t first,
                                  std::uint32_t lag) {
  std::vector<double> scores(lag);
  double sum = 0;
  for (std::uint32_t j = 0; j < lag; ++j) {
    std::vector<double> x;
    for (std::uint32_t c = 0; c < z.head_dim; ++c) {
      double low = kInfinity, high = -kInfinity;
      for (std::uint32_t t = first + lag; t < first + 2 * lag; ++t) {
        low = std::min(low, value_at(z, head, t, c));
        high = std::max(high, value_at(z, head, t, c));
      }
      x.push_back((value_at(z, head, first + j, c) - low) / (high == low ? 1 : high - low));
    }
    const double mean = reduce(Reduce::kMean, x);
    double square = 0;
    for (const double v : x) square += (v - mean) * (v - mean);
    scores[j] =
        std::exp(x.size() > 1 ? std::sqrt(square / static_cast<double>(x.size() - 1)) : 0.0);
    sum += scores[j];
  }
  for (double& s : scores) s /= sum;
  return scores;
}

std::vector<double> lagkv(const Recipe& recipe, const LayerInput& in, std::uint32_t head) {
  const std::uint32_t n = in.num_tokens(), lag = recipe.lag;
  const std::uint32_t sinks = recipe.sinks > in.begin ? std::min(n, recipe.sinks - in.begin) : 0;
  std::vector<double> scores(n, kInfinity);
  for (std::uint32_t first = sinks; first + 2 * lag <= n; first += lag) {
    const auto k = lag_partition(in.keys, head, first, lag);
    const auto v = lag_partition(in.values, head, first, lag);
    for (std::uint32_t j = 0; j < lag; ++j) {
      scores[first + j] = k[j] + v[j];
      if (!recipe.lag_kvpress_ranks) continue;
      std::uint32_t below = 0;
      for (std::uint32_t i = 0; i < lag; ++i) {
        below += k[i] + v[i] < k[j] + v[j] || (k[i] + v[i] == k[j] + v[j] && i < j);
      }
      scores[first + j] = static_cast<double>(below) / lag;
    }
  }
  return scores;
}

std::vector<double> head_scores(const Recipe& recipe, const LayerInput& in, std::uint32_t head) {
  std::vector<double> scores;
  switch (recipe.scorer) {
    case Scorer::kWindowAttention: return window_attention(recipe, in, head);
    case Scorer::kKeydiff: return keydiff(in, head);
    case Scorer::kLagkv: return lagkv(recipe, in, head);
    case Scorer::kStreamingLlm:
      for (std::uint32_t t = 0; t < in.num_tokens(); ++t) scores.push_back(in.begin + t);
      return scores;
    case Scorer::kKnorm:
      for (std::uint32_t t = 0; t < in.num_tokens(); ++t) {
        scores.push_back(-std::sqrt(product(in.keys, head, t, in.keys, head, t)));
      }
      return scores;
    case Scorer::kExternal:
      for (std::uint32_t t = 0; t < in.num_tokens(); ++t) {
        scores.push_back(in.scores[head * in.num_tokens() + t]);
      }
      return scores;
  }
  return scores;
}

}  // namespace

std::vector<float> reference_lse(const LayerInput& in) {
  std::vector<float> lse;
  for (std::uint32_t q = 0; q < in.num_q_heads; ++q) {
    for (std::uint32_t i = 0; i < in.queries.num_tokens; ++i) {
      lse.push_back(static_cast<float>(log_sum_exp(visible_logits(in, q, i))));
    }
  }
  return lse;
}

std::vector<double> reference_scores(const Recipe& recipe, const LayerInput& in) {
  std::vector<double> all;
  for (std::uint32_t h = 0; h < in.num_kv_heads(); ++h) {
    const auto scores = head_scores(recipe, in, h);
    all.insert(all.end(), scores.begin(), scores.end());
  }
  return all;
}

int compare_scores(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) - std::isnan(b);
  return a > b ? -1 : a < b ? 1 : 0;
}

RetentionOrders reference_orders(const Recipe& recipe, const LayerInput& in,
                                 const std::vector<float>& scores) {
  const std::uint32_t n = in.num_tokens();
  const std::uint32_t sinks = recipe.sinks > in.begin ? std::min(n, recipe.sinks - in.begin) : 0;
  std::uint32_t recent = std::min(recipe.recent, n - sinks);
  if (recipe.protect_tail) {
    const std::uint32_t rest = n - sinks;
    recent = rest < 2 * recipe.lag ? rest : std::max(recent, recipe.lag + rest % recipe.lag);
  }
  RetentionOrders orders;
  orders.protected_count = sinks + recent;
  for (std::uint32_t h = 0; h < in.num_kv_heads(); ++h) {
    const float* s = scores.data() + h * n;
    const auto before = [s](std::uint32_t a, std::uint32_t b) {
      const int order = compare_scores(s[a], s[b]);
      return order != 0 ? order < 0 : a < b;
    };
    std::vector<std::uint32_t> ranked(n - sinks - recent);
    std::iota(ranked.begin(), ranked.end(), sinks);
    const auto partition = [&](std::uint32_t t) { return (t - sinks) / recipe.lag; };
    const auto rank = [&](std::uint32_t t) {
      return std::count_if(ranked.begin(), ranked.end(), [&](std::uint32_t o) {
        return partition(o) == partition(t) && before(o, t);
      });
    };
    std::vector<std::pair<std::ptrdiff_t, std::uint32_t>> by_rank;
    if (recipe.selector == Selector::kPartitionTopk) {
      for (const std::uint32_t t : ranked) by_rank.emplace_back(rank(t), t);
      std::sort(by_rank.begin(), by_rank.end());  // equal ranks: partition, and so token, ascending
      for (std::size_t i = 0; i < ranked.size(); ++i) ranked[i] = by_rank[i].second;
    } else {
      std::sort(ranked.begin(), ranked.end(), before);
    }
    std::vector<std::uint32_t> order;
    for (std::uint32_t t = 0; t < sinks; ++t) order.push_back(t);
    for (std::uint32_t t = n; t-- > n - recent;) order.push_back(t);
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

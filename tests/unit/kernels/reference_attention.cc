#include "tests/unit/kernels/reference_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/unit/kernels/layer_fixture.h"

namespace precis::kernels::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Column = std::vector<double>;
using Matrix = std::vector<std::vector<double>>;

double log_sum_exp(const std::vector<double>& logits) {
  double sum = 0;
  for (const double z : logits) sum += std::exp(z);
  return std::log(sum);
}

// The logits of query i of head q over the tokens that it sees.
std::vector<double> visible_logits(const LayerInput& in, std::uint32_t q, std::uint32_t i,
                                   bool behind) {
  const std::uint32_t n = in.num_tokens();
  const std::uint32_t visible = behind ? n : n - in.queries.num_tokens + i + 1;
  std::vector<double> logits;
  for (std::uint32_t j = 0; j < visible; ++j) {
    double sum = 0;
    for (std::uint32_t c = 0; c < in.keys.head_dim; ++c) {
      sum += value_at(in.queries, q, i, c) * value_at(in.keys, q / in.group(), j, c);
    }
    logits.push_back(sum / std::sqrt(in.keys.head_dim));
  }
  return logits;
}

double mean(const Column& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}
double sum(const Column& x) { return std::accumulate(x.begin(), x.end(), 0.0); }
double largest(const Column& x) { return *std::max_element(x.begin(), x.end()); }
double variance(const Column& x) {
  double squares = 0;
  for (const double v : x) squares += (v - mean(x)) * (v - mean(x));
  return x.size() > 1 ? squares / static_cast<double>(x.size() - 1) : 0;
}

double reduce(Reduce how, const Column& x) {
  return how == Reduce::kMean ? mean(x) : how == Reduce::kSum ? sum(x) : largest(x);
}

double reduce(const Recipe& recipe, const Column& x) {
  switch (recipe.row_reduce) {
    case RowReduce::kMean: return mean(x);
    case RowReduce::kMax: return largest(x);
    case RowReduce::kSum: return sum(x);
    case RowReduce::kSumOfSquares: return std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
    case RowReduce::kMeanVariance: return mean(x) + recipe.gamma_ppm / 1e6 * variance(x);
  }
  return 0;
}

std::vector<double> pool(const Recipe& recipe, const std::vector<double>& x) {
  std::vector<double> out(x.size());
  const int half = static_cast<int>(recipe.kernel / 2), n = static_cast<int>(x.size());
  for (int j = 0; j < n; ++j) {
    double total = 0, top = -kInfinity;
    for (int t = j - half; t <= j + half; ++t) {
      if (t < 0 || t >= n)
        continue;  // counts as zero for the average, as -infinity for the
                   // maximum
      total += x[t];
      top = std::max(top, x[t]);
    }
    out[j] = recipe.pool == Pool::kMax ? top : total / recipe.kernel;
  }
  return out;
}

// Defensive rows keep their mass (policies/scores.md, "DefensiveKV").
std::vector<double> pool_row(const Recipe& recipe, const std::vector<double>& x) {
  std::vector<double> out = pool(recipe, x);
  const double mass = sum(out);
  if (recipe.scorer != Scorer::kDefensive || mass == 0) return out;
  for (double& v : out) v *= sum(x) / mass;
  return out;
}

// A layer's weights: rows[q][i][j], over the scored columns, and how many of the first columns each
// row sees.
struct Attention {
  std::vector<Matrix> rows;
  std::vector<std::size_t> visible;  // [row]
  std::size_t columns = 0;

  // The result of f on column j's values in the rows that see the column.
  template <typename Fn>
  auto of_column(const Matrix& matrix, std::size_t j, const Fn& f) const {
    Column seen;
    for (std::size_t i = 0; i < matrix.size(); ++i) {
      if (visible[i] > j) seen.push_back(matrix[i][j]);
    }
    return f(seen);
  }
};

Attention attention_of(const Recipe& recipe, const LayerInput& in) {
  const std::uint32_t n = in.num_tokens(), m = in.queries.num_tokens;
  const std::uint32_t w = recipe.window == 0 ? m : std::min(recipe.window, m);
  const bool behind = recipe.scorer == Scorer::kKvzip;
  const bool all = recipe.scorer == Scorer::kH2o || recipe.scorer == Scorer::kObservedMean;
  Attention a;
  a.columns = behind || all ? n : n - w;
  for (std::uint32_t i = m - w; i < m; ++i) {
    a.visible.push_back(std::min<std::size_t>(a.columns, behind ? n : n - m + i + 1));
  }
  for (std::uint32_t q = 0; q < in.num_q_heads; ++q) {
    Matrix rows;
    for (std::uint32_t i = m - w; i < m; ++i) {
      std::vector<double> z = visible_logits(in, q, i, behind);
      const double lse = in.lse.empty() ? log_sum_exp(z) : double{in.lse[q * m + i]};
      for (double& x : z) x = std::exp(x - lse);
      z.resize(a.columns);  // zeros for tokens that are not seen
      rows.push_back(z);
    }
    a.rows.push_back(rows);
  }
  return a;
}

std::vector<double> reduce_rows(const Recipe& recipe, const Attention& a, const Matrix& rows) {
  std::vector<double> out;
  for (std::size_t j = 0; j < a.columns; ++j) {
    out.push_back(a.of_column(rows, j, [&](const Column& x) { return reduce(recipe, x); }));
  }
  return out;
}

std::vector<double> reduce_group(Reduce how, const Matrix& heads) {
  std::vector<double> out;
  for (std::size_t j = 0; j < heads[0].size(); ++j) {
    Column column;
    for (const auto& head : heads) column.push_back(head[j]);
    out.push_back(reduce(how, column));
  }
  return out;
}

// One KV head's columns in the recipe's order.
std::vector<double> head_columns(const Recipe& recipe, const Attention& a,
                                 const std::vector<Matrix>& group) {
  Matrix heads;
  switch (recipe.pool_order) {
    case PoolOrder::kRowsGroupPool:
      for (const Matrix& rows : group) heads.push_back(reduce_rows(recipe, a, rows));
      return pool(recipe, reduce_group(recipe.group_reduce, heads));
    case PoolOrder::kRowsPoolGroup:
      for (const Matrix& rows : group) heads.push_back(pool(recipe, reduce_rows(recipe, a, rows)));
      return reduce_group(recipe.group_reduce, heads);
    case PoolOrder::kPoolRowsGroup:
      for (Matrix rows : group) {
        for (auto& row : rows) row = pool_row(recipe, row);
        heads.push_back(reduce_rows(recipe, a, rows));
      }
      return reduce_group(recipe.group_reduce, heads);
    case PoolOrder::kPoolGroupRows: break;
  }
  Matrix rows;
  for (std::size_t i = 0; i < group[0].size(); ++i) {
    Matrix of_row;
    for (const Matrix& matrix : group) of_row.push_back(pool_row(recipe, matrix[i]));
    rows.push_back(reduce_group(recipe.group_reduce, of_row));
  }
  return reduce_rows(recipe, a, rows);
}

double preference(const Recipe& recipe, const Attention& a) {
  double entropy = 0, spread = 0;
  for (const Matrix& rows : a.rows) {
    for (std::size_t j = 0; j < a.columns; ++j) {
      spread += a.of_column(rows, j, variance);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (a.visible[i] > j) entropy -= rows[i][j] * std::log(rows[i][j] + 1e-10);
      }
    }
  }
  return std::pow(entropy, 1e6 / recipe.tau1_ppm) * std::pow(spread, 1e6 / recipe.tau2_ppm);
}

// Turns the columns of every KV head into the scorer's scores.
void finish(const Recipe& recipe, const LayerInput& in, Matrix& heads) {
  const std::size_t n = in.num_tokens(), columns = heads[0].size();
  if (recipe.scorer == Scorer::kTova) {
    const std::vector<double> shared = reduce_group(Reduce::kMean, heads);
    for (auto& head : heads) head = shared;
  }
  if (recipe.scorer == Scorer::kVatp || recipe.scorer == Scorer::kLava) {
    const std::vector<double> norms = reference_norms(ValueNorm::kVL1, in);
    for (std::size_t h = 0; h < heads.size(); ++h) {
      const double top = largest(Column(norms.begin() + h * n, norms.begin() + (h + 1) * n));
      for (std::size_t j = 0; j < columns; ++j) {
        heads[h][j] *= recipe.scorer == Scorer::kLava ? top : norms[h * n + j];
      }
    }
  }
  if (recipe.scorer == Scorer::kDefensive && columns > 0) {
    const std::vector<double> norms = reference_norms(ValueNorm::kL1Exact, in);
    for (auto& head : heads) {
      const double floor = mean(head);
      for (double& x : head) x = std::max(x, floor);
    }
    for (std::size_t j = 0; j < columns; ++j) {
      double total = 0;
      for (std::size_t h = 0; h < heads.size(); ++h) total += norms[h * n + j];
      for (std::size_t h = 0; h < heads.size(); ++h) heads[h][j] *= norms[h * n + j] / total;
    }
  }
}

std::vector<double> flattened(const Matrix& heads, std::uint32_t n) {
  std::vector<double> out;
  for (auto head : heads) {
    head.resize(n, kInfinity);
    out.insert(out.end(), head.begin(), head.end());
  }
  return out;
}

}  // namespace

std::vector<float> reference_lse(const LayerInput& in, bool behind) {
  std::vector<float> lse;
  for (std::uint32_t q = 0; q < in.num_q_heads; ++q) {
    for (std::uint32_t i = 0; i < in.queries.num_tokens; ++i) {
      lse.push_back(static_cast<float>(log_sum_exp(visible_logits(in, q, i, behind))));
    }
  }
  return lse;
}

ReferenceScores reference_attention(const Recipe& recipe, const LayerInput& in) {
  const Attention a = attention_of(recipe, in);
  Matrix heads, means;
  for (std::uint32_t h = 0; h < in.num_kv_heads(); ++h) {
    const auto first = a.rows.begin() + h * in.group();
    const std::vector<Matrix> group(first, first + in.group());
    heads.push_back(head_columns(recipe, a, group));
    Matrix of_heads;
    for (const Matrix& rows : group) of_heads.push_back(reduce_group(Reduce::kMean, rows));
    means.push_back(reduce_group(Reduce::kMean, of_heads));
  }
  finish(recipe, in, heads);
  ReferenceScores out;
  out.scores = flattened(heads, in.num_tokens());
  if (recipe.selector == Selector::kThreshold) out.second = flattened(means, in.num_tokens());
  if (recipe.layers == LayerAllocator::kPreference) out.weight = preference(recipe, a);
  return out;
}

}  // namespace precis::kernels::test

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numeric>

#include "kernels/score/random_op.h"
#include "tests/unit/kernels/layer_fixture.h"
#include "tests/unit/kernels/reference.h"
#include "tests/unit/kernels/reference_attention.h"

namespace precis::kernels::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double product(const HeadsView& a, std::uint32_t ha, std::uint32_t ta, const HeadsView& b,
               std::uint32_t hb, std::uint32_t tb) {
  double sum = 0;
  for (std::uint32_t c = 0; c < a.head_dim; ++c)
    sum += value_at(a, ha, ta, c) * value_at(b, hb, tb, c);
  return sum;
}

using RowsOfHead = std::vector<std::vector<double>>;

RowsOfHead rows_of(const HeadsView& view, std::uint32_t head) {
  RowsOfHead rows(view.num_tokens);
  for (std::uint32_t t = 0; t < view.num_tokens; ++t) {
    for (std::uint32_t c = 0; c < view.head_dim; ++c) {
      rows[t].push_back(value_at(view, head, t, c));
    }
  }
  return rows;
}

double length(const std::vector<double>& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
}

std::vector<double> keydiff(const RowsOfHead& keys) {
  std::vector<double> anchor(keys.front().size()), scores;
  for (const auto& key : keys) {
    const double norm = std::max(1e-12, length(key));
    for (std::size_t c = 0; c < key.size(); ++c) {
      anchor[c] += key[c] / norm / static_cast<double>(keys.size());
    }
  }
  for (const auto& key : keys) {
    const double along = std::inner_product(key.begin(), key.end(), anchor.begin(), 0.0);
    scores.push_back(-along / std::max(1e-12, length(key)) / std::max(1e-12, length(anchor)));
  }
  return scores;
}

// Undoes RoPE with the complex numbers that define it. The first of the keys stands at `begin`.
void turn_back(std::span<const double> frequencies, std::uint32_t begin, RowsOfHead& keys) {
  const std::size_t pairs = frequencies.size();
  for (std::size_t t = 0; t < keys.size(); ++t) {
    for (std::size_t c = 0; c < pairs; ++c) {
      const std::complex<double> turned(keys[t][c], keys[t][c + pairs]);
      const auto before =
          turned * std::polar(1.0, -static_cast<double>(begin + t) * frequencies[c]);
      keys[t][c] = before.real();
      keys[t][c + pairs] = before.imag();
    }
  }
}

std::vector<double> kvdiff(const LayerInput& in, std::uint32_t head) {
  RowsOfHead keys = rows_of(in.keys, head);
  turn_back(in.rope_frequencies, 0, keys);
  std::vector<double> scores = keydiff(keys), norms;
  for (const auto& value : rows_of(in.values, head)) norms.push_back(length(value));
  const double mean =
      std::accumulate(norms.begin(), norms.end(), 0.0) / static_cast<double>(norms.size());
  for (std::size_t t = 0; t < scores.size(); ++t) {
    scores[t] = (1 + scores[t]) * (mean > 1e-12 ? norms[t] / mean : 1);
  }
  return scores;
}

std::vector<double> kvprobe(const LayerInput& in, std::uint32_t head) {
  const ProbeRows rows{in.keys.head_dim};
  const auto probe = in.probe.subspan(std::size_t{head} * rows.count(), rows.count());
  const auto times = [&](const std::vector<double>& x, std::uint32_t first) {
    double sum = 0;
    for (std::size_t c = 0; c < x.size(); ++c) sum += x[c] * probe[first + c];
    return sum;
  };
  RowsOfHead keys = rows_of(in.keys, head);
  turn_back(in.rope_frequencies, in.begin, keys);
  const RowsOfHead values = rows_of(in.values, head);
  const std::vector<double> anchor(probe.begin(), probe.begin() + rows.head_dim);
  std::vector<double> scores;
  for (std::size_t t = 0; t < keys.size(); ++t) {
    const double key_norm = std::max(1e-12, length(keys[t]));
    const double value_norm = std::max(1e-12, length(values[t]));
    const double cosine =
        times(keys[t], rows.anchor()) / key_norm / std::max(1e-12, length(anchor));
    const double difference = std::max(1e-6, 1 - cosine);
    const double log_score =
        times(keys[t], rows.key()) + times(values[t], rows.value()) +
        probe[rows.log_key()] * std::log(key_norm) +
        probe[rows.log_value()] * std::log(value_norm) + probe[rows.difference()] * difference +
        probe[rows.log_difference()] * std::log(difference) +
        probe[rows.distance()] * std::log(1 + static_cast<double>(keys.size() - 1 - t) / 512) +
        probe[rows.constant()];
    scores.push_back(std::exp(std::clamp(log_score, -80.0, 80.0)));
  }
  return scores;
}

// The softmax, over the rows of a partition, of each row's spread. The rows are normalised by the
// ranges of the partition that begins at `ranged`.
std::vector<double> partition(const HeadsView& z, std::uint32_t head, std::uint32_t first,
                              std::uint32_t ranged, std::uint32_t lag) {
  std::vector<double> scores(lag);
  double sum = 0;
  for (std::uint32_t j = 0; j < lag; ++j) {
    std::vector<double> x;
    for (std::uint32_t c = 0; c < z.head_dim; ++c) {
      double low = kInfinity, high = -kInfinity;
      for (std::uint32_t t = ranged; t < ranged + lag; ++t) {
        low = std::min(low, value_at(z, head, t, c));
        high = std::max(high, value_at(z, head, t, c));
      }
      x.push_back((value_at(z, head, first + j, c) - low) / (high == low ? 1 : high - low));
    }
    const double mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
    double square = 0;
    for (const double v : x) square += (v - mean) * (v - mean);
    scores[j] =
        std::exp(x.size() > 1 ? std::sqrt(square / static_cast<double>(x.size() - 1)) : 0.0);
    sum += scores[j];
  }
  for (double& s : scores) s /= sum;
  return scores;
}

std::vector<double> partitions(const Recipe& recipe, const LayerInput& in, std::uint32_t head) {
  const std::uint32_t n = in.num_tokens(), lag = recipe.lag;
  const std::uint32_t sinks = recipe.sinks > in.begin ? std::min(n, recipe.sinks - in.begin) : 0;
  std::vector<double> scores(n, kInfinity);
  for (std::uint32_t first = sinks; first + 2 * lag <= n; first += lag) {
    const std::uint32_t ranged = recipe.scorer == Scorer::kLagkv ? first + lag : first;
    const auto k = partition(in.keys, head, first, ranged, lag);
    const auto v = partition(in.values, head, first, ranged, lag);
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

double quadratic_form(const HeadsView& x, std::uint32_t head, std::uint32_t token,
                      const float* matrix) {
  double sum = 0;
  for (std::uint32_t a = 0; a < x.head_dim; ++a) {
    for (std::uint32_t b = 0; b < x.head_dim; ++b) {
      sum += value_at(x, head, token, a) * matrix[a * x.head_dim + b] * value_at(x, head, token, b);
    }
  }
  return sum;
}

std::vector<double> expected_attention(const Recipe& recipe, const LayerInput& in,
                                       std::uint32_t head) {
  const std::uint32_t n = in.num_tokens(), d = in.keys.head_dim;
  const std::uint32_t sinks = recipe.sinks > in.begin ? std::min(n, recipe.sinks - in.begin) : 0;
  std::vector<double> scores(n);
  for (std::uint32_t q = head * in.group(); q < (head + 1) * in.group(); ++q) {
    std::vector<double> weights(n);
    double total = 0, largest = -kInfinity;
    for (std::uint32_t t = sinks; t < n; ++t) {
      double along = 0;
      for (std::uint32_t c = 0; c < d; ++c) {
        along += in.query_mean[q * d + c] * value_at(in.keys, head, t, c);
      }
      weights[t] = along / std::sqrt(d) +
                   quadratic_form(in.keys, head, t, &in.query_covariance[q * d * d]) / (2.0 * d);
      largest = std::max(largest, weights[t]);
    }
    for (std::uint32_t t = sinks; t < n; ++t) total += std::exp(weights[t] - largest);
    for (std::uint32_t t = sinks; t < n; ++t) {
      scores[t] += std::exp(weights[t] - largest) / total / in.group();
    }
  }
  for (std::uint32_t t = 0; t < n; ++t) {
    if (t < sinks) scores[t] = kInfinity;
    if (!recipe.ea_value_norm) continue;
    scores[t] = (scores[t] + recipe.ea_epsilon_ppm / 1e6) *
                std::sqrt(product(in.values, head, t, in.values, head, t));
  }
  return scores;
}

std::vector<double> head_scores(const Recipe& recipe, const LayerInput& in, std::uint32_t head) {
  const std::uint32_t n = in.num_tokens();
  switch (recipe.scorer) {
    case Scorer::kKeydiff: return keydiff(rows_of(in.keys, head));
    case Scorer::kKvdiff: return kvdiff(in, head);
    case Scorer::kKvprobe: return kvprobe(in, head);
    case Scorer::kLagkv:
    case Scorer::kLocalkv: return partitions(recipe, in, head);
    case Scorer::kExpectedAttention: return expected_attention(recipe, in, head);
    default: break;
  }
  std::vector<double> scores;
  for (std::uint32_t t = 0; t < n; ++t) {
    switch (recipe.scorer) {
      case Scorer::kStreamingLlm: scores.push_back(in.begin + t); break;
      case Scorer::kRandom:
        scores.push_back(random_score(recipe.seed, in.layer, head, in.begin + t));
        break;
      case Scorer::kKnorm:
        scores.push_back(-std::sqrt(product(in.keys, head, t, in.keys, head, t)));
        break;
      default: scores.push_back(in.scores[head * n + t]);
    }
  }
  return scores;
}

// The entropy of the ranked tokens' scores, as shares of their sum, divided by the number of all
// scores.
double entropy_weight(const Recipe& recipe, const LayerInput& in,
                      const std::vector<double>& scores) {
  const std::uint32_t n = in.num_tokens();
  const std::uint32_t sinks = recipe.sinks > in.begin ? std::min(n, recipe.sinks - in.begin) : 0;
  const std::uint32_t recent = reference_recent(recipe, n, sinks);
  std::vector<double> shares;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const bool ranked = i % n >= sinks && i % n + recent < n;
    if (ranked && std::isfinite(scores[i]) && scores[i] > 0) shares.push_back(scores[i]);
  }
  const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
  double entropy = 0;
  for (const double s : shares) entropy -= s / total * std::log(s / total);
  return entropy / static_cast<double>(scores.size());
}

}  // namespace

std::vector<float> reference_gram(const LayerInput& in) {
  const std::uint32_t d = in.keys.head_dim;
  const HeadsView w =
      HeadsView::packed(in.o_proj.data, in.num_q_heads, d, in.o_proj.width, in.o_proj.dtype);
  std::vector<float> gram;
  for (std::uint32_t q = 0; q < in.num_q_heads; ++q) {
    for (std::uint32_t a = 0; a < d; ++a) {
      for (std::uint32_t b = 0; b < d; ++b) {
        gram.push_back(static_cast<float>(product(w, q, a, w, q, b)));
      }
    }
  }
  return gram;
}

std::vector<double> reference_norms(ValueNorm norm, const LayerInput& in) {
  const std::uint32_t d = in.keys.head_dim, group = in.group();
  const HeadsView w =
      HeadsView::packed(in.o_proj.data, in.num_q_heads, d, in.o_proj.width, in.o_proj.dtype);
  std::vector<double> norms;
  for (std::uint32_t h = 0; h < in.num_kv_heads(); ++h) {
    for (std::uint32_t t = 0; t < in.num_tokens(); ++t) {
      double sum = 0;
      for (std::uint32_t q = h * group; q < (h + 1) * group; ++q) {
        if (norm == ValueNorm::kL2Gram) {
          sum += std::sqrt(quadratic_form(in.values, h, t, &in.o_proj.gram[q * d * d])) / group;
        }
        for (std::uint32_t x = 0; norm == ValueNorm::kL1Exact && x < w.head_dim; ++x) {
          double output = 0;
          for (std::uint32_t c = 0; c < d; ++c) {
            output += value_at(in.values, h, t, c) * value_at(w, q, c, x);
          }
          sum += std::fabs(output) / group;
        }
      }
      for (std::uint32_t c = 0; norm == ValueNorm::kVL1 && c < d; ++c) {
        sum += std::fabs(value_at(in.values, h, t, c));
      }
      norms.push_back(sum);
    }
  }
  return norms;
}

namespace {

double gram_rounding(const LayerInput& in, std::uint32_t h, std::uint32_t t, const float* gram) {
  const std::uint32_t d = in.keys.head_dim;
  double form = 0, products = 0;
  for (std::uint32_t a = 0; a < d; ++a) {
    for (std::uint32_t b = 0; b < d; ++b) {
      const double term =
          value_at(in.values, h, t, a) * gram[a * d + b] * value_at(in.values, h, t, b);
      form += term;
      products += std::fabs(term);
    }
  }
  const double off = std::ldexp(products, -20);
  return form > off ? off / std::sqrt(form) : std::sqrt(off);
}

double output_rounding(const LayerInput& in, std::uint32_t h, std::uint32_t t, const HeadsView& w,
                       std::uint32_t q) {
  double products = 0;
  for (std::uint32_t c = 0; c < in.keys.head_dim; ++c) {
    double weights = 0;
    for (std::uint32_t x = 0; x < w.head_dim; ++x) weights += std::fabs(value_at(w, q, c, x));
    products += std::fabs(value_at(in.values, h, t, c)) * weights;
  }
  return std::ldexp(products, -20);
}

}  // namespace

std::vector<double> norm_rounding(ValueNorm norm, const LayerInput& in) {
  std::vector<double> bounds(std::size_t{in.num_kv_heads()} * in.num_tokens());
  if (norm != ValueNorm::kL2Gram && norm != ValueNorm::kL1Exact) return bounds;
  const std::uint32_t d = in.keys.head_dim, n = in.num_tokens();
  const HeadsView w =
      HeadsView::packed(in.o_proj.data, in.num_q_heads, d, in.o_proj.width, in.o_proj.dtype);
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    const auto h = static_cast<std::uint32_t>(i / n), t = static_cast<std::uint32_t>(i % n);
    for (std::uint32_t q = h * in.group(); q < (h + 1) * in.group(); ++q) {
      const double off = norm == ValueNorm::kL2Gram
                             ? gram_rounding(in, h, t, &in.o_proj.gram[std::size_t{q} * d * d])
                             : output_rounding(in, h, t, w, q);
      bounds[i] += off / in.group();
    }
  }
  return bounds;
}

ReferenceScores reference_layer_scores(const Recipe& recipe, const LayerInput& in) {
  ReferenceScores out;
  if (is_attention(recipe.scorer)) {
    out = reference_attention(recipe, in);
  } else {
    for (std::uint32_t h = 0; h < in.num_kv_heads(); ++h) {
      const auto scores = head_scores(recipe, in, h);
      out.scores.insert(out.scores.end(), scores.begin(), scores.end());
    }
  }
  if (recipe.selector == Selector::kTwoStage) {
    out.second = reference_norms(recipe.value_norm, in);
    for (std::size_t i = 0; i < out.second.size(); ++i) {
      out.second[i] *= out.scores[i] + recipe.epsilon_ppm / 1e6;
    }
  }
  if (recipe.layers == LayerAllocator::kEntropy) {
    out.weight = entropy_weight(recipe, in, out.scores);
  }
  return out;
}

std::vector<double> reference_scores(const Recipe& recipe, const LayerInput& in) {
  return reference_layer_scores(recipe, in).scores;
}

std::string first_difference(std::span<const float> got, std::span<const double> expected,
                             double relative, double absolute) {
  return first_difference(got, expected, relative, std::vector<double>(got.size(), absolute));
}

std::string first_difference(std::span<const float> got, std::span<const double> expected,
                             double relative, std::span<const double> absolute) {
  if (got.size() != expected.size() || absolute.size() != expected.size()) {
    return std::to_string(got.size()) + " scores";
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i]) continue;
    if (std::fabs(got[i] - expected[i]) <= absolute[i] + relative * std::fabs(expected[i]))
      continue;
    return "score " + std::to_string(i) + " is " + std::to_string(got[i]) + ", expected " +
           std::to_string(expected[i]);
  }
  return {};
}

}  // namespace precis::kernels::test

#include "kernels/check/check.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "kernels/check/finite.h"
#include "kernels/common/isa.h"
#include "kernels/common/lanes.h"
#include "precis/limits.h"
#include "precis/profile.h"

namespace precis::kernels {
namespace {

std::string text(std::uint64_t value) { return std::to_string(value); }

Status in_range(std::string_view what, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  if (value >= low && value <= high) return {};
  return Status::invalid(std::string(what) + " is " + text(value) + ", must be in [" + text(low) +
                         ", " + text(high) + "]");
}

Status equal(std::string_view what, std::uint64_t value, std::uint64_t expected) {
  if (value == expected) return {};
  return Status::invalid(std::string(what) + " is " + text(value) + ", must be " + text(expected));
}

// Checks the properties that every tensor must have by itself.
Status check_view(const HeadsView& view) {
  if (view.empty()) return Status::invalid("not pushed");
  PRECIS_TRY(check_dtype(view.dtype));
  PRECIS_TRY(in_range("head_dim", view.head_dim, 1, limits::kHeadDimMax));
  const std::size_t align = dtype_size_bytes(view.dtype);
  if (reinterpret_cast<std::uintptr_t>(view.data) % align != 0 ||
      view.head_stride_bytes % align != 0) {
    return Status::invalid("data or head stride is not a multiple of " + text(align) + " bytes");
  }
  if (view.num_heads > 1 && view.head_stride_bytes < view.head_bytes()) {
    return Status::invalid("head stride " + text(view.head_stride_bytes) +
                           " B is less than a head's " + text(view.head_bytes()) + " B");
  }
  return {};
}

Status like_keys(const HeadsView& view, const HeadsView& keys) {
  PRECIS_TRY(check_view(view));
  PRECIS_TRY(equal("head_dim", view.head_dim, keys.head_dim));
  if (view.dtype == keys.dtype) return {};
  return Status::invalid("dtype is " + std::string(dtype_name(view.dtype)) + ", the keys' is " +
                         std::string(dtype_name(keys.dtype)));
}

Status check_keys(const LayerInput& input) {
  const HeadsView& keys = input.keys;
  PRECIS_TRY(check_view(keys));
  PRECIS_TRY(in_range("num_heads", keys.num_heads, 1, limits::kKvHeadsMax));
  if (keys.num_tokens == 0) return Status::invalid("the segment has no tokens");
  if (input.begin > limits::kPathTokensMax ||
      keys.num_tokens > limits::kPathTokensMax - input.begin) {
    return Status::invalid("token " + text(std::uint64_t{input.begin} + keys.num_tokens) +
                           " lies beyond the limit of " + text(limits::kPathTokensMax));
  }
  const std::uint64_t seats = std::uint64_t{input.num_layers} * keys.num_heads * keys.num_tokens;
  return in_range("entries of the segment", seats, 1, std::numeric_limits<std::uint32_t>::max());
}

Status not_pushed(std::string_view what) {
  return Status::invalid(std::string(what) + ": not pushed; the scorer needs them");
}

Status check_queries(const Recipe& recipe, const LayerInput& input) {
  if (input.queries.empty()) {
    if (!input.lse.empty()) return Status::invalid("queries: not pushed, but lse is");
    return recipe.needs_queries() ? not_pushed("queries") : Status{};
  }
  if (Status s = like_keys(input.queries, input.keys); !s.ok()) return s.with_context("queries");
  PRECIS_TRY(equal("queries: num_heads", input.queries.num_heads, input.num_q_heads));
  const std::uint32_t n = input.num_tokens(), pushed = input.queries.num_tokens;
  // Queries of needs_lse recipes stand after the segment, so its length does not limit their
  // number.
  PRECIS_TRY(in_range("queries: num_tokens", pushed, 1,
                      recipe.needs_lse() ? limits::kObservationQueriesMax
                                         : std::min(limits::kObservationQueriesMax, n)));
  const std::uint32_t window = recipe.window == 0 ? n : std::min(recipe.window, n);
  if (recipe.scorer == Scorer::kObservedMean && pushed < window) {
    return Status::invalid("queries: num_tokens is " + text(pushed) +
                           ", scorer observed_mean needs " + text(window) +
                           (window == n ? ", those of all tokens" : ""));
  }
  if (recipe.needs_lse() && input.lse.empty()) return not_pushed("lse");
  if (input.lse.empty()) return {};
  return equal("lse: size", input.lse.size(), std::uint64_t{input.num_q_heads} * pushed);
}

Status check_query_stats(const Recipe& recipe, const LayerInput& input) {
  const std::uint64_t mean_size = std::uint64_t{input.num_q_heads} * input.keys.head_dim;
  if (recipe.needs_query_stats() && input.query_mean.empty()) return not_pushed("query_mean");
  if (recipe.needs_query_stats() && input.query_covariance.empty()) {
    return not_pushed("query_covariance");
  }
  if (!input.query_mean.empty()) {
    PRECIS_TRY(equal("query_mean: size", input.query_mean.size(), mean_size));
  }
  if (input.query_covariance.empty()) return {};
  return equal("query_covariance: size", input.query_covariance.size(),
               mean_size * input.keys.head_dim);
}

// Checks dimensions only; the elements were checked at registration.
Status check_o_proj(const Recipe& recipe, const LayerInput& input) {
  const OutputProjection& o_proj = input.o_proj;
  if (recipe.needs_o_proj()) {
    const bool gram =
        recipe.selector == Selector::kTwoStage && recipe.value_norm == ValueNorm::kL2Gram;
    if (gram && o_proj.gram.empty()) {
      return Status::invalid("o_proj: no Gram matrices, value_norm=l2_gram needs them");
    }
    if (!gram && o_proj.data == nullptr) {
      return Status::invalid("o_proj: none is registered with the model, the recipe needs it");
    }
  }
  if (o_proj.data != nullptr) {
    if (Status s = check_dtype(o_proj.dtype); !s.ok()) return s.with_context("o_proj");
    if (o_proj.dtype == Dtype::kF8E4M3) {
      return Status::invalid("o_proj: dtype is f8_e4m3; weights must be bf16, f16 or f32");
    }
    if (o_proj.width == 0) return Status::invalid("o_proj: width is 0");
  }
  if (o_proj.gram.empty()) return {};
  return equal("o_proj: size of the Gram matrices", o_proj.gram.size(),
               std::uint64_t{input.num_q_heads} * input.keys.head_dim * input.keys.head_dim);
}

Status check_scores(const Recipe& recipe, const LayerInput& input) {
  if (input.scores.empty()) return recipe.needs_scores() ? not_pushed("scores") : Status{};
  return equal("scores: size", input.scores.size(),
               std::uint64_t{input.num_kv_heads()} * input.num_tokens());
}

Status check_probe(const Recipe& recipe, const LayerInput& input) {
  if (!recipe.needs_probe()) return {};
  return equal("probe: size", input.probe.size(),
               std::uint64_t{input.num_kv_heads()} * ProbeRows{input.keys.head_dim}.count());
}

Status check_shapes(const Recipe& recipe, const LayerInput& input) {
  if (Status s = check_keys(input); !s.ok()) return s.with_context("keys");
  if (Status s = like_keys(input.values, input.keys); !s.ok()) return s.with_context("values");
  PRECIS_TRY(equal("values: num_heads", input.values.num_heads, input.num_kv_heads()));
  PRECIS_TRY(equal("values: num_tokens", input.values.num_tokens, input.num_tokens()));
  PRECIS_TRY(in_range("num_q_heads", input.num_q_heads, 1, limits::kQHeadsMax));
  if (input.num_q_heads % input.num_kv_heads() != 0) {
    return Status::invalid("num_q_heads " + text(input.num_q_heads) +
                           " is not a multiple of the keys' " + text(input.num_kv_heads()) +
                           " heads");
  }
  PRECIS_TRY(check_queries(recipe, input));
  PRECIS_TRY(check_query_stats(recipe, input));
  PRECIS_TRY(check_o_proj(recipe, input));
  PRECIS_TRY(
      in_range("rope_frequencies", input.rope_frequencies.size(), 0, input.keys.head_dim / 2));
  PRECIS_TRY(check_probe(recipe, input));
  return check_scores(recipe, input);
}

// "NaN at head 1, token 5" for the first bad element of a head that has one.
Status name_first(const HeadsView& view, std::uint32_t head) {
  std::vector<float> row(view.head_dim);
  for (std::uint32_t t = 0; t < view.num_tokens; ++t) {
    const float* x = widen(view.dtype, view.row(head, t), view.head_dim, row.data());
    for (std::uint32_t c = 0; c < view.head_dim; ++c) {
      if (std::isfinite(x[c])) continue;
      return Status::invalid(std::string(std::isnan(x[c]) ? "NaN" : "infinity") + " at head " +
                             text(head) + ", token " + text(t));
    }
  }
  return Status::invalid(
      "a value changed while it was being checked: rows must stay as they are "
      "until they are taken in");
}

Status check_finite(const CpuContext& context, const HeadsView& view) {
  constexpr std::size_t kPieceTokens = 1024;
  const std::size_t pieces = (view.num_tokens + kPieceTokens - 1) / kPieceTokens;
  const auto scan = for_isa<&any_not_finite>(context.isa);
  std::atomic<std::uint32_t> first_bad{view.num_heads};
  context.pool.parallel_for(view.num_heads * pieces, [&](std::size_t i) {
    const auto head = static_cast<std::uint32_t>(i / pieces);
    const std::size_t first = i % pieces * kPieceTokens;
    const std::size_t tokens = std::min(kPieceTokens, view.num_tokens - first);
    if (!scan(view.dtype, view.head(head) + first * view.row_bytes(), tokens * view.head_dim))
      return;
    std::uint32_t seen = first_bad.load();
    while (head < seen && !first_bad.compare_exchange_weak(seen, head)) {
    }
  });
  return first_bad < view.num_heads ? name_first(view, first_bad) : Status{};
}

// `values` holds `row` elements per query head; `what` names one element in the error.
Status check_finite(std::span<const float> values, std::size_t row, std::string_view what) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return Status::invalid(std::string(std::isnan(values[i]) ? "NaN" : "infinity") + " at head " +
                           text(i / row) + ", " + std::string(what) + " " + text(i % row));
  }
  return {};
}

// Checks all values except keys and values, which are far larger.
Status check_observations(const CpuContext& context, const LayerInput& input) {
  if (Status s = check_finite(context, input.queries); !s.ok()) return s.with_context("queries");
  if (Status s = check_finite(input.lse, input.queries.num_tokens, "token"); !s.ok()) {
    return s.with_context("lse");
  }
  const std::size_t dim = input.keys.head_dim;
  if (Status s = check_finite(input.query_mean, dim, "channel"); !s.ok()) {
    return s.with_context("query_mean");
  }
  if (Status s = check_finite(input.query_covariance, dim * dim, "element"); !s.ok()) {
    return s.with_context("query_covariance");
  }
  return {};
}

// "layer 3 keys: NaN at head 1, token 5"
Status of_layer(const LayerInput& input, Status status) {
  if (status.ok()) return status;
  return {status.code(), "layer " + text(input.layer) + " " + status.message()};
}

}  // namespace

Status check_but_rows_cpu(const CpuContext& context, const Recipe& recipe,
                          const LayerInput& input) {
  PRECIS_TRY(validate_recipe(recipe));
  PRECIS_TRY(in_range("num_layers", input.num_layers, 1, limits::kLayersMax));
  PRECIS_TRY(in_range("layer index", input.layer, 0, input.num_layers - 1));
  PRECIS_TRY(of_layer(input, check_shapes(recipe, input)));
  return of_layer(input, check_observations(context, input));
}

Status check_rows_cpu(const CpuContext& context, const LayerInput& input) {
  if (Status s = check_finite(context, input.keys); !s.ok()) {
    return of_layer(input, s.with_context("keys"));
  }
  return of_layer(input, check_finite(context, input.values).with_context("values"));
}

Status check_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input) {
  PRECIS_TRY(check_but_rows_cpu(context, recipe, input));
  return check_rows_cpu(context, input);
}

}  // namespace precis::kernels

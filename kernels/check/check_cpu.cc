#include "kernels/check/check.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "kernels/common/isa.h"
#include "kernels/common/lanes.h"
#include "precis/limits.h"

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

// What holds for every tensor alone.
Status check_view(const HeadsView& view) {
  if (view.empty()) return Status::invalid("not pushed");
  if (view.dtype != Dtype::kBf16 && view.dtype != Dtype::kF16 && view.dtype != Dtype::kF32) {
    return Status::invalid("dtype " + text(static_cast<std::uint8_t>(view.dtype)) +
                           " is unknown, choose bf16, f16 or f32");
  }
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

Status check_queries(const Recipe& recipe, const LayerInput& input) {
  if (input.queries.empty()) {
    if (!input.lse.empty()) return Status::invalid("not pushed, but lse is");
    return recipe.needs_queries() ? Status::invalid("not pushed; the scorer needs them") : Status{};
  }
  PRECIS_TRY(like_keys(input.queries, input.keys));
  PRECIS_TRY(equal("num_heads", input.queries.num_heads, input.num_q_heads));
  return in_range("num_tokens", input.queries.num_tokens, 1,
                  std::min(limits::kObservationQueriesMax, input.num_tokens()));
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
  if (Status s = check_queries(recipe, input); !s.ok()) return s.with_context("queries");
  if (!input.lse.empty()) {
    PRECIS_TRY(equal("lse: size", input.lse.size(),
                     std::uint64_t{input.num_q_heads} * input.queries.num_tokens));
  }
  if (recipe.needs_scores() && input.scores.empty()) {
    return Status::invalid("scores: not pushed; the scorer needs them");
  }
  if (!input.scores.empty()) {
    PRECIS_TRY(equal("scores: size", input.scores.size(),
                     std::uint64_t{input.num_kv_heads()} * input.num_tokens()));
  }
  return {};
}

PRECIS_INLINE bool any_not_finite(Dtype dtype, const std::byte* data, std::size_t count) {
  if (dtype == Dtype::kF32) {
    const auto* x = reinterpret_cast<const std::uint32_t*>(data);
    std::uint32_t bad = 0;
    for (std::size_t i = 0; i < count; ++i) {
      bad |= static_cast<std::uint32_t>((x[i] & kF32ExponentBits) == kF32ExponentBits);
    }
    return bad != 0;
  }
  const std::uint16_t mask = dtype == Dtype::kBf16 ? kBf16ExponentBits : kF16ExponentBits;
  const auto* x = reinterpret_cast<const std::uint16_t*>(data);
  std::uint16_t bad = 0;
  for (std::size_t i = 0; i < count; ++i) {
    bad = static_cast<std::uint16_t>(bad | static_cast<std::uint16_t>((x[i] & mask) == mask));
  }
  return bad != 0;
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
  return Status::internal("a value changed while it was being checked");
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

Status check_lse(const LayerInput& input) {
  for (std::size_t i = 0; i < input.lse.size(); ++i) {
    if (std::isfinite(input.lse[i])) continue;
    return Status::invalid(std::string(std::isnan(input.lse[i]) ? "NaN" : "infinity") +
                           " at head " + text(i / input.queries.num_tokens) + ", token " +
                           text(i % input.queries.num_tokens));
  }
  return {};
}

Status check_layer(const CpuContext& context, const Recipe& recipe, const LayerInput& input) {
  PRECIS_TRY(check_shapes(recipe, input));
  if (Status s = check_finite(context, input.keys); !s.ok()) return s.with_context("keys");
  if (Status s = check_finite(context, input.values); !s.ok()) return s.with_context("values");
  if (Status s = check_finite(context, input.queries); !s.ok()) return s.with_context("queries");
  if (Status s = check_lse(input); !s.ok()) return s.with_context("lse");
  return {};
}

}  // namespace

Status check_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input) {
  PRECIS_TRY(validate_recipe(recipe));
  PRECIS_TRY(in_range("num_layers", input.num_layers, 1, limits::kLayersMax));
  PRECIS_TRY(in_range("layer index", input.layer, 0, input.num_layers - 1));
  const Status status = check_layer(context, recipe, input);
  if (status.ok()) return status;
  // "layer 3 keys: NaN at head 1, token 5"
  return {status.code(), "layer " + text(input.layer) + " " + status.message()};
}

}  // namespace precis::kernels

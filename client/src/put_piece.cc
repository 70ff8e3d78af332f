#include "client/src/put_piece.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace precis {
namespace {

std::string text(std::uint64_t n) { return std::to_string(n); }

// The checks that keys, values and queries share.
Status check_view(const ModelSpec& model, const char* name, const HeadsView& view) {
  if (view.dtype != model.dtype) {
    return Status::invalid(std::string(name) + " are " + std::string(dtype_name(view.dtype)) +
                           ", the model's are " + std::string(dtype_name(model.dtype)));
  }
  if (view.head_dim != model.head_dim) {
    return Status::invalid(std::string(name) + " have head_dim " + text(view.head_dim) +
                           ", the model has " + text(model.head_dim));
  }
  if (view.num_heads > 1 && view.head_stride_bytes < view.head_bytes()) {
    return Status::invalid(std::string(name) + " have heads " + text(view.head_stride_bytes) +
                           " B apart, each of them is " + text(view.head_bytes()) + " B");
  }
  return {};
}

Status check_shapes(const ModelSpec& model, const LayerPush& push) {
  if (push.keys.empty()) return Status::invalid("keys are missing");
  if (push.values.empty()) return Status::invalid("values are missing");
  PRECIS_TRY(check_view(model, "keys", push.keys));
  PRECIS_TRY(check_view(model, "values", push.values));
  const std::uint32_t heads = push.keys.num_heads;
  if (heads != push.values.num_heads || push.keys.num_tokens != push.values.num_tokens) {
    return Status::invalid("keys are [" + text(heads) + ", " + text(push.keys.num_tokens) +
                           ", d], values [" + text(push.values.num_heads) + ", " +
                           text(push.values.num_tokens) + ", d]: they must have the same shape");
  }
  if (heads == 0 || push.head_begin >= model.num_kv_heads ||
      heads > model.num_kv_heads - push.head_begin) {
    return Status::invalid("keys are [" + text(heads) + ", " + text(push.keys.num_tokens) + ", " +
                           text(push.keys.head_dim) + "] from head " + text(push.head_begin) +
                           ", must be [num_kv_heads, n, head_dim] of the model's " +
                           text(model.num_kv_heads) + " KV heads");
  }
  return {};
}

// Views of the whole path's keys and values become views of the new tokens.
void cut_to_new_tokens(const msg::PutBegun& begun, PutPiece& piece) {
  LayerPush& push = piece.push;
  for (HeadsView* view : {&push.keys, &push.values}) {
    view->data += begun.begin * view->row_bytes();
    view->num_tokens = begun.end - begun.begin;
  }
  if (push.scores.size() != std::size_t{push.keys.num_heads} * begun.end) return;
  for (std::uint32_t h = 0; h < push.keys.num_heads; ++h) {
    const auto row = push.scores.subspan(std::size_t{h} * begun.end, begun.end);
    piece.packed_scores.insert(piece.packed_scores.end(), row.begin() + begun.begin, row.end());
  }
  push.scores = piece.packed_scores;
}

Status check_tokens(const msg::PutBegun& begun, const LayerPush& push) {
  const std::uint32_t new_tokens = begun.end - begun.begin;
  const std::uint32_t n = push.keys.num_tokens;
  if (n > 0 && push.token_begin < new_tokens && n <= new_tokens - push.token_begin) return {};
  std::string must =
      text(new_tokens) + " new tokens [" + text(begun.begin) + ", " + text(begun.end) + ")";
  if (begun.begin > 0) must += ", or all " + text(begun.end) + " tokens of the path";
  return Status::invalid("keys are of " + text(n) + " tokens from token " + text(push.token_begin) +
                         ", the put has " + must);
}

Status check_statistics(const ModelSpec& model, const LayerPush& push) {
  if (push.query_mean.empty() && push.query_covariance.empty()) return {};
  const std::size_t q_heads = push.keys.num_heads * (model.num_q_heads / model.num_kv_heads);
  const std::size_t means = q_heads * model.head_dim;
  if (push.query_mean.size() == means && push.query_covariance.size() == means * model.head_dim) {
    return {};
  }
  return Status::invalid("query_mean has " + text(push.query_mean.size()) +
                         " values, query_covariance " + text(push.query_covariance.size()) +
                         ", must be [" + text(q_heads) + ", " + text(model.head_dim) + "] and [" +
                         text(q_heads) + ", " + text(model.head_dim) + ", " + text(model.head_dim) +
                         "]");
}

Status check_queries(const ModelSpec& model, const Recipe& recipe, const msg::PutBegun& begun,
                     const LayerPush& push) {
  const std::uint32_t q_heads = push.keys.num_heads * (model.num_q_heads / model.num_kv_heads);
  if (push.queries.empty()) {
    if (push.lse.empty()) return {};
    return Status::invalid("an lse was pushed without queries");
  }
  PRECIS_TRY(check_view(model, "queries", push.queries));
  if (push.queries.num_heads != q_heads) {
    return Status::invalid("queries have " + text(push.queries.num_heads) + " heads, " +
                           text(push.keys.num_heads) + " KV heads need " + text(q_heads));
  }
  const std::uint32_t m = push.queries.num_tokens;
  const std::uint32_t most = recipe.queries_max(begun.end - begun.begin);
  if (m == 0 || m > most) {
    return Status::invalid("queries of " + text(m) + " tokens, must be " +
                           (recipe.needs_lse() ? "1 to " : "the last 1 to ") + text(most) +
                           (recipe.needs_lse() ? "" : " of the put"));
  }
  if (!push.lse.empty() && push.lse.size() != std::size_t{q_heads} * m) {
    return Status::invalid("lse has " + text(push.lse.size()) + " values, must be [" +
                           text(q_heads) + ", " + text(m) + "] like the queries");
  }
  return {};
}

// A piece with all tokens of the put must bring the inputs that the recipe needs. For other pieces
// the service checks that, when the layer is complete.
Status check_needs(const Recipe& recipe, const msg::PutBegun& begun, const LayerPush& push) {
  if (push.keys.num_tokens != begun.end - begun.begin) return {};
  if (recipe.needs_queries() && push.queries.empty()) {
    return Status::invalid("queries are missing: the recipe observes " +
                           (recipe.window == 0 ? std::string("queries of every token")
                                               : "the last " + text(recipe.window) + " queries") +
                           " in every layer");
  }
  if (recipe.needs_lse() && push.lse.empty()) {
    return Status::invalid("lse is missing: the recipe needs the queries' log-sum-exp");
  }
  if (recipe.needs_query_stats() && push.query_mean.empty()) {
    return Status::invalid(
        "query_mean and query_covariance are missing: the recipe computes attention from them");
  }
  if (recipe.needs_scores() && push.scores.empty()) {
    return Status::invalid("scores are missing: the recipe ranks by scores that you push");
  }
  return {};
}

Status check_scores(const LayerPush& push) {
  const std::size_t must = std::size_t{push.keys.num_heads} * push.keys.num_tokens;
  if (push.scores.empty() || push.scores.size() == must) return {};
  return Status::invalid("scores have " + text(push.scores.size()) + " values, must be [" +
                         text(push.keys.num_heads) + ", " + text(push.keys.num_tokens) +
                         "] like the keys");
}

void pack_queries(PutPiece& piece) {
  HeadsView& queries = piece.push.queries;
  if (queries.empty() || queries.contiguous()) return;
  piece.packed_queries.resize(queries.size_bytes());
  for (std::uint32_t h = 0; h < queries.num_heads; ++h) {
    std::memcpy(piece.packed_queries.data() + h * queries.head_bytes(), queries.head(h),
                queries.head_bytes());
  }
  queries = HeadsView::packed(piece.packed_queries.data(), queries.num_heads, queries.num_tokens,
                              queries.head_dim, queries.dtype);
}

}  // namespace

Result<PutPiece> check_piece(const ModelSpec& model, const Recipe& recipe,
                             const msg::PutBegun& begun, std::uint32_t layer,
                             const LayerPush& push) {
  if (layer >= model.num_layers) {
    return Status::invalid("the model has layers 0 to " + text(model.num_layers - 1));
  }
  PutPiece piece;
  piece.push = push;
  PRECIS_TRY(check_shapes(model, push));
  if (begun.begin > 0 && push.token_begin == 0 && push.keys.num_tokens == begun.end) {
    cut_to_new_tokens(begun, piece);
  }
  PRECIS_TRY(check_tokens(begun, piece.push));
  PRECIS_TRY(check_queries(model, recipe, begun, piece.push));
  PRECIS_TRY(check_statistics(model, piece.push));
  PRECIS_TRY(check_scores(piece.push));
  PRECIS_TRY(check_needs(recipe, begun, piece.push));
  pack_queries(piece);
  return piece;
}

}  // namespace precis

#include "precis/visible_layer.h"

namespace precis::kernels {
namespace {

// The rows of the last `tokens` tokens of every head.
HeadsView last_rows(HeadsView view, std::uint32_t tokens) {
  view.data = view.row(0, view.num_tokens - tokens);
  view.num_tokens = tokens;
  return view;
}

// Keeps the last `kept` numbers of every row of `length`. If there are not whole rows, all stay,
// for check() to refuse.
void keep_last(std::span<const float>& rows, std::uint32_t length, std::uint32_t kept,
               std::vector<float>& copy) {
  if (rows.size() % length != 0) return;
  copy.reserve(rows.size() / length * kept);
  for (; !rows.empty(); rows = rows.subspan(length)) {
    const auto last = rows.subspan(length - kept, kept);
    copy.insert(copy.end(), last.begin(), last.end());
  }
  rows = copy;
}

}  // namespace

VisibleLayer::VisibleLayer(const Recipe& recipe, const LayerInput& layer, std::uint32_t tokens)
    : input_(layer) {
  const std::uint32_t all = layer.num_tokens();
  if (tokens >= all) return;
  input_.begin += all - tokens;
  input_.keys = last_rows(layer.keys, tokens);
  if (layer.values.num_tokens == all) input_.values = last_rows(layer.values, tokens);
  keep_last(input_.scores, all, tokens, scores_);
  // Queries of recipes that need lse stand after the segment.
  const std::uint32_t queries = layer.queries.num_tokens;
  if (recipe.needs_lse() || queries <= tokens) return;
  input_.queries = last_rows(layer.queries, tokens);
  keep_last(input_.lse, queries, tokens, lse_);
}

}  // namespace precis::kernels

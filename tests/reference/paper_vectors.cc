#include "tests/reference/paper_vectors.h"

#include "tests/reference/binary_reader.h"

namespace precis::reference {
namespace {

struct Dims {
  std::uint32_t layers, q_heads, kv_heads, n, head_dim, pushed, behind, width;
};

PaperLayer read_layer(BinaryReader& in, const Dims& d, std::uint32_t index) {
  const auto f16 = [&](std::size_t count) { return in.array<std::byte>(2 * count); };
  const auto view = [&](const std::vector<std::byte>& data, std::uint32_t heads,
                        std::uint32_t tokens) {
    return HeadsView::packed(data.data(), heads, tokens, d.head_dim, Dtype::kF16);
  };
  const std::size_t q_dim = std::size_t{d.q_heads} * d.head_dim;
  PaperLayer layer;
  layer.keys = f16(std::size_t{d.kv_heads} * d.n * d.head_dim);
  layer.values = f16(std::size_t{d.kv_heads} * d.n * d.head_dim);
  layer.queries = f16(q_dim * d.pushed);
  layer.behind = f16(q_dim * d.behind);
  layer.behind_lse = in.array<float>(std::size_t{d.q_heads} * d.behind);
  layer.query_mean = in.array<float>(q_dim);
  layer.query_covariance = in.array<float>(q_dim * d.head_dim);
  layer.o_proj = f16(q_dim * d.width);

  kernels::LayerInput& input = layer.input;
  input.layer = index;
  input.num_layers = d.layers;
  input.num_q_heads = d.q_heads;
  input.keys = view(layer.keys, d.kv_heads, d.n);
  input.values = view(layer.values, d.kv_heads, d.n);
  input.queries = view(layer.queries, d.q_heads, d.pushed);
  input.query_mean = layer.query_mean;
  input.query_covariance = layer.query_covariance;
  input.o_proj = {layer.o_proj.data(), d.width, Dtype::kF16, {}};
  layer.gram = kernels::gram_matrices(input.o_proj, d.q_heads, d.head_dim);
  input.o_proj.gram = layer.gram;
  layer.behind_view = view(layer.behind, d.q_heads, d.behind);
  return layer;
}

PaperCase read_case(BinaryReader& in, const Dims& d, std::size_t num_budgets) {
  PaperCase c;
  c.recipe = in.text(in.word());
  const bool has_second = in.word() != 0;
  if (const std::uint32_t rows = in.word(); rows > 0) {
    Profile& profile = c.profile.emplace();
    profile.kind = rows == 1 ? Profile::Kind::kWeights : Profile::Kind::kCurves;
    profile.num_layers = d.layers;
    profile.num_kv_heads = d.kv_heads;
    profile.table = in.array<float>(std::size_t{rows} * d.layers * d.kv_heads);
  }
  const std::size_t size = std::size_t{d.kv_heads} * d.n;
  for (std::uint32_t l = 0; l < d.layers; ++l) {
    PaperResult result;
    result.scores.scores = in.array<float>(size);
    if (has_second) result.scores.second = in.array<float>(size);
    result.scores.weight = in.number();
    for (std::uint32_t h = 0; h < d.kv_heads; ++h) {
      const auto order = in.array<std::uint16_t>(d.n);
      result.order.emplace_back(order.begin(), order.end());
    }
    for (std::size_t b = 0; b < num_budgets; ++b) {
      result.counts.push_back(in.array<std::uint32_t>(d.kv_heads));
    }
    c.layers.push_back(std::move(result));
  }
  return c;
}

}  // namespace

PaperVectors read_paper_vectors(const std::string& path) {
  BinaryReader in(path, "PPV2");
  Dims d{};
  for (std::uint32_t* word :
       {&d.layers, &d.q_heads, &d.kv_heads, &d.n, &d.head_dim, &d.pushed, &d.behind, &d.width}) {
    *word = in.word();
  }
  const std::uint32_t num_budgets = in.word(), num_cases = in.word();
  PaperVectors v;
  v.budgets = in.array<std::uint32_t>(num_budgets);
  for (std::uint32_t l = 0; l < d.layers; ++l) v.layers.push_back(read_layer(in, d, l));
  for (std::uint32_t c = 0; c < num_cases; ++c) v.cases.push_back(read_case(in, d, num_budgets));
  in.must_end();
  return v;
}

}  // namespace precis::reference

#include "tests/reference/kvpress_vectors.h"

#include "tests/reference/binary_reader.h"

namespace precis::reference {
namespace {

struct Dims {
  std::uint32_t q_heads, kv_heads, n, head_dim, width;
};

Layer read_layer(BinaryReader& in, const Dims& d) {
  const std::uint32_t pushed = in.word();
  const std::size_t q_dim = std::size_t{d.q_heads} * d.head_dim;
  const std::size_t kv_bytes = std::size_t{2} * d.kv_heads * d.n * d.head_dim;
  Layer layer;
  layer.keys = in.array<std::byte>(kv_bytes);
  layer.values = in.array<std::byte>(kv_bytes);
  layer.queries = in.array<std::byte>(2 * q_dim * pushed);
  layer.query_mean = in.array<float>(q_dim);
  layer.query_covariance = in.array<float>(q_dim * d.head_dim);
  layer.o_proj = in.array<std::byte>(2 * q_dim * d.width);

  const auto view = [&d](const std::vector<std::byte>& data, std::uint32_t heads,
                         std::uint32_t tokens) {
    return HeadsView::packed(data.data(), heads, tokens, d.head_dim, Dtype::kF16);
  };
  layer.input.num_q_heads = d.q_heads;
  layer.input.keys = view(layer.keys, d.kv_heads, d.n);
  layer.input.values = view(layer.values, d.kv_heads, d.n);
  layer.input.queries = view(layer.queries, d.q_heads, pushed);
  layer.input.query_mean = layer.query_mean;
  layer.input.query_covariance = layer.query_covariance;
  layer.input.o_proj = {layer.o_proj.data(), d.width, Dtype::kF16, {}};
  return layer;
}

Case read_case(BinaryReader& in, const Dims& d) {
  Case c;
  c.layer = in.word();
  c.removed_ppm = in.word();
  c.preset = in.text(in.word());
  c.kept.resize(d.kv_heads);
  for (auto& positions : c.kept) positions = in.array<std::uint32_t>(in.word());
  return c;
}

}  // namespace

Vectors read_vectors(const std::string& path) {
  BinaryReader in(path, "PKV2");
  Vectors v;
  Dims d{};
  const std::uint32_t num_layers = in.word();
  for (std::uint32_t* word : {&d.q_heads, &d.kv_heads, &d.n, &d.head_dim, &d.width}) {
    *word = in.word();
  }
  const std::uint32_t num_cases = in.word();
  for (std::uint32_t l = 0; l < num_layers; ++l) v.layers.push_back(read_layer(in, d));
  for (std::uint32_t c = 0; c < num_cases; ++c) v.cases.push_back(read_case(in, d));
  in.must_end();
  return v;
}

}  // namespace precis::reference

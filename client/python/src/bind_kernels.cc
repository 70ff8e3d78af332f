// Binds compress(): the kernels alone, over arrays in memory, without a service.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "convert.h"
#include "errors.h"
#include "gil.h"
#include "precis/block_digest.h"
#include "precis/compress.h"
#include "precis/limits.h"
#include "precis/ragged_attention.h"
#include "precis/rope.h"

namespace precis::python {
namespace {

// One layer as Python passes it.
struct LayerArrays {
  AnyArray keys, values;
  std::optional<AnyArray> queries;
  std::optional<FloatArray> lse, scores, query_mean, query_covariance;
  std::optional<AnyArray> o_proj;  // [num_q_heads, head_dim, width]
};

// The result of a compression. Move-only, as its records are.
struct Kept {
  std::vector<kernels::CompressedLayer> layers;

  Kept() = default;
  Kept(Kept&&) = default;
  Kept& operator=(Kept&&) = default;
};

// Makes the same checks as a service when a model's projections are pushed.
Status set_o_proj(const ModelSpec& model, const HeadsView& view, kernels::LayerInput& input,
                  std::vector<float>& gram, bool needs_gram) {
  const std::string where = "layer " + std::to_string(input.layer) + " o_proj: ";
  if (view.num_heads != model.num_q_heads || view.num_tokens != model.head_dim ||
      !view.contiguous()) {
    return Status::invalid(where + "is [" + std::to_string(view.num_heads) + ", " +
                           std::to_string(view.num_tokens) + ", " + std::to_string(view.head_dim) +
                           "], must be [" + std::to_string(model.num_q_heads) + ", " +
                           std::to_string(model.head_dim) + ", hidden size], contiguous");
  }
  input.o_proj = {view.data, view.head_dim, view.dtype, {}};
  if (!needs_gram) return {};
  gram = kernels::gram_matrices(input.o_proj, model.num_q_heads, model.head_dim);
  input.o_proj.gram = gram;
  return {};
}

Kept compress_arrays(const ModelSpec& model, const std::vector<LayerArrays>& layers,
                     const std::string& recipe_text, const BudgetPair& keep, std::uint32_t begin,
                     const std::string& profile_text, unsigned threads) {
  const Recipe recipe = unwrap(parse_recipe(recipe_text));
  std::optional<Profile> profile;
  if (!profile_text.empty()) {
    profile = unwrap(parse_profile(profile_text));
    if (recipe.needs_profile()) check(check_profile(*profile, recipe, model_fingerprint(model)));
  }
  std::vector<std::vector<float>> grams(layers.size());
  const auto rope = recipe.needs_rope() ? rope_frequencies(model)
                                        : std::vector<std::vector<double>>(model.num_layers);
  const Budget budget = to_budget(keep);
  std::vector<kernels::LayerInput> inputs;
  for (const LayerArrays& layer : layers) {
    kernels::LayerInput input;
    input.layer = static_cast<std::uint32_t>(inputs.size());
    input.num_layers = model.num_layers;
    input.num_q_heads = model.num_q_heads;
    input.begin = begin;
    input.keys = heads_view(layer.keys, "keys");
    input.values = heads_view(layer.values, "values");
    if (layer.queries) input.queries = heads_view(*layer.queries, "queries");
    input.lse = float_view(layer.lse);
    input.scores = float_view(layer.scores);
    input.query_mean = float_view(layer.query_mean);
    input.query_covariance = float_view(layer.query_covariance);
    if (input.layer < rope.size()) input.rope_frequencies = rope[input.layer];
    if (layer.o_proj) {
      check(set_o_proj(model, heads_view(*layer.o_proj, "o_proj"), input, grams[inputs.size()],
                       recipe.value_norm == ValueNorm::kL2Gram));
    }
    inputs.push_back(input);
  }
  const Profile* const table = profile ? &*profile : nullptr;
  Kept kept;
  kept.layers = unwrap(without_gil(
      [&] { return kernels::compress(model, inputs, recipe, budget, table, threads); }));
  return kept;
}

nb::tuple kept_head(nb::handle_t<Kept> self, std::size_t layer, std::size_t head) {
  const kernels::CompressedLayer& of_layer = nb::cast<const Kept&>(self).layers.at(layer);
  const kernels::RecordView& record = of_layer.heads.at(head);
  return nb::make_tuple(array_over(record.positions, self), array_over(record.seats, self),
                        array_over(record.scores, self), rows_over(of_layer.keys[head], self),
                        rows_over(of_layer.values[head], self));
}

// The kept rows of one layer, by KV head. Keeps their arrays alive.
struct KeptRows {
  std::vector<AnyArray> arrays;
  std::vector<kernels::RaggedRows> rows;
  std::uint32_t head_dim = 0;
  Dtype dtype = Dtype::kF32;
};

// `keys`, `values`: [1, count, head_dim] of each KV head, of one dtype.
KeptRows kept_rows(std::vector<AnyArray> keys, std::vector<AnyArray> values) {
  KeptRows kept;
  for (std::size_t head = 0; head < keys.size(); ++head) {
    const HeadsView k = heads_view(keys[head], "keys"), v = heads_view(values.at(head), "values");
    if (head == 0) kept.head_dim = k.head_dim, kept.dtype = k.dtype;
    const bool fits = k.num_tokens == v.num_tokens && k.num_heads == 1 && v.num_heads == 1;
    for (const HeadsView* view : {&k, &v}) {
      if (fits && view->head_dim == kept.head_dim && view->dtype == kept.dtype) continue;
      check(Status::invalid("kept rows of head " + std::to_string(head) +
                            " do not have the shape and dtype of the others"));
    }
    kept.rows.push_back({static_cast<std::uint32_t>(head), k.num_tokens, k.data, v.data});
  }
  kept.arrays = std::move(keys);
  for (AnyArray& array : values) kept.arrays.push_back(std::move(array));
  return kept;
}

// Attention of one token. `queries`: f32 [num_q_heads, head_dim]. `keys`, `values`: newer
// tokens, [num_kv_heads, count, head_dim], of the kept rows' dtype. Returns f32 [num_q_heads,
// head_dim].
nb::object attend(const kernels::RaggedAttention& attention, const KeptRows& kept,
                  const FloatArray& queries, const AnyArray& keys, const AnyArray& values,
                  float scale) {
  const HeadsView k = heads_view(keys, "keys"), v = heads_view(values, "values");
  const std::size_t heads = kept.rows.size();
  for (const HeadsView* view : {&k, &v}) {
    if (view->num_heads == heads && view->num_tokens == k.num_tokens &&
        view->head_dim == kept.head_dim && view->dtype == kept.dtype) {
      continue;
    }
    check(Status::invalid("the tail does not have the heads, shape and dtype of the kept rows"));
  }
  std::vector<kernels::RaggedRows> rows = kept.rows;
  for (std::uint32_t head = 0; head < heads; ++head) {
    rows.push_back({head, k.num_tokens, k.row(head, 0), v.row(head, 0)});
  }
  std::vector<float> out(queries.size());
  const auto num_q_heads = static_cast<std::uint32_t>(out.size() / kept.head_dim);
  const kernels::RaggedQuery query{static_cast<std::uint32_t>(heads),
                                   num_q_heads / static_cast<std::uint32_t>(heads),
                                   kept.head_dim,
                                   kept.dtype,
                                   {queries.data(), queries.size()},
                                   scale,
                                   rows};
  check(without_gil([&] { return attention.attend(query, out); }));
  return array_of(std::move(out), num_q_heads, kept.head_dim);
}

}  // namespace

void bind_kernels(nb::module_& module) {
  nb::class_<KeptRows>(module, "KeptRows")
      .def("__init__",
           [](KeptRows* self, std::vector<AnyArray> keys, std::vector<AnyArray> values) {
             new (self) KeptRows(kept_rows(std::move(keys), std::move(values)));
           });
  nb::class_<kernels::RaggedAttention>(module, "RaggedAttention")
      .def(nb::init<unsigned>())
      .def("attend", &attend);
  nb::class_<LayerArrays>(module, "LayerArrays")
      .def(
          "__init__",
          [](LayerArrays* self, AnyArray keys, AnyArray values, std::optional<AnyArray> queries,
             std::optional<FloatArray> lse, std::optional<FloatArray> scores,
             std::optional<FloatArray> query_mean, std::optional<FloatArray> query_covariance,
             std::optional<AnyArray> o_proj) {
            new (self) LayerArrays{std::move(keys),
                                   std::move(values),
                                   std::move(queries),
                                   std::move(lse),
                                   std::move(scores),
                                   std::move(query_mean),
                                   std::move(query_covariance),
                                   std::move(o_proj)};
          },
          nb::arg("keys"), nb::arg("values"), nb::arg("queries").none(),
          nb::arg("lse").noconvert().none(), nb::arg("scores").noconvert().none(),
          nb::arg("query_mean").noconvert().none(), nb::arg("query_covariance").noconvert().none(),
          nb::arg("o_proj").none());
  nb::class_<Kept>(module, "Kept").def("head", &kept_head).def("bytes", [](const Kept& kept) {
    std::size_t bytes = 0;
    for (const auto& layer : kept.layers) bytes += layer.size_bytes;
    return bytes;
  });
  module.def("compress", &compress_arrays);
}

}  // namespace precis::python

// compress(): the kernels alone over arrays in memory, with no service and nothing stored.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "convert.h"
#include "errors.h"
#include "precis/kernels.h"
#include "precis/record.h"

namespace precis::python {
namespace {

// One layer as Python gives it.
struct LayerArrays {
  AnyArray keys, values;
  std::optional<AnyArray> queries;
  std::optional<FloatArray> lse, scores;
};

struct FreeAligned {
  void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{kSectionAlign}); }
};

// The records of one layer in memory of their alignment.
struct LayerRecords {
  std::unique_ptr<std::byte[], FreeAligned> data;
  std::size_t size = 0;
  std::vector<kernels::RecordView> heads;

  MutableBytes bytes() const { return {data.get(), size}; }
};

// What a compression kept. Moves only, as its records do.
struct Kept {
  std::vector<LayerRecords> layers;

  Kept() = default;
  Kept(Kept&&) = default;
  Kept& operator=(Kept&&) = default;
};

LayerRecords make_records(std::size_t size) {
  LayerRecords records;
  records.size = size;
  records.data.reset(new (std::align_val_t{kSectionAlign}) std::byte[size]{});
  return records;
}

// What every layer must agree with, checked before the kernels see it.
Status check_shape(const ModelSpec& model, const kernels::LayerInput& input, std::uint32_t tokens) {
  const std::string layer = "layer " + std::to_string(input.layer) + " ";
  const auto differs = [&layer](const char* what, std::uint64_t got, std::uint64_t want) {
    return Status::invalid(layer + what + " is " + std::to_string(got) + ", not " +
                           std::to_string(want));
  };
  for (const auto& [view, name] : {std::pair{input.keys, "keys"}, {input.values, "values"}}) {
    const std::string field(name);
    if (view.num_heads != model.num_kv_heads) {
      return differs((field + ": num_kv_heads").c_str(), view.num_heads, model.num_kv_heads);
    }
    if (view.num_tokens != tokens) return differs((field + ": n").c_str(), view.num_tokens, tokens);
    if (view.head_dim != model.head_dim) {
      return differs((field + ": head_dim").c_str(), view.head_dim, model.head_dim);
    }
    if (view.dtype != model.dtype) {
      return Status::invalid(layer + field + ": dtype is " + std::string(dtype_name(view.dtype)) +
                             ", not the model's " + std::string(dtype_name(model.dtype)));
    }
  }
  return {};
}

Result<LayerRecords> compress_layer(kernels::Backend& backend, const Recipe& recipe,
                                    const kernels::LayerInput& input, std::uint64_t entries) {
  PRECIS_TRY(backend.check(recipe, input));
  std::vector<float> scores(std::size_t{input.num_kv_heads()} * input.num_tokens());
  PRECIS_TRY(backend.score(recipe, input, scores));
  kernels::RetentionOrders orders;
  PRECIS_TRY(backend.select(recipe, input, scores, orders));
  kernels::LayerPlan plan;
  PRECIS_TRY(backend.allocate(recipe, input, scores, orders, entries, plan));
  LayerRecords records =
      make_records(kernels::encoded_bytes(plan.counts(), input.keys.head_dim, input.keys.dtype));
  PRECIS_TRY(backend.encode(input, scores, plan, SegmentId{}, records.bytes()));
  return records;
}

// Slices every layer's records, whose seats are in place by now.
Status open_records(std::vector<LayerRecords>& layers, std::uint32_t num_kv_heads) {
  for (LayerRecords& records : layers) {
    Bytes rest = records.bytes();
    for (std::uint32_t head = 0; head < num_kv_heads; ++head) {
      std::size_t size = 0;
      PRECIS_ASSIGN(auto record, kernels::open_record(rest, &size));
      records.heads.push_back(record);
      rest = rest.subspan(size);
    }
  }
  return {};
}

Result<Kept> compress(const ModelSpec& model, const std::vector<kernels::LayerInput>& inputs,
                      const Recipe& recipe, const Budget& keep, unsigned threads) {
  PRECIS_TRY(model.validate());
  if (inputs.size() != model.num_layers) {
    return Status::invalid("layers: " + std::to_string(inputs.size()) + " given, the model has " +
                           std::to_string(model.num_layers));
  }
  const std::uint32_t num_tokens = inputs.front().num_tokens();
  if (num_tokens == 0) return Status::invalid("layer 0 keys: there are no tokens");
  for (const auto& input : inputs) PRECIS_TRY(check_shape(model, input, num_tokens));
  PRECIS_ASSIGN(const std::uint64_t entries, budget_entries(recipe, model, num_tokens, keep));
  const auto backend = kernels::make_cpu_backend(threads);
  Kept kept;
  for (const auto& input : inputs) {
    PRECIS_ASSIGN(auto records, compress_layer(*backend, recipe, input, entries));
    kept.layers.push_back(std::move(records));
  }
  if (recipe.is_cut()) {
    std::vector<MutableBytes> layers;
    for (const auto& records : kept.layers) layers.push_back(records.bytes());
    PRECIS_TRY(kernels::place_cut_seats(layers));
  }
  PRECIS_TRY(open_records(kept.layers, model.num_kv_heads));
  return kept;
}

Kept compress_arrays(const ModelSpec& model, const std::vector<LayerArrays>& layers,
                     const std::string& recipe_text, const BudgetPair& keep, std::uint32_t begin,
                     unsigned threads) {
  const Recipe recipe = unwrap(parse_recipe(recipe_text));
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
    inputs.push_back(input);
  }
  return unwrap(without_gil([&] { return compress(model, inputs, recipe, budget, threads); }));
}

nb::tuple kept_head(nb::handle_t<Kept> self, std::size_t layer, std::size_t head) {
  const kernels::RecordView& record = nb::cast<const Kept&>(self).layers.at(layer).heads.at(head);
  const auto rows = [&record](Bytes bytes) {
    return HeadsView::packed(bytes.data(), 1, record.count, record.head_dim, record.dtype);
  };
  return nb::make_tuple(array_over(record.positions, self), array_over(record.seats, self),
                        array_over(record.scores, self), rows_over(rows(record.keys), self),
                        rows_over(rows(record.values), self));
}

}  // namespace

void bind_kernels(nb::module_& module) {
  nb::class_<LayerArrays>(module, "LayerArrays")
      .def(
          "__init__",
          [](LayerArrays* self, AnyArray keys, AnyArray values, std::optional<AnyArray> queries,
             std::optional<FloatArray> lse, std::optional<FloatArray> scores) {
            new (self) LayerArrays{std::move(keys), std::move(values), std::move(queries),
                                   std::move(lse), std::move(scores)};
          },
          nb::arg("keys"), nb::arg("values"), nb::arg("queries").none(),
          nb::arg("lse").noconvert().none(), nb::arg("scores").noconvert().none());
  nb::class_<Kept>(module, "Kept").def("head", &kept_head).def("bytes", [](const Kept& kept) {
    std::size_t bytes = 0;
    for (const auto& records : kept.layers) bytes += records.size;
    return bytes;
  });
  module.def("compress", &compress_arrays);
}

}  // namespace precis::python

// Binds compress(): only the kernels, over arrays in memory; no service, and nothing is stored.

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
#include "gil.h"
#include "precis/block_digest.h"
#include "precis/joiner.h"
#include "precis/record.h"
#include "precis/rope.h"
#include "precis/stages.h"

namespace precis::python {
namespace {

// One layer as Python passes it.
struct LayerArrays {
  AnyArray keys, values;
  std::optional<AnyArray> queries;
  std::optional<FloatArray> lse, scores, query_mean, query_covariance;
  std::optional<AnyArray> o_proj;  // [num_q_heads, head_dim, width]
};

struct FreeAligned {
  void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{kSectionAlign}); }
};

// The records of one layer, in aligned memory.
struct LayerRecords {
  std::unique_ptr<std::byte[], FreeAligned> data;
  std::size_t size = 0;
  std::vector<kernels::RecordView> heads;

  MutableBytes bytes() const { return {data.get(), size}; }
};

// The result of a compression. Move-only, as its records are.
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

// The checks on every layer, made before the kernels see it.
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

// The records of every layer, compressed as a put does it.
Result<std::vector<LayerRecords>> compress_layers(const Recipe& recipe,
                                                  std::vector<kernels::LayerInput> inputs,
                                                  std::uint64_t entries, const Budget& budget,
                                                  const Profile* profile, unsigned threads) {
  const auto backend = kernels::make_cpu_backend(threads);
  const kernels::LayerInput& first = inputs.front();
  const kernels::SegmentDims dims{first.num_layers, first.num_kv_heads(), first.num_tokens(),
                                  first.begin};
  PRECIS_ASSIGN(const auto joiner, kernels::Joiner::make(recipe, dims, entries, profile));
  std::vector<std::unique_ptr<kernels::LayerCompressor>> compressors;
  std::vector<kernels::OrderedLayer> ordered;  // [num_layers], each by its compressor
  std::vector<std::vector<float>> floors;
  double mass = 0;
  for (std::uint32_t l = 0; l < inputs.size(); ++l) {
    kernels::LayerInput& input = inputs[l];
    input.entries = entries;
    PRECIS_ASSIGN(auto compressor, backend->compressor());
    PRECIS_ASSIGN(kernels::ScoredLayer scored, kernels::score(*compressor, recipe, input));
    PRECIS_ASSIGN(kernels::OrderedLayer layer, std::move(scored).order(joiner->slots_wanted(l)));
    if (budget.kind == Budget::Kind::kQuality) {
      PRECIS_ASSIGN(const kernels::LayerScores* scores, layer.scores());
      kernels::LayerMass measured = kernels::measure_mass(scores->scores, input.num_kv_heads());
      floors.push_back(std::move(measured.floors));
      mass += measured.mass;
    }
    joiner->add(l, layer.take_turns());
    compressors.push_back(std::move(compressor));
    ordered.push_back(std::move(layer));
  }
  std::vector<LayerRecords> layers;
  std::vector<MutableBytes> bytes;
  for (std::uint32_t l = 0; l < inputs.size(); ++l) {
    const auto& counts = joiner->counts(l);
    layers.push_back(make_records(
        kernels::encoded_bytes(counts, inputs[l].keys.head_dim, inputs[l].keys.dtype)));
    bytes.push_back(layers.back().bytes());
    PRECIS_TRY(std::move(ordered[l]).encode(counts, joiner->seats(l), SegmentId{}, bytes.back()));
  }
  if (recipe.is_cut()) PRECIS_TRY(kernels::place_cut_seats(bytes));
  if (budget.kind != Budget::Kind::kQuality) {
    if (recipe.is_cut()) PRECIS_TRY(backend->seal(bytes));
    return layers;
  }
  PRECIS_ASSIGN(const std::uint64_t kept,
                kernels::quality_entries(bytes, floors, mass, budget.quality_share_ppm()));
  for (std::size_t l = 0; l < layers.size(); ++l) {
    std::vector<std::uint32_t> counts;
    PRECIS_ASSIGN(layers[l].size, kernels::cut_records(bytes[l], kept, &counts));
    bytes[l] = layers[l].bytes();
  }
  PRECIS_TRY(backend->seal(bytes));
  return layers;
}

// Slices every layer's records, whose seats are final by now.
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
                      const Recipe& recipe, const Budget& keep, const Profile* profile,
                      unsigned threads) {
  PRECIS_TRY(model.validate());
  if (inputs.size() != model.num_layers) {
    return Status::invalid("layers: " + std::to_string(inputs.size()) + " given, the model has " +
                           std::to_string(model.num_layers));
  }
  const std::uint32_t num_tokens = inputs.front().num_tokens();
  if (num_tokens == 0) return Status::invalid("layer 0 keys: there are no tokens");
  for (const auto& input : inputs) PRECIS_TRY(check_shape(model, input, num_tokens));
  PRECIS_ASSIGN(const std::uint64_t entries,
                budget_entries(recipe, model, num_tokens, keep, inputs.front().begin));
  Kept kept;
  PRECIS_ASSIGN(kept.layers, compress_layers(recipe, inputs, entries, keep, profile, threads));
  PRECIS_TRY(open_records(kept.layers, model.num_kv_heads));
  return kept;
}

// The same checks that a service makes when a model's projections are pushed.
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
  return unwrap(
      without_gil([&] { return compress(model, inputs, recipe, budget, table, threads); }));
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
    for (const auto& records : kept.layers) bytes += records.size;
    return bytes;
  });
  module.def("compress", &compress_arrays);
}

}  // namespace precis::python

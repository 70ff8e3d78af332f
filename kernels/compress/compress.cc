#include "precis/compress.h"

#include <string>
#include <utility>

#include "precis/joiner.h"
#include "precis/loss_budget.h"
#include "precis/row_code.h"
#include "precis/stages.h"
#include "precis/visible_layer.h"

namespace precis::kernels {
namespace {

std::byte* aligned_bytes(std::size_t size) {
  return new (std::align_val_t{kSectionAlign}) std::byte[size]{};
}

CompressedLayer make_layer(std::size_t size_bytes) {
  CompressedLayer layer;
  layer.size_bytes = size_bytes;
  layer.data.reset(aligned_bytes(size_bytes));
  return layer;
}

// Checks a layer's shapes and dtypes against the model.
Status check_shape(const ModelSpec& model, const LayerInput& input, std::uint32_t tokens) {
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

// Compresses all layers as a put does; returns their records.
Result<std::vector<CompressedLayer>> compress_layers(const ModelSpec& model, const Recipe& recipe,
                                                     std::vector<LayerInput>& inputs,
                                                     std::uint64_t entries, const Profile* profile,
                                                     unsigned threads) {
  const auto backend = make_cpu_backend(threads);
  const LayerInput& first = inputs.front();
  const SegmentDims dims = SegmentDims::of(model, first.num_tokens(), first.begin);
  PRECIS_ASSIGN(const auto joiner, Joiner::make(recipe, dims, entries, profile));
  std::vector<VisibleLayer> visible;
  visible.reserve(inputs.size());
  std::vector<std::unique_ptr<LayerCompressor>> compressors;
  std::vector<OrderedLayer> ordered;  // [num_layers], each by its compressor
  for (std::uint32_t l = 0; l < inputs.size(); ++l) {
    LayerInput& input = inputs[l];
    input.entries = entries;
    PRECIS_ASSIGN(auto compressor, backend->compressor());
    const VisibleLayer& seen = visible.emplace_back(recipe, input, dims.tokens(l));
    PRECIS_ASSIGN(ScoredLayer scored, score(*compressor, recipe, seen.input()));
    PRECIS_ASSIGN(OrderedLayer layer, std::move(scored).order(joiner->slots_wanted(l)));
    joiner->add(l, layer.take_turns());
    compressors.push_back(std::move(compressor));
    ordered.push_back(std::move(layer));
  }
  std::vector<CompressedLayer> layers;
  std::vector<MutableBytes> bytes;
  for (std::uint32_t l = 0; l < inputs.size(); ++l) {
    const auto& counts = joiner->counts(l);
    const HeadsView& keys = inputs[l].keys;
    layers.push_back(
        make_layer(encoded_bytes(counts, {keys.head_dim, keys.dtype, recipe.encoding})));
    bytes.push_back(layers.back().bytes());
    PRECIS_TRY(std::move(ordered[l]).encode(counts, joiner->seats(l), SegmentId{}, bytes.back()));
  }
  if (recipe.is_cut()) {
    PRECIS_TRY(place_cut_seats(bytes));
    PRECIS_TRY(backend->seal(bytes));
  }
  return layers;
}

std::size_t raw_row_bytes(const RecordView& record) {
  return record.entry_form().raw().keys().bytes();
}

// Fills in the views of a layer's rows.
void open_rows(CompressedLayer& layer) {
  std::size_t size = 0;
  for (const RecordView& record : layer.heads) {
    if (record.encoding != Encoding::kRaw) {
      size += 2 * align_section(record.count * raw_row_bytes(record));
    }
  }
  if (size > 0) layer.decoded.reset(aligned_bytes(size));
  std::byte* next = layer.decoded.get();
  const auto view_of = [&next](const RecordView& record, const RowForm& form, Bytes rows) {
    const std::byte* data = rows.data();
    if (record.encoding != Encoding::kRaw) {
      decode_rows(form, record.count, rows.data(), next);
      data = next;
      next += align_section(record.count * raw_row_bytes(record));
    }
    return HeadsView::packed(data, 1, record.count, record.head_dim, record.dtype);
  };
  for (const RecordView& record : layer.heads) {
    layer.keys.push_back(view_of(record, record.entry_form().keys(), record.keys));
    layer.values.push_back(view_of(record, record.entry_form().values(), record.values));
  }
}

// Fills in the views of every layer's records, which are sealed now.
Status open_records(std::vector<CompressedLayer>& layers, std::uint32_t num_kv_heads) {
  for (CompressedLayer& records : layers) {
    Bytes rest = records.bytes();
    for (std::uint32_t head = 0; head < num_kv_heads; ++head) {
      std::size_t size = 0;
      PRECIS_ASSIGN(auto record, open_record(rest, &size));
      records.heads.push_back(record);
      rest = rest.subspan(size);
    }
    open_rows(records);
  }
  return {};
}

}  // namespace

Result<std::vector<CompressedLayer>> compress(const ModelSpec& model,
                                              std::span<const LayerInput> layers,
                                              const Recipe& recipe, const Budget& keep,
                                              const Profile* profile, unsigned threads) {
  PRECIS_TRY(model.validate());
  if (layers.size() != model.num_layers) {
    return Status::invalid("layers: " + std::to_string(layers.size()) + " given, the model has " +
                           std::to_string(model.num_layers));
  }
  const std::uint32_t num_tokens = layers.front().num_tokens(), begin = layers.front().begin;
  if (num_tokens == 0) return Status::invalid("layer 0 keys: there are no tokens");
  std::vector<LayerInput> inputs(layers.begin(), layers.end());
  for (std::uint32_t l = 0; l < inputs.size(); ++l) {
    inputs[l].layer = l;
    inputs[l].num_layers = model.num_layers;
    inputs[l].num_q_heads = model.num_q_heads;
    inputs[l].begin = begin;
    PRECIS_TRY(check_shape(model, inputs[l], num_tokens));
  }
  std::vector<std::vector<float>> probes;  // [num_layers]
  probes.reserve(inputs.size());
  if (recipe.needs_probe()) {
    if (profile == nullptr) {
      return Status::invalid(
          "the recipe takes its scores from a profile, and none is given; precis profile build "
          "makes one");
    }
    PRECIS_TRY(check_profile_shape(*profile, model));
    for (LayerInput& input : inputs) {
      input.probe = probes.emplace_back(probe_of_layer(*profile, input.layer));
    }
  }
  PRECIS_ASSIGN(const Budget budget, budget_for_loss(keep, recipe, profile, begin + num_tokens));
  PRECIS_ASSIGN(const std::uint64_t entries,
                budget_entries(recipe, model, num_tokens, budget, begin));
  PRECIS_ASSIGN(auto kept, compress_layers(model, recipe, inputs, entries, profile, threads));
  PRECIS_TRY(open_records(kept, model.num_kv_heads));
  return kept;
}

}  // namespace precis::kernels

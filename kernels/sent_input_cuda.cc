#include "kernels/sent_input_cuda.h"

#include "kernels/score/probe/probe.h"
#include "kernels/score/widened_rows_cuda.h"

namespace precis::kernels {
namespace {

Status copy(const HeadsView& rows, const Stream& stream, DeviceBuffer& to) {
  PRECIS_ASSIGN(to, DeviceBuffer::allocate(rows.size_bytes(), stream));
  return to.copy_from(rows, stream);
}
template <typename T>
Status copy(std::span<const T> values, const Stream& stream, DeviceBuffer& to) {
  PRECIS_ASSIGN(to, DeviceBuffer::allocate(values.size_bytes(), stream));
  return to.copy_from(std::as_bytes(values), stream);
}

// Sets `data` to the rows that scorers read: those in `sent`, or, of f8_e4m3, their copy in `wide`.
Status set_scored(const HeadsView& rows, const DeviceBuffer& sent, Stream& stream,
                  DeviceBuffer& wide, const void*& data) {
  data = sent.data();
  if (rows.dtype != Dtype::kF8E4M3) return {};
  PRECIS_ASSIGN(wide, DeviceBuffer::allocate(rows.size_bytes() * sizeof(std::uint16_t), stream));
  data = wide.data();
  return launch_widen(sent.data(), rows.size_bytes(), wide.data(), stream);
}

}  // namespace

Status SentInput::send(const Recipe& recipe, const LayerInput& in, Stream& stream) {
  layer_ = {};
  layer_.layer = in.layer;
  layer_.num_layers = in.num_layers;
  layer_.begin = in.begin;
  layer_.num_kv_heads = in.num_kv_heads();
  layer_.group = in.group();
  layer_.num_tokens = in.num_tokens();
  layer_.head_dim = in.keys.head_dim;
  layer_.dtype = in.keys.dtype == Dtype::kF8E4M3 ? Dtype::kBf16 : in.keys.dtype;
  PRECIS_TRY(copy(in.keys, stream, keys_));
  PRECIS_TRY(copy(in.values, stream, values_));
  PRECIS_TRY(set_scored(in.keys, keys_, stream, wide_keys_, layer_.keys));
  PRECIS_TRY(set_scored(in.values, values_, stream, wide_values_, layer_.values));
  if (!scores_on_device(recipe)) return {};
  if (recipe.needs_queries()) {
    PRECIS_TRY(copy(in.queries, stream, queries_));
    PRECIS_TRY(copy(in.lse, stream, lse_));
    layer_.pushed = in.queries.num_tokens;
    PRECIS_TRY(set_scored(in.queries, queries_, stream, wide_queries_, layer_.queries));
    layer_.lse = lse_.as<float>();
  }
  if (recipe.needs_scores()) {
    PRECIS_TRY(copy(in.scores, stream, external_));
    layer_.external = external_.as<float>();
  }
  if (recipe.needs_query_stats()) {
    PRECIS_TRY(copy(in.query_mean, stream, query_mean_));
    PRECIS_TRY(copy(in.query_covariance, stream, query_covariance_));
    layer_.query_mean = query_mean_.as<float>();
    layer_.query_covariance = query_covariance_.as<float>();
  }
  if (recipe.needs_rope()) {
    PRECIS_TRY(copy(in.rope_frequencies, stream, rope_frequencies_));
    layer_.rope_frequencies = rope_frequencies_.as<double>();
    layer_.rope_pairs = static_cast<std::uint32_t>(in.rope_frequencies.size());
  }
  if (recipe.needs_probe()) {
    turned_probe_ = turned_probe(in);
    PRECIS_TRY(copy(std::span<const float>(turned_probe_), stream, probe_));
    layer_.probe = probe_.as<float>();
  }
  if (!recipe.needs_o_proj()) return {};
  layer_.o_proj_width = in.o_proj.width;
  layer_.o_proj_dtype = in.o_proj.dtype;
  const std::size_t weights = std::size_t{in.num_q_heads} * in.keys.head_dim * in.o_proj.width *
                              dtype_size_bytes(in.o_proj.dtype);
  if (in.o_proj.data != nullptr) PRECIS_TRY(copy(Bytes(in.o_proj.data, weights), stream, o_proj_));
  PRECIS_TRY(copy(in.o_proj.gram, stream, gram_));
  layer_.o_proj = o_proj_.data();
  layer_.gram = gram_.as<float>();
  return {};
}

}  // namespace precis::kernels

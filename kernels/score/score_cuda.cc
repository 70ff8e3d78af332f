// Host code that calls the scorers' launchers: those that a recipe needs, in their order.
#include "kernels/score/score_cuda.h"

#include <algorithm>

#include "kernels/common/segment_shape.h"
#include "kernels/score/attention/expected_attention_cuda.h"
#include "kernels/score/attention/window_attention_cuda.h"
#include "kernels/score/keys/key_scores_cuda.h"
#include "kernels/score/keys/partitions_cuda.h"
#include "kernels/score/keys/unrotation_cuda.h"
#include "kernels/score/placed_scores_cuda.h"
#include "kernels/score/probe/probe_cuda.h"
#include "kernels/score/score_steps_cuda.h"
#include "kernels/score/values/value_norms_cuda.h"

namespace precis::kernels {
namespace {

Status unsupported(const Recipe& recipe) {
  return Status::unsupported("scorer " + std::to_string(static_cast<int>(recipe.scorer)) +
                             " as this recipe has it is not scored on the device");
}

SegmentShape shape_of(const Recipe& recipe, const LayerDevice& layer) {
  return SegmentShape::of(recipe, layer.layer, layer.begin, layer.num_tokens);
}

HeadRowsDevice rows_at(const void* rows, const LayerDevice& layer) {
  return {rows, layer.num_kv_heads, layer.num_tokens, layer.head_dim, layer.dtype};
}

PlacesDevice places_of(const LayerDevice& layer, float* scores) {
  return {layer.layer, layer.begin, layer.num_kv_heads, layer.num_tokens, scores};
}

UnrotationDevice unrotation_of(const LayerDevice& layer) {
  return {layer.rope_frequencies, layer.rope_pairs, layer.num_tokens};
}

PartitionsDevice partitions_of(const Recipe& recipe, const LayerDevice& layer, float* scores) {
  PartitionsDevice task{};
  task.shape = shape_of(recipe, layer);
  task.num_heads = layer.num_kv_heads;
  task.head_dim = layer.head_dim;
  task.dtype = layer.dtype;
  task.ahead = recipe.scorer == Scorer::kLagkv ? task.shape.lag : 0;
  task.kvpress_ranks = recipe.lag_kvpress_ranks;
  task.keys = layer.keys;
  task.values = layer.values;
  task.scores = scores;
  return task;
}

ExpectedAttentionDevice expected_of(const Recipe& recipe, const LayerDevice& layer, float* scores) {
  ExpectedAttentionDevice task{};
  task.num_kv_heads = layer.num_kv_heads;
  task.group = layer.group;
  task.num_tokens = layer.num_tokens;
  task.head_dim = layer.head_dim;
  task.sinks = shape_of(recipe, layer).sinks;
  task.dtype = layer.dtype;
  task.keys = layer.keys;
  task.values = layer.values;
  task.means = layer.query_mean;
  task.covariances = layer.query_covariance;
  task.weighs_values = recipe.ea_value_norm;
  task.epsilon = static_cast<float>(recipe.ea_epsilon_ppm / 1e6);
  task.scores = scores;
  return task;
}

WindowAttentionDevice attention_of(const Recipe& recipe, const LayerDevice& layer,
                                   const ScoresDevice& out) {
  WindowAttentionDevice task{};
  task.op = AttentionOp::of(recipe, layer.num_tokens, layer.pushed, layer.group);
  task.num_kv_heads = layer.num_kv_heads;
  task.num_tokens = layer.num_tokens;
  task.head_dim = layer.head_dim;
  task.pushed = layer.pushed;
  task.dtype = layer.dtype;
  task.keys = layer.keys;
  task.queries = layer.queries;
  task.lse = layer.lse;
  task.scores = out.scores;
  task.mean = recipe.selector == Selector::kThreshold ? out.second : nullptr;
  task.claims = recipe.layers == LayerAllocator::kPreference;
  task.claim = out.weight;
  task.powers = PreferencePowers::of(recipe);
  task.row_mass = recipe.scorer == Scorer::kDefensive;
  return task;
}

// A layer's scores in the form that the steps after the scorer need.
ColumnsDevice columns_of(const LayerDevice& layer, std::uint32_t columns, float* scores) {
  return {layer.num_kv_heads, layer.num_tokens, columns, scores};
}
ColumnsDevice all_columns(const LayerDevice& layer, float* scores) {
  return columns_of(layer, layer.num_tokens, scores);
}

// Computes the tables of turns, then kvdiff with them.
Status launch_turned_kvdiff(const LayerDevice& layer, void* workspace, float* scores,
                            Stream& stream) {
  const UnrotationDevice unrotation = unrotation_of(layer);
  PRECIS_TRY(launch_unrotation(unrotation, workspace, stream));
  return launch_kvdiff(rows_at(layer.keys, layer), rows_at(layer.values, layer),
                       unrotation_turns(unrotation, workspace),
                       static_cast<std::byte*>(workspace) + unrotation_workspace_bytes(unrotation),
                       scores, stream);
}

// The same for kvprobe.
Status launch_turned_kvprobe(const LayerDevice& layer, void* workspace, float* scores,
                             Stream& stream) {
  const UnrotationDevice unrotation = unrotation_of(layer);
  PRECIS_TRY(launch_unrotation(unrotation, workspace, stream));
  return launch_kvprobe(rows_at(layer.keys, layer), rows_at(layer.values, layer),
                        unrotation_turns(unrotation, workspace), layer.probe, scores, stream);
}

// value_norms() on the device.
Status launch_value_norms(ValueNorm norm, const LayerDevice& layer, float* norms, Stream& stream) {
  if (norm == ValueNorm::kVL1) {
    return launch_l1_norms(rows_at(layer.values, layer), norms, stream);
  }
  ValueNormsDevice task{};
  task.num_kv_heads = layer.num_kv_heads;
  task.group = layer.group;
  task.num_tokens = layer.num_tokens;
  task.head_dim = layer.head_dim;
  task.dtype = layer.dtype;
  task.values = layer.values;
  task.width = layer.o_proj_width;
  task.weights_dtype = layer.o_proj_dtype;
  task.weights = layer.o_proj;
  task.gram = layer.gram;
  task.norms = norms;
  return norm == ValueNorm::kL1Exact ? launch_l1_exact(task, stream) : launch_l2_gram(task, stream);
}

// Norms reuse the memory of the columns, which have become scores by then.
Status launch_attention(const Recipe& recipe, const LayerDevice& layer, void* workspace,
                        const ScoresDevice& out, Stream& stream) {
  const WindowAttentionDevice task = attention_of(recipe, layer, out);
  PRECIS_TRY(launch_window_attention(task, workspace, stream));
  const ColumnsDevice columns = columns_of(layer, task.op.columns, out.scores);
  auto* norms = static_cast<float*>(workspace);
  switch (recipe.scorer) {
    case Scorer::kTova: return launch_share_mean(all_columns(layer, out.scores), stream);
    case Scorer::kVatp:
      PRECIS_TRY(launch_value_norms(ValueNorm::kVL1, layer, norms, stream));
      return launch_multiply(columns, norms, stream);
    case Scorer::kLava:
      PRECIS_TRY(launch_value_norms(ValueNorm::kVL1, layer, norms, stream));
      return launch_multiply_by_largest(columns, norms, stream);
    case Scorer::kDefensive:
      PRECIS_TRY(launch_raise_to_mean(columns, stream));
      PRECIS_TRY(launch_value_norms(ValueNorm::kL1Exact, layer, norms, stream));
      PRECIS_TRY(launch_share_of_heads(columns, norms, stream));
      return launch_multiply(columns, norms, stream);
    default: return {};
  }
}

std::size_t attention_workspace_bytes(const Recipe& recipe, const LayerDevice& layer) {
  const bool weighs_values = recipe.scorer == Scorer::kVatp || recipe.scorer == Scorer::kLava ||
                             recipe.scorer == Scorer::kDefensive;
  const std::size_t norms = std::size_t{layer.num_kv_heads} * layer.num_tokens * sizeof(float);
  const std::size_t attention = window_attention_workspace_bytes(attention_of(recipe, layer, {}));
  return std::max(attention, weighs_values ? norms : 0);
}

std::size_t scorer_workspace_bytes(const Recipe& recipe, const LayerDevice& layer) {
  if (is_attention(recipe.scorer)) return attention_workspace_bytes(recipe, layer);
  switch (recipe.scorer) {
    case Scorer::kKeydiff: return keydiff_workspace_bytes(rows_at(layer.keys, layer));
    case Scorer::kKvdiff:
      return unrotation_workspace_bytes(unrotation_of(layer)) +
             kvdiff_workspace_bytes(rows_at(layer.keys, layer));
    case Scorer::kKvprobe: return unrotation_workspace_bytes(unrotation_of(layer));
    case Scorer::kLagkv:
    case Scorer::kLocalkv: return partitions_workspace_bytes(partitions_of(recipe, layer, nullptr));
    case Scorer::kExpectedAttention:
      return expected_attention_workspace_bytes(expected_of(recipe, layer, nullptr));
    default: return 0;
  }
}

Status launch_scorer(const Recipe& recipe, const LayerDevice& layer, void* workspace,
                     const ScoresDevice& out, Stream& stream) {
  if (is_attention(recipe.scorer)) return launch_attention(recipe, layer, workspace, out, stream);
  float* scores = out.scores;
  switch (recipe.scorer) {
    case Scorer::kStreamingLlm: return launch_position_scores(places_of(layer, scores), stream);
    case Scorer::kRandom:
      return launch_random_scores(places_of(layer, scores), recipe.seed, stream);
    case Scorer::kExternal:
      return launch_pushed_scores(places_of(layer, scores), layer.external, stream);
    case Scorer::kKnorm: return launch_knorm(rows_at(layer.keys, layer), scores, stream);
    case Scorer::kKeydiff:
      return launch_keydiff(rows_at(layer.keys, layer), workspace, scores, stream);
    case Scorer::kKvdiff: return launch_turned_kvdiff(layer, workspace, scores, stream);
    case Scorer::kKvprobe: return launch_turned_kvprobe(layer, workspace, scores, stream);
    case Scorer::kLagkv:
    case Scorer::kLocalkv:
      return launch_partitions(partitions_of(recipe, layer, scores), workspace, stream);
    case Scorer::kExpectedAttention:
      return launch_expected_attention(expected_of(recipe, layer, scores), workspace, stream);
    default: return unsupported(recipe);
  }
}

}  // namespace

bool scores_on_device(const Recipe& recipe) {
  if (is_attention(recipe.scorer)) {
    return takes_window_attention(AttentionOp::of(recipe, 1, 1, 1));
  }
  switch (recipe.scorer) {  // as launch_scorer()
    case Scorer::kStreamingLlm:
    case Scorer::kRandom:
    case Scorer::kExternal:
    case Scorer::kKnorm:
    case Scorer::kKeydiff:
    case Scorer::kKvdiff:
    case Scorer::kKvprobe:
    case Scorer::kLagkv:
    case Scorer::kLocalkv:
    case Scorer::kExpectedAttention: return true;
    default: return false;
  }
}

std::size_t score_workspace_bytes(const Recipe& recipe, const LayerDevice& layer) {
  // The weight reuses the scorer's workspace, which is free by then.
  const std::size_t weight = recipe.layers == LayerAllocator::kEntropy
                                 ? entropy_weight_workspace_bytes(all_columns(layer, nullptr))
                                 : 0;
  return std::max(scorer_workspace_bytes(recipe, layer), weight);
}

Status launch_score(const Recipe& recipe, const LayerDevice& layer, void* workspace,
                    const ScoresDevice& out, Stream& stream) {
  if (!scores_on_device(recipe)) return unsupported(recipe);
  PRECIS_TRY(launch_scorer(recipe, layer, workspace, out, stream));
  const ColumnsDevice scores = all_columns(layer, out.scores);
  if (recipe.selector == Selector::kTwoStage) {
    PRECIS_TRY(launch_value_norms(recipe.value_norm, layer, out.second, stream));
    PRECIS_TRY(launch_second_stage(scores, static_cast<float>(recipe.epsilon_ppm / 1e6), out.second,
                                   stream));
  }
  if (recipe.layers != LayerAllocator::kEntropy) return {};
  return launch_entropy_weight(shape_of(recipe, layer), scores, workspace, out.weight, stream);
}

}  // namespace precis::kernels

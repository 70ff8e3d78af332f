// Host code over the launchers of the scorers: which of them a recipe takes, and in which order.
#include "kernels/score/score_cuda.h"

#include "kernels/common/segment_shape.h"
#include "kernels/score/key_scores_cuda.h"
#include "kernels/score/partitions_cuda.h"
#include "kernels/score/placed_scores_cuda.h"
#include "kernels/score/unrotation_cuda.h"
#include "kernels/score/window_attention_cuda.h"

namespace precis::kernels {
namespace {

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

WindowAttentionDevice attention_of(const Recipe& recipe, const LayerDevice& layer, float* scores) {
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
  task.scores = scores;
  return task;
}

// Tables of turns first, then what kvdiff itself takes.
Status launch_turned_kvdiff(const LayerDevice& layer, void* workspace, float* scores,
                            Stream& stream) {
  const UnrotationDevice unrotation = unrotation_of(layer);
  PRECIS_TRY(launch_unrotation(unrotation, workspace, stream));
  return launch_kvdiff(rows_at(layer.keys, layer), rows_at(layer.values, layer),
                       unrotation_turns(unrotation, workspace),
                       static_cast<std::byte*>(workspace) + unrotation_workspace_bytes(unrotation),
                       scores, stream);
}

}  // namespace

bool scores_on_device(const Recipe& recipe) {
  if (recipe.selector == Selector::kTwoStage || recipe.selector == Selector::kThreshold ||
      recipe.layers == LayerAllocator::kPreference || recipe.layers == LayerAllocator::kEntropy) {
    return false;
  }
  switch (recipe.scorer) {
    case Scorer::kStreamingLlm:
    case Scorer::kRandom:
    case Scorer::kExternal:
    case Scorer::kKnorm:
    case Scorer::kKeydiff:
    case Scorer::kKvdiff:
    case Scorer::kLagkv:
    case Scorer::kLocalkv: return true;
    case Scorer::kWindowAttention:
      return recipe.row_reduce != RowReduce::kMeanVariance &&
             (recipe.pool_order == PoolOrder::kRowsGroupPool ||
              recipe.pool_order == PoolOrder::kRowsPoolGroup);
    default: return false;
  }
}

std::size_t score_workspace_bytes(const Recipe& recipe, const LayerDevice& layer) {
  switch (recipe.scorer) {
    case Scorer::kKeydiff: return keydiff_workspace_bytes(rows_at(layer.keys, layer));
    case Scorer::kKvdiff:
      return unrotation_workspace_bytes(unrotation_of(layer)) +
             kvdiff_workspace_bytes(rows_at(layer.keys, layer));
    case Scorer::kLagkv:
    case Scorer::kLocalkv: return partitions_workspace_bytes(partitions_of(recipe, layer, nullptr));
    case Scorer::kWindowAttention:
      return window_attention_workspace_bytes(attention_of(recipe, layer, nullptr));
    default: return 0;
  }
}

Status launch_score(const Recipe& recipe, const LayerDevice& layer, void* workspace,
                    const ScoresDevice& out, Stream& stream) {
  if (!scores_on_device(recipe)) {
    return Status::unsupported("scorer " + std::to_string(static_cast<int>(recipe.scorer)) +
                               " as this recipe has it is not scored on the device");
  }
  switch (recipe.scorer) {
    case Scorer::kStreamingLlm: return launch_position_scores(places_of(layer, out.scores), stream);
    case Scorer::kRandom:
      return launch_random_scores(places_of(layer, out.scores), recipe.seed, stream);
    case Scorer::kExternal:
      return launch_pushed_scores(places_of(layer, out.scores), layer.external, stream);
    case Scorer::kKnorm: return launch_knorm(rows_at(layer.keys, layer), out.scores, stream);
    case Scorer::kKeydiff:
      return launch_keydiff(rows_at(layer.keys, layer), workspace, out.scores, stream);
    case Scorer::kKvdiff: return launch_turned_kvdiff(layer, workspace, out.scores, stream);
    case Scorer::kLagkv:
    case Scorer::kLocalkv:
      return launch_partitions(partitions_of(recipe, layer, out.scores), workspace, stream);
    default:
      return launch_window_attention(attention_of(recipe, layer, out.scores), workspace, stream);
  }
}

}  // namespace precis::kernels

// kvprobe on CUDA: one pass over rows of K and V, a row per group of lanes.
#include "kernels/score/probe/probe_cuda.h"

#include "kernels/common/tuning.h"
#include "kernels/score/keys/turned_rows.cuh"
#include "kernels/score/probe/probe_op.h"
#include "precis/profile.h"

namespace precis::kernels {
namespace {

struct ProbeTask {
  RowsDevice keys, values;
  TurnsDevice turns;
  std::uint32_t num_tokens;
  const float* probe;  // [heads, ProbeRows::count()]
  float* out;          // [heads, num_tokens]
};

// grid (blocks, heads)
template <int kEach, int kUnits>
__global__ void probe_rows(ProbeTask task) {
  const RowsDevice& rows = task.keys;
  const ProbeRows at{rows.dim};
  const float* probe = task.probe + std::uint64_t{blockIdx.y} * at.count();
  const std::uint32_t token = blockIdx.x * rows.groups() + rows.group();
  const std::uint64_t row = std::uint64_t{blockIdx.y} * task.num_tokens + token;
  ProbeSums sums{};
  RowPart<kEach, kUnits> part;
  load_key(rows, task.turns, task.num_tokens, row, token, part);
  part.each(rows, [&](std::uint32_t c, float x) {
    sums.along += x * probe[at.anchor() + c];
    sums.key += x * probe[at.key() + c];
    sums.key_norm += x * x;
  });
  part.load(task.values, row, token < task.num_tokens);
  part.each(task.values, [&](std::uint32_t c, float x) {
    sums.value += x * probe[at.value() + c];
    sums.value_norm += x * x;
  });
  sums.along = sum_over_row(sums.along, rows.lanes);
  sums.key = sum_over_row(sums.key, rows.lanes);
  sums.key_norm = sum_over_row(sums.key_norm, rows.lanes);
  sums.value = sum_over_row(sums.value, rows.lanes);
  sums.value_norm = sum_over_row(sums.value_norm, rows.lanes);
  if (rows.lane() != 0 || token >= task.num_tokens) return;
  const ProbeOp op{probe[at.log_key()],        probe[at.log_value()], probe[at.difference()],
                   probe[at.log_difference()], probe[at.distance()],  probe[at.constant()]};
  task.out[row] = probe_score(op, sums, log_distance(task.num_tokens - 1 - token));
}

}  // namespace

Status launch_kvprobe(const HeadRowsDevice& keys, const HeadRowsDevice& values,
                      const TurnsDevice& turns, const float* probe, float* out, Stream& stream) {
  const ProbeTask task{rows_of(keys.rows, keys.dtype, keys.head_dim),
                       rows_of(values.rows, values.dtype, values.head_dim),
                       turns,
                       keys.num_tokens,
                       probe,
                       out};
  const dim3 grid(ceil_div(keys.num_tokens, kElementwiseThreads / task.keys.lanes), keys.num_heads);
  return for_rows(task.keys, [&]<int kEach, int kUnits>() {
    return launch("kvprobe", probe_rows<kEach, kUnits>, grid, kElementwiseThreads, 0, stream, task);
  });
}

}  // namespace precis::kernels

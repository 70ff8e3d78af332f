// Computes the tables of turns on CUDA, with one thread per pair and turn.
#include "kernels/score/keys/unrotation_cuda.h"

#include <cmath>

#include "kernels/common/device_code.cuh"
#include "kernels/common/tuning.h"

namespace precis::kernels {
namespace {

// Turns by 0, `stride`, 2 `stride`.. positions, [count, 2 * pairs]: cosines, then sines.
__global__ void fill_turns(UnrotationDevice task, std::uint32_t stride, std::uint32_t count,
                           float* turns) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= std::uint64_t{count} * task.pairs) return;
  const std::uint64_t turn = i / task.pairs, pair = i % task.pairs;
  const double angle = static_cast<double>(turn * stride) * task.frequencies[pair];
  float* out = turns + turn * 2 * task.pairs + pair;
  out[0] = static_cast<float>(cos(angle));
  out[task.pairs] = static_cast<float>(sin(angle));
}

std::uint32_t blocks_of(const UnrotationDevice& task) {
  return ceil_div(task.num_tokens, kTurnBlockTokens);
}

Status launch_table(const UnrotationDevice& task, std::uint32_t stride, std::uint32_t count,
                    const float* turns, Stream& stream) {
  return launch("unrotation", fill_turns,
                ceil_div(std::uint64_t{count} * task.pairs, kElementwiseThreads),
                kElementwiseThreads, 0, stream, task, stride, count, const_cast<float*>(turns));
}

}  // namespace

std::size_t unrotation_workspace_bytes(const UnrotationDevice& task) {
  constexpr std::size_t kAlign = 16;  // of the next array in the workspace
  const std::size_t bytes =
      (std::size_t{blocks_of(task)} + kTurnBlockTokens) * 2 * task.pairs * sizeof(float);
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

TurnsDevice unrotation_turns(const UnrotationDevice& task, void* workspace) {
  TurnsDevice turns;
  turns.pairs = task.pairs;
  turns.block_tokens = kTurnBlockTokens;
  turns.blocks = static_cast<const float*>(workspace);
  turns.steps = turns.blocks + std::size_t{blocks_of(task)} * 2 * task.pairs;
  return turns;
}

Status launch_unrotation(const UnrotationDevice& task, void* workspace, Stream& stream) {
  const TurnsDevice turns = unrotation_turns(task, workspace);
  PRECIS_TRY(launch_table(task, kTurnBlockTokens, blocks_of(task), turns.blocks, stream));
  return launch_table(task, 1, kTurnBlockTokens, turns.steps, stream);
}

}  // namespace precis::kernels

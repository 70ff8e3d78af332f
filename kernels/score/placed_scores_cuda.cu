// streaming, random and external on CUDA: one thread per score.
#include "kernels/score/placed_scores_cuda.h"

#include "kernels/common/device_code.cuh"
#include "kernels/common/tuning.h"
#include "kernels/score/random_op.h"

namespace precis::kernels {
namespace {

// All three: grid (blocks, heads).
__global__ void position_scores(PlacesDevice places) {
  const std::uint32_t token = blockIdx.x * blockDim.x + threadIdx.x;
  if (token >= places.num_tokens) return;
  // Exact: limits::kPathTokensMax positions fit an f32's mantissa.
  places.scores[std::uint64_t{blockIdx.y} * places.num_tokens + token] =
      static_cast<float>(places.begin + token);
}

__global__ void random_scores(PlacesDevice places, std::uint32_t seed) {
  const std::uint32_t token = blockIdx.x * blockDim.x + threadIdx.x;
  if (token >= places.num_tokens) return;
  places.scores[std::uint64_t{blockIdx.y} * places.num_tokens + token] =
      random_score(seed, places.layer, blockIdx.y, places.begin + token);
}

__global__ void pushed_scores(PlacesDevice places, const float* pushed) {
  const std::uint32_t token = blockIdx.x * blockDim.x + threadIdx.x;
  if (token >= places.num_tokens) return;
  const std::uint64_t i = std::uint64_t{blockIdx.y} * places.num_tokens + token;
  places.scores[i] = pushed[i];
}

dim3 grid_of(const PlacesDevice& places) {
  return {ceil_div(places.num_tokens, kElementwiseThreads), places.num_heads, 1};
}

}  // namespace

Status launch_position_scores(const PlacesDevice& places, Stream& stream) {
  return launch("position scores", position_scores, grid_of(places), kElementwiseThreads, 0, stream,
                places);
}

Status launch_random_scores(const PlacesDevice& places, std::uint32_t seed, Stream& stream) {
  return launch("random scores", random_scores, grid_of(places), kElementwiseThreads, 0, stream,
                places, seed);
}

Status launch_pushed_scores(const PlacesDevice& places, const float* pushed, Stream& stream) {
  return launch("pushed scores", pushed_scores, grid_of(places), kElementwiseThreads, 0, stream,
                places, pushed);
}

}  // namespace precis::kernels

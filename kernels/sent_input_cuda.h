// A layer's input on the device. Includes no CUDA header.
#pragma once

#include <vector>

#include "kernels/common/device.h"
#include "kernels/score/score_cuda.h"
#include "precis/kernels.h"
#include "precis/recipe.h"

namespace precis::kernels {

class SentInput {
 public:
  // Enqueues copies of the inputs that the recipe needs. `in` must stay until `stream` has been
  // waited for. kOutOfSpace if the device has too little memory.
  Status send(const Recipe& recipe, const LayerInput& in, Stream& stream);
  // Describes the sent input. Rows of f8_e4m3 are in bf16 there.
  const LayerDevice& layer() const { return layer_; }
  // The rows as they were pushed, packed.
  const void* keys() const { return keys_.data(); }
  const void* values() const { return values_.data(); }

 private:
  LayerDevice layer_;
  DeviceBuffer keys_, values_, wide_keys_, wide_values_, wide_queries_, queries_, lse_, external_,
      query_mean_, query_covariance_, o_proj_, gram_, rope_frequencies_, probe_;
  std::vector<float> turned_probe_;  // read until the stream has been waited for
};

}  // namespace precis::kernels

// The part of a layer that later queries can see, if the layer has a sliding window.
#pragma once

#include <cstdint>
#include <vector>

#include "precis/kernels.h"

namespace precis::kernels {

// A view of a layer's last tokens as a layer of its own, whose first token stands later in the
// path. So no stage of compression knows of windows, and tokens outside the window cost no time.
// Queries of tokens outside are left out as well.
class VisibleLayer {
 public:
  // `tokens`: how many, from visible_tokens(); above the layer's tokens it is all of them. `recipe`
  // says where the queries stand. The memory that `layer` views must stay valid as long as this.
  VisibleLayer(const Recipe& recipe, const LayerInput& layer, std::uint32_t tokens);
  VisibleLayer(VisibleLayer&&) = default;
  const LayerInput& input() const { return input_; }

 private:
  LayerInput input_;
  std::vector<float> scores_, lse_;  // copies, which unlike views of heads have no strides
};

}  // namespace precis::kernels

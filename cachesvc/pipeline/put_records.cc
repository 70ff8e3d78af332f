#include "cachesvc/pipeline/put_records.h"

#include <vector>

namespace precis {

Status trim_earlier(OpenPut& put, std::uint32_t newest) {
  if (!put.recipe.joins_layers()) return {};
  for (std::uint32_t l = 0; l < put.layers.size(); ++l) {
    PutLayer& layer = put.layers[l];
    if (l == newest || layer.counts.empty() || layer.counts == put.joiner->counts(l)) continue;
    layer.counts = put.joiner->counts(l);
    PRECIS_ASSIGN(const std::size_t size,
                  kernels::trim_records(layer.records->bytes(), layer.counts));
    layer.records->shrink(size);
  }
  return {};
}

Status place_seats(OpenPut& put, kernels::Backend& backend) {
  std::vector<MutableBytes> layers;
  for (PutLayer& layer : put.layers) layers.push_back(layer.records->bytes());
  if (put.recipe.is_cut()) {
    PRECIS_TRY(kernels::place_cut_seats(layers));
  } else if (put.recipe.joins_layers()) {
    for (std::uint32_t l = 0; l < layers.size(); ++l) {
      PRECIS_TRY(kernels::place_seats(layers[l], put.joiner->seats(l)));
    }
  }
  return put.final_when_encoded() ? Status() : backend.seal(layers);
}

}  // namespace precis

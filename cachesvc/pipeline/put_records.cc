#include "cachesvc/pipeline/put_records.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace precis {
namespace {

// A hole of at least 1/8 of the size of the records above it is closed even if no request waits for
// memory.
constexpr std::size_t kHoleShare = 8;

Status cut_at_quality(OpenPut& put, std::vector<MutableBytes>& layers) {
  const double mass = std::accumulate(put.mass.begin(), put.mass.end(), 0.0);
  PRECIS_ASSIGN(
      const std::uint64_t entries,
      kernels::quality_entries(layers, put.floors, mass, put.row.budget.quality_share_ppm()));
  for (std::size_t l = 0; l < layers.size(); ++l) {
    PutLayer& layer = put.layers[l];
    PRECIS_ASSIGN(const std::size_t size, kernels::cut_records(layers[l], entries, &layer.counts));
    layer.records->shrink(size);
    layers[l] = layer.records->bytes();
  }
  return {};
}

}  // namespace

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

bool compact_records(OpenPut& put, bool all) {
  const std::lock_guard lock(put.joining);
  std::vector<Arena::Buffer*> encoded;
  for (const PutLayer& layer : put.layers) {
    if (layer.may_move()) encoded.push_back(layer.records.get());
  }
  std::ranges::sort(encoded, {}, [](const Arena::Buffer* b) { return b->bytes().data(); });
  bool moved = false;
  for (Arena::Buffer* records : encoded) {
    const std::byte* const lay = records->bytes().data();
    records->slide_down(all ? 1 : records->bytes().size() / kHoleShare);
    moved |= records->bytes().data() != lay;
  }
  return moved;
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
  if (put.row.budget.kind == Budget::Kind::kQuality) PRECIS_TRY(cut_at_quality(put, layers));
  return put.final_when_encoded() ? Status() : backend.seal(layers);
}

}  // namespace precis

#include "cachesvc/pipeline/open_put.h"

#include <algorithm>
#include <string>

namespace precis {

std::string OpenPut::missing_layers() const {
  std::string missing;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    if (layers[l].is_compressed()) continue;
    const std::size_t first = l;
    const auto is_awaited = [&](std::size_t at) {
      return at < layers.size() && layers[at].state() == LayerState::kAwaited;
    };
    while (is_awaited(first) && is_awaited(l + 1)) ++l;
    if (!missing.empty()) missing += ", ";
    missing += (l > first ? "layers " : "layer ") + std::to_string(first);
    if (l > first) missing += "-" + std::to_string(l);
    if (layers[l].rows) missing += " (" + layers[l].rows->missing() + ")";
  }
  return missing;
}

std::size_t OpenPut::records_bytes_max(std::uint32_t layer) const {
  return kernels::encoded_bytes_max(joiner->slots_wanted(layer), model.num_kv_heads, entry_form());
}

std::size_t OpenPut::projection_bytes(std::uint32_t layer) const {
  return projections.empty() ? 0 : Projections::part_bytes(*projections[layer], part);
}

std::size_t OpenPut::entries_bytes_max() const {
  return kernels::encoded_bytes_max(entries, model.num_layers * model.num_kv_heads, entry_form());
}

std::size_t OpenPut::staged_bytes_max() const {
  const StagedLayer pushed(model, recipe, 0, num_tokens());
  const std::size_t scores =
      recipe.needs_scores() ? std::size_t{model.num_kv_heads} * num_tokens() * sizeof(float) : 0;
  std::size_t records = 0;
  for (std::uint32_t l = 0; l < model.num_layers; ++l) {
    records = std::max(records, records_bytes_max(l) + projection_bytes(l));
  }
  // Each of these takes whole pages: the rows, the observations and the projection, and the records
  // of each layer.
  return pushed.size_bytes(StagedLayer::Part::kEntries) + scores + pushed.read_observation_bytes() +
         records + entries_bytes_max() + (model.num_layers + 4) * Arena::taken_bytes(1);
}

void OpenPut::count_observations(const StagedLayer& claimed) {
  const std::size_t counted = std::max(observed_bytes, claimed.read_observation_bytes());
  const std::size_t bytes = claimed.size_bytes(StagedLayer::Part::kObservations);
  if (bytes <= counted) return;
  room->add(bytes - counted);
  observed_bytes = bytes;
}

std::size_t OpenPut::kept_bytes() const {
  const std::size_t layer_bytes = sizeof(PutLayer) + sizeof(std::vector<float>) + sizeof(double) +
                                  3 * sizeof(std::uint32_t) * std::size_t{model.num_kv_heads};
  return row.blocks.size() * sizeof(Digest) + row.tail.size() * sizeof(TokenId) +
         layers.size() * layer_bytes + model.rope_scaling.size() +
         model.windows.size() * sizeof(std::uint32_t);
}

void OpenPut::drop_kept() {
  std::vector<Digest>().swap(row.blocks);
  std::vector<TokenId>().swap(row.tail);
  std::vector<PutLayer>().swap(layers);
  joiner.reset();
}

}  // namespace precis

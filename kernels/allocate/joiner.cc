// Chooses the joiner of a recipe and refuses invalid input.
#include "precis/joiner.h"

#include <limits>

#include "kernels/allocate/join_heads.h"
#include "kernels/allocate/join_layers.h"

namespace precis::kernels {
namespace {

Status check_profile_shape(const Profile& profile, const SegmentDims& dims) {
  if (profile.num_layers == dims.num_layers && profile.num_kv_heads == dims.num_kv_heads) return {};
  return Status::invalid(
      "profile " + profile.name + " is of " + std::to_string(profile.num_layers) + " layers and " +
      std::to_string(profile.num_kv_heads) + " KV heads, the model has " +
      std::to_string(dims.num_layers) + " and " + std::to_string(dims.num_kv_heads));
}

}  // namespace

bool Joiner::walks_entries(const Recipe& recipe) {
  switch (recipe.layers) {
    case LayerAllocator::kPyramid:
    case LayerAllocator::kTable: return true;
    case LayerAllocator::kUniform:
    case LayerAllocator::kPreference:
    case LayerAllocator::kEntropy:
    case LayerAllocator::kGlobalFlat: return false;
  }
  return true;
}

Result<std::unique_ptr<Joiner>> Joiner::make(const Recipe& recipe, const SegmentDims& dims,
                                             std::uint64_t entries, const Profile* profile) {
  if (entries > std::numeric_limits<std::uint32_t>::max()) {
    return Status::invalid(std::to_string(entries) +
                           " entries exceed the 4294967295 seats of a segment");
  }
  if (recipe.heads == HeadAllocator::kTable) {
    if (profile == nullptr) {
      return Status::invalid(
          "the recipe takes its budgets from a profile, and none is given; "
          "precis profile build makes one");
    }
    PRECIS_TRY(check_profile_shape(*profile, dims));
  }
  switch (recipe.layers) {
    case LayerAllocator::kUniform:
    case LayerAllocator::kPyramid: return join_known_layers(recipe, dims, entries);
    case LayerAllocator::kPreference:
    case LayerAllocator::kEntropy: return join_weighed_layers(recipe, dims, entries);
    case LayerAllocator::kGlobalFlat: return join_competing_heads(recipe, dims, entries);
    case LayerAllocator::kTable: return join_tabled_heads(recipe, dims, entries, *profile);
  }
  return Status::unsupported("layer allocator " + std::to_string(static_cast<int>(recipe.layers)) +
                             " is not in this build");
}

}  // namespace precis::kernels

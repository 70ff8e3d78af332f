// Random segments under random recipes, for tests of properties that hold for all of them.
#pragma once

#include <optional>
#include <vector>

#include "precis/recipe.h"
#include "tests/unit/kernels/layer_fixture.h"

namespace precis::kernels::test {

struct Case {
  Recipe recipe;
  LayerShape shape;
  std::optional<Profile> profile;
  const Profile* table() const { return profile ? &*profile : nullptr; }
};

std::uint32_t any_of(Rng& rng, std::initializer_list<std::uint32_t> values);

// A random recipe, over all scorers, allocators and selectors, with a shape at a boundary. `cuts`:
// includes recipes whose kept set is defined at a single budget.
Case random_case(Rng& rng, bool cuts);

// The shape's layers, num_layers of them.
std::vector<OwnedLayer> make_segment(LayerShape shape, Rng& rng);

}  // namespace precis::kernels::test

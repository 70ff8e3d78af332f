// Binds the kernels' offline solvers, which compute profile tables from the measured worth of
// entries.

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "errors.h"
#include "gil.h"
#include "precis/profile.h"
#include "precis/profile_solver.h"
#include "precis/rope.h"

namespace precis::python {
namespace {

std::vector<std::span<const float>> views(const std::vector<FloatArray>& worth) {
  std::vector<std::span<const float>> heads;
  heads.reserve(worth.size());
  for (const FloatArray& head : worth) heads.emplace_back(head.data(), head.size());
  return heads;
}

nb::object prune_curves(const std::vector<FloatArray>& worth, std::uint32_t num_tokens,
                        std::uint32_t protected_count) {
  const auto heads = views(worth);
  auto table = unwrap(
      without_gil([&] { return kernels::prune_curves(heads, num_tokens, protected_count); }));
  return array_of(std::move(table), Profile::kCurveRows, heads.size());
}

nb::object head_weights(const std::vector<FloatArray>& worth, double share) {
  const auto heads = views(worth);
  auto table = unwrap(without_gil([&] { return kernels::head_weights(heads, share); }));
  return array_of(std::move(table), 1, heads.size());
}

}  // namespace

void bind_profile(nb::module_& module) {
  module.def("prune_curves", &prune_curves);
  module.def("head_weights", &head_weights);
  module.def("rope_frequencies", [](const ModelSpec& model) { return rope_frequencies(model); });
}

}  // namespace precis::python

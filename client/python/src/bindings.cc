// The extension module precis._core.

#include "bindings.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstdint>

#include "arrays.h"
#include "errors.h"
#include "gil.h"
#include "precis/hint_limits.h"
#include "precis/loss_budget.h"
#include "precis/profile.h"
#include "precis/recipe.h"
#include "waits.h"

NB_MODULE(_core, module) {
  namespace python = precis::python;
  // A tensor that PyTorch made from an array of this module may outlive the module; that is not a
  // leak.
  nanobind::set_leak_warnings(false);
  module.doc() = "The C++ of precis: used through the package precis, not directly.";
  python::bind_messages(module);
  python::bind_pages(module);
  python::bind_client(module);
  python::bind_sessions(module);
  python::bind_tenants(module);
  python::bind_calls(module);
  python::bind_kernels(module);
  python::bind_profile(module);
  python::bind_waits(module);
  python::notice_signals();
  python::wait_for_calls_at_exit();
  module.def("as_bfloat16", &python::as_bfloat16);
  module.def("preset_names", &precis::preset_names);
  module.def("canonical_recipe", [](std::string_view text) {
    return precis::canonical_recipe(python::unwrap(precis::parse_recipe(text)));
  });
  module.def("profile_scorer", [](std::string_view text) {
    return precis::profile_scorer(python::unwrap(precis::parse_recipe(text)));
  });
  module.def("measured_recipe", [](std::string_view text) {
    return precis::measured_recipe(python::unwrap(precis::parse_recipe(text)));
  });
  module.def("needs_queries", [](std::string_view text) {
    return python::unwrap(precis::parse_recipe(text)).needs_queries();
  });
  module.attr("PRIORITY_MAX") = precis::limits::kPriorityMax;
  module.attr("HINT_SECONDS_MAX") = precis::limits::kHintSecondsMax;
  module.attr("PREFILL_SECONDS_MAX") =
      static_cast<std::uint64_t>(precis::limits::kPrefillSecondsMax);
}

// Binds the plain structs of arguments and replies; the Python package makes dataclasses of them.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "convert.h"
#include "errors.h"
#include "precis/block_digest.h"
#include "precis/client.h"
#include "precis/keep.h"
#include "precis/recipe.h"

namespace precis::python {
namespace {

void bind_models(nb::module_& module) {
  bind_row<ModelSpec>(module, "ModelSpec")
      .def(
          "__init__",
          [](ModelSpec* self, std::string name, std::string revision, std::uint32_t num_layers,
             std::uint32_t num_q_heads, std::uint32_t num_kv_heads, std::uint32_t head_dim,
             const std::string& dtype, double rope_theta, std::string rope_scaling,
             std::uint32_t block_tokens, std::vector<std::uint32_t> windows) {
            const Dtype type = unwrap(parse_dtype(dtype));
            new (self) ModelSpec{std::move(name),
                                 std::move(revision),
                                 num_layers,
                                 num_q_heads,
                                 num_kv_heads,
                                 head_dim,
                                 type,
                                 rope_theta,
                                 std::move(rope_scaling),
                                 block_tokens,
                                 std::move(windows)};
          },
          nb::kw_only(), nb::arg("name"), nb::arg("revision"), nb::arg("num_layers"),
          nb::arg("num_q_heads"), nb::arg("num_kv_heads"), nb::arg("head_dim"), nb::arg("dtype"),
          nb::arg("rope_theta"), nb::arg("rope_scaling"), nb::arg("block_tokens"),
          nb::arg("windows"));

  nb::class_<Model>(module, "Model")
      .def_ro("spec", &Model::spec)
      .def_rw("adapter", &Model::adapter)
      .def("with_adapter",
           [](Model model, std::string adapter) {
             model.adapter = std::move(adapter);
             return model;
           })
      .def_prop_ro("fingerprint", [](const Model& m) { return m.fingerprint.hex(); });

  bind_row<msg::ModelRow>(module, "ModelRow");
  bind_row<msg::ProfileRow>(module, "ProfileRow");

  module.def("fingerprint", [](const ModelSpec& spec) {
    check(spec.validate());
    return model_fingerprint(spec).hex();
  });
}

void bind_segments(nb::module_& module) {
  bind_row<msg::SegmentInfo>(module, "SegmentInfo");
  bind_row<msg::MatchLink>(module, "MatchLink");
  bind_row<msg::Match, LookupMatch>(module, "Match")
      .def_prop_ro("lease", [](const LookupMatch& m) { return m.lease_ms / 1000.0; })
      .def_prop_ro("counted", &LookupMatch::counted)
      .def_prop_ro("keep", [](const LookupMatch& m) { return from_budget(m.options.keep); })
      .def_prop_ro("align", [](const LookupMatch& m) { return m.options.align; })
      .def(
          "to_bytes",
          [](const LookupMatch& match, const TokenArray& tokens) {
            const std::vector<std::byte> bytes = to_bytes(match, token_view(tokens));
            return nb::bytes(bytes.data(), bytes.size());
          },
          nb::arg("tokens").noconvert());
  // Returns the match, and the tokens that came with it, in one row.
  module.def("match_from_bytes", [](const nb::bytes& bytes) {
    std::vector<TokenId> tokens;
    LookupMatch match = unwrap(
        match_from_bytes({static_cast<const std::byte*>(bytes.data()), bytes.size()}, &tokens));
    const std::size_t count = tokens.size();
    return nb::make_tuple(std::move(match), array_of(std::move(tokens), 1, count));
  });

  bind_row<msg::Removed>(module, "Removed");
  bind_row<msg::Checked>(module, "Checked");
  bind_row<msg::Trimmed>(module, "Trimmed");
}

void bind_operations(nb::module_& module) {
  bind_row<msg::BudgetRow>(module, "BudgetRow");
  bind_row<msg::NextPut>(module, "NextPut");
  bind_row<msg::Budgets>(module, "Budgets");
  bind_row<msg::Stat>(module, "Stat");
  bind_row<msg::ServerStatus>(module, "ServerStatus");
}

}  // namespace

void bind_messages(nb::module_& module) {
  bind_models(module);
  bind_segments(module);
  bind_operations(module);
  module.def("ratio_budget", [](double keep) { return from_budget(unwrap(Budget::ratio(keep))); });
  module.def("parse_keep", [](const std::string& text, const std::string& field) {
    return from_budget(unwrap(parse_keep(text, field)));
  });
  module.def("loss_budget", [](double most) { return from_budget(unwrap(Budget::loss(most))); });
  module.def("byte_share_budget",
             [](double share) { return from_budget(unwrap(Budget::byte_share(share))); });
  module.def("budget_entries", [](const std::string& recipe, const ModelSpec& model,
                                  std::uint32_t num_tokens, const BudgetPair& keep) {
    const Recipe parsed = unwrap(parse_recipe(recipe));
    return unwrap(budget_entries(parsed, model, num_tokens, to_budget(keep)));
  });
}

}  // namespace precis::python

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

namespace precis::python {
namespace {

void bind_models(nb::module_& module) {
  nb::class_<ModelSpec>(module, "ModelSpec")
      .def(
          "__init__",
          [](ModelSpec* self, std::string name, std::string revision, std::uint32_t num_layers,
             std::uint32_t num_q_heads, std::uint32_t num_kv_heads, std::uint32_t head_dim,
             const std::string& dtype, double rope_theta, std::string rope_scaling,
             std::uint32_t block_tokens) {
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
                                 block_tokens};
          },
          nb::kw_only(), nb::arg("name"), nb::arg("revision"), nb::arg("num_layers"),
          nb::arg("num_q_heads"), nb::arg("num_kv_heads"), nb::arg("head_dim"), nb::arg("dtype"),
          nb::arg("rope_theta"), nb::arg("rope_scaling"), nb::arg("block_tokens"))
      .def_ro("name", &ModelSpec::name)
      .def_ro("revision", &ModelSpec::revision)
      .def_ro("num_layers", &ModelSpec::num_layers)
      .def_ro("num_q_heads", &ModelSpec::num_q_heads)
      .def_ro("num_kv_heads", &ModelSpec::num_kv_heads)
      .def_ro("head_dim", &ModelSpec::head_dim)
      .def_prop_ro("dtype", [](const ModelSpec& s) { return std::string(dtype_name(s.dtype)); })
      .def_ro("rope_theta", &ModelSpec::rope_theta)
      .def_ro("rope_scaling", &ModelSpec::rope_scaling)
      .def_ro("block_tokens", &ModelSpec::block_tokens);

  nb::class_<Model>(module, "Model")
      .def_ro("spec", &Model::spec)
      .def_rw("adapter", &Model::adapter)
      .def("with_adapter",
           [](Model model, std::string adapter) {
             model.adapter = std::move(adapter);
             return model;
           })
      .def_prop_ro("fingerprint", [](const Model& m) { return m.fingerprint.hex(); });

  nb::class_<msg::ModelRow>(module, "ModelRow")
      .def_ro("model", &msg::ModelRow::model)
      .def_prop_ro("fingerprint", [](const msg::ModelRow& r) { return r.fingerprint.hex(); })
      .def_ro("segments", &msg::ModelRow::segments)
      .def_ro("projections", &msg::ModelRow::projections);

  using Row = msg::ProfileRow;
  nb::class_<Row>(module, "ProfileRow")
      .def_ro("name", &Row::name)
      .def_ro("kind", &Row::kind)
      .def_prop_ro("model", [](const Row& r) { return r.model.hex(); })
      .def_ro("scorer", &Row::scorer)
      .def_prop_ro("digest", [](const Row& r) { return r.digest.hex(); })
      .def_ro("num_tokens", &Row::num_tokens)
      .def_ro("text_digest", &Row::text_digest)
      .def_ro("added_unix_ms", &Row::added_unix_ms)
      .def_ro("json", &Row::json);

  module.def("fingerprint", [](const ModelSpec& spec) {
    check(spec.validate());
    return model_fingerprint(spec).hex();
  });
}

void bind_segments(nb::module_& module) {
  using Info = msg::SegmentInfo;
  nb::class_<Info>(module, "SegmentInfo")
      .def_prop_ro("id", [](const Info& i) { return from_segment_id(i.id); })
      .def_prop_ro("parent", [](const Info& i) { return from_segment_id(i.parent); })
      .def_prop_ro("model", [](const Info& i) { return i.model.hex(); })
      .def_ro("adapter", &Info::adapter)
      .def_ro("begin", &Info::begin)
      .def_ro("end", &Info::end)
      .def_ro("recipe", &Info::recipe)
      .def_ro("preset", &Info::preset)
      .def_prop_ro("budget", [](const Info& i) { return from_budget(i.budget); })
      .def_prop_ro("parent_read", [](const Info& i) { return from_budget(i.parent_read); })
      .def_prop_ro("trimmed", [](const Info& i) { return from_budget(i.trimmed); })
      .def_ro("entries", &Info::entries)
      .def_ro("original_bytes", &Info::original_bytes)
      .def_ro("stored_bytes", &Info::stored_bytes)
      .def_ro("compress_seconds", &Info::compress_seconds)
      .def_ro("created_unix_ms", &Info::created_unix_ms)
      .def_ro("hits", &Info::hits)
      .def_ro("children", &Info::children)
      .def_ro("in_memory", &Info::in_memory)
      .def_ro("out_of_service", &Info::out_of_service)
      .def_prop_ro("plan", [](const Info& i) { return i.plan ? from_plan(*i.plan) : nb::none(); });

  nb::class_<msg::MatchLink>(module, "MatchLink")
      .def_ro("segment", &msg::MatchLink::segment)
      .def_ro("matched_end", &msg::MatchLink::matched_end)
      .def_prop_ro("counts", [](const msg::MatchLink& link) {  // of all layers, in one row
        return array_of(link.counts, 1, link.counts.size());
      });

  nb::class_<LookupMatch>(module, "Match")
      .def_ro("matched_tokens", &LookupMatch::matched_tokens)
      .def_ro("links", &LookupMatch::links)
      .def_prop_ro("plan", [](const LookupMatch& m) { return from_plan(m.plan); })
      .def_ro("bytes", &LookupMatch::bytes)
      .def_ro("predicted_seconds", &LookupMatch::predicted_seconds)
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

  nb::class_<msg::Removed>(module, "Removed")
      .def_ro("segments", &msg::Removed::segments)
      .def_ro("bytes", &msg::Removed::bytes);

  nb::class_<msg::Checked>(module, "Checked")
      .def_ro("bytes", &msg::Checked::bytes)
      .def_ro("damage", &msg::Checked::damage);

  nb::class_<msg::Trimmed>(module, "Trimmed")
      .def_ro("entries", &msg::Trimmed::entries)
      .def_ro("stored_bytes", &msg::Trimmed::stored_bytes)
      .def_ro("freed_bytes", &msg::Trimmed::freed_bytes);
}

void bind_operations(nb::module_& module) {
  using Session = msg::SessionRow;
  nb::class_<Session>(module, "SessionRow")
      .def_ro("name", &Session::name)
      .def_prop_ro("tip", [](const Session& s) { return from_segment_id(s.tip); })
      .def_ro("tip_end", &Session::tip_end)
      .def_ro("turns", &Session::turns)
      .def_ro("ttl_seconds", &Session::ttl_seconds)
      .def_ro("expires_unix_ms", &Session::expires_unix_ms)
      .def_ro("pinned", &Session::pinned)
      .def_ro("updated_unix_ms", &Session::updated_unix_ms);

  nb::class_<msg::BudgetRow>(module, "BudgetRow")
      .def_ro("scope", &msg::BudgetRow::scope)
      .def_ro("recipe", &msg::BudgetRow::recipe)
      .def_prop_ro("keep", [](const msg::BudgetRow& r) { return from_budget(r.keep); })
      .def_ro("version", &msg::BudgetRow::version)
      .def_ro("set_unix_ms", &msg::BudgetRow::set_unix_ms);
  nb::class_<msg::Budgets>(module, "Budgets")
      .def_ro("layers", &msg::Budgets::layers)
      .def_ro("effective", &msg::Budgets::effective);

  nb::class_<msg::Stat>(module, "Stat")
      .def_ro("name", &msg::Stat::name)
      .def_ro("value", &msg::Stat::value)
      .def_ro("help", &msg::Stat::help);

  using Server = msg::ServerStatus;
  nb::class_<Server>(module, "ServerStatus")
      .def_ro("server", &Server::server)
      .def_ro("tenant", &Server::tenant)
      .def_ro("data_dir", &Server::data_dir)
      .def_ro("transport", &Server::transport)
      .def_ro("device", &Server::device)
      .def_ro("rdma", &Server::rdma)
      .def_ro("uptime_seconds", &Server::uptime_seconds)
      .def_ro("segments", &Server::segments)
      .def_ro("sessions", &Server::sessions)
      .def_ro("models", &Server::models)
      .def_ro("stored_bytes", &Server::stored_bytes)
      .def_ro("memory_bytes", &Server::memory_bytes)
      .def_ro("memory_limit_bytes", &Server::memory_limit_bytes)
      .def_ro("segments_out_of_service", &Server::segments_out_of_service)
      .def_ro("disk_free_bytes", &Server::disk_free_bytes)
      .def_ro("disk_min_free_bytes", &Server::disk_min_free_bytes)
      .def_ro("disk_low", &Server::disk_low)
      .def_ro("disk_fault", &Server::disk_fault)
      .def_ro("exposed", &Server::exposed)
      .def_ro("doubtful_recovery", &Server::doubtful_recovery)
      .def_ro("lost_changes", &Server::lost_changes)
      .def_ro("kept_bytes", &Server::kept_bytes)
      .def_ro("kept_log_bytes", &Server::kept_log_bytes);
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
  module.def("quality_budget", [](double share, double cap) {
    return from_budget(unwrap(Budget::quality(share, cap)));
  });
}

}  // namespace precis::python

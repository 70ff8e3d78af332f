// Binds Client, Put and Prefix. Calls that wait for the service release the GIL.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "arrays.h"
#include "bindings.h"
#include "convert.h"
#include "errors.h"
#include "gil.h"
#include "owned.h"
#include "pages.h"
#include "precis/client.h"
#include "precis/page_mover.h"
#include "put_handle.h"

namespace precis::python {
namespace {
// Runs `call` without the GIL and unwraps its Result.
template <typename Call>
auto answer(Call&& call) {
  return unwrap(without_gil(std::forward<Call>(call)));
}

using OwnedBuffer = Owned<HostBuffer>;

std::optional<SegmentId> to_parent(const std::optional<std::string>& parent) {
  if (!parent) return std::nullopt;
  return to_segment_id(*parent);
}

std::optional<Digest> to_scope(const std::optional<std::string>& model) {
  if (!model) return std::nullopt;
  return unwrap(parse_digest(*model));
}

// (positions, seats, scores, keys, values): views of the prefix's memory, which keep it alive.
nb::tuple head_arrays(nb::handle_t<OwnedPrefix> self, std::uint32_t layer, std::uint32_t head) {
  const HeadEntries entries = nb::cast<const OwnedPrefix&>(self).get().head(layer, head);
  return nb::make_tuple(array_over(entries.positions, self), array_over(entries.seats, self),
                        array_over(entries.scores, self), rows_over(entries.keys, self),
                        rows_over(entries.values, self));
}

void bind_put(nb::module_& module) {
  nb::class_<PutHandle>(module, "Put")
      .def_prop_ro("begin", [](const PutHandle& p) { return p.begun().begin; })
      .def_prop_ro("end", [](const PutHandle& p) { return p.begun().end; })
      .def_prop_ro("parent", [](const PutHandle& p) { return from_segment_id(p.begun().parent); })
      .def_prop_ro("segment", [](const PutHandle& p) { return from_segment_id(p.begun().segment); })
      .def_prop_ro("already_stored", [](const PutHandle& p) { return p.begun().already_stored; })
      .def_prop_ro("recipe", [](const PutHandle& p) { return p.begun().recipe; })
      .def_prop_ro("entries", [](const PutHandle& p) { return p.begun().entries; })
      .def_prop_ro("keep", [](const PutHandle& p) { return from_budget(p.begun().budget); })
      .def_prop_ro("limited", [](const PutHandle& p) { return p.begun().limited; })
      .def(
          "layer",
          [](PutHandle& p, std::uint32_t layer, AnyArray keys, AnyArray values,
             std::optional<AnyArray> queries, std::optional<FloatArray> lse,
             std::optional<FloatArray> scores, std::optional<FloatArray> query_mean,
             std::optional<FloatArray> query_covariance, std::uint32_t head_begin,
             std::uint32_t token_begin, bool wait) {
            p.layer(layer,
                    {std::move(keys), std::move(values), std::move(queries), std::move(lse),
                     std::move(scores), std::move(query_mean), std::move(query_covariance)},
                    head_begin, token_begin, wait);
          },
          nb::arg("layer"), nb::arg("keys"), nb::arg("values"), nb::arg("queries").none(),
          nb::arg("lse").noconvert().none(), nb::arg("scores").noconvert().none(),
          nb::arg("query_mean").noconvert().none(), nb::arg("query_covariance").noconvert().none(),
          nb::arg("head_begin"), nb::arg("token_begin"), nb::arg("wait"))
      .def(
          "layer_from_pages",
          [](PutHandle& p, std::uint32_t layer, const Pages& pages, const PageNumbers& table,
             std::uint32_t first_row, std::uint32_t num_tokens,
             const std::optional<AnyArray>& queries, std::uint32_t head_begin,
             std::uint32_t token_begin, bool wait) {
            LayerPush push;
            push.pages = pages.in(table, first_row, num_tokens);
            if (queries) push.queries = heads_view(*queries, "queries");
            push.head_begin = head_begin;
            push.token_begin = token_begin;
            p.layer(layer, push, wait);
          },
          nb::arg("layer"), nb::arg("pages"), nb::arg("table").noconvert(), nb::arg("first_row"),
          nb::arg("num_tokens"), nb::arg("queries").none(), nb::arg("head_begin"),
          nb::arg("token_begin"), nb::arg("wait"))
      .def("wait",
           [](PutHandle& p) { check(p.settled([](Put& put) { return put.wait_layers(); })); })
      .def("commit",
           [](PutHandle& p, const std::string& durability, double prefill_s) {
             const Durability level = unwrap(parse_durability(durability));
             return unwrap(p.settled([&](Put& put) { return put.commit(level, prefill_s); }));
           })
      .def("release_arrays", &PutHandle::release_arrays_if_idle)
      .def("abort", [](PutHandle& p) { check(p.settled([](Put& put) { return put.abort(); })); });
}

void bind_prefix(nb::module_& module) {
  nb::class_<OwnedPrefix>(module, "Prefix")
      .def_prop_ro("matched_tokens", [](const OwnedPrefix& p) { return p.get().matched_tokens(); })
      .def_prop_ro("num_layers", [](const OwnedPrefix& p) { return p.get().num_layers(); })
      .def_prop_ro("num_heads", [](const OwnedPrefix& p) { return p.get().num_heads(); })
      .def_prop_ro("model", [](const OwnedPrefix& p) { return p.get().model(); })
      .def("wait_layer",
           [](const OwnedPrefix& p, std::uint32_t layer) {
             check(without_gil([&, &prefix = p.get()] { return prefix.wait_layer(layer); }));
           })
      .def("wait",
           [](const OwnedPrefix& p) {
             check(without_gil([&prefix = p.get()] { return prefix.wait(); }));
           })
      .def("head", &head_arrays)
      .def("plan", [](const OwnedPrefix& p) { return from_plan(p.get().plan()); })
      .def("bytes", [](const OwnedPrefix& p) { return p.get().bytes(); })
      .def("seconds", [](const OwnedPrefix& p) { return p.get().seconds(); });
}

using ClientClass = nb::class_<OwnedClient>;
void bind_paths(ClientClass& client) {
  client
      .def("register_model",
           [](OwnedClient& owned, const ModelSpec& spec, const std::vector<AnyArray>& o_proj) {
             std::vector<HeadsView> views;
             for (const AnyArray& layer : o_proj) views.push_back(heads_view(layer, "o_proj"));
             return answer([&, &c = owned.get()] { return c.register_model(spec, views); });
           })
      .def("models",
           [](OwnedClient& owned) { return answer([&c = owned.get()] { return c.models(); }); })
      .def(
          "begin_put",
          [](OwnedClient& owned, const Model& model, const TokenArray& tokens,
             const std::string& recipe, const std::optional<BudgetPair>& keep,
             const std::optional<std::string>& parent, const std::optional<BudgetPair>& parent_read,
             std::uint32_t writers, std::uint32_t parent_end, const HintValues& hints,
             const std::string& session, double prefill_s, const std::string& traceparent) {
            const PutOptions options{
                recipe,    to_budget(keep), to_parent(parent), to_budget(parent_read),
                writers,   parent_end,      to_hints(hints),   session,
                prefill_s, traceparent};
            return PutHandle(answer(
                [&, &c = owned.get()] { return c.begin_put(model, token_view(tokens), options); }));
          },
          nb::arg("model"), nb::arg("tokens").noconvert(), nb::arg("recipe"),
          nb::arg("keep").none(), nb::arg("parent").none(), nb::arg("parent_read").none(),
          nb::arg("writers"), nb::arg("parent_end"), nb::arg("hints"), nb::arg("session"),
          nb::arg("prefill_s"), nb::arg("traceparent"))
      .def(
          "lookup",
          [](OwnedClient& owned, const Model& model, const TokenArray& tokens,
             const std::optional<BudgetPair>& keep, std::uint32_t align, std::uint32_t lease_ms,
             const HintValues& hints, const std::string& traceparent, const std::string& session) {
            const auto options =
                to_lookup_options(keep, align, lease_ms, hints, traceparent, session);
            return answer(
                [&, &c = owned.get()] { return c.lookup(model, token_view(tokens), options); });
          },
          nb::arg("model"), nb::arg("tokens").noconvert(), nb::arg("keep").none(), nb::arg("align"),
          nb::arg("lease_ms"), nb::arg("hints"), nb::arg("traceparent"), nb::arg("session"))
      .def(
          "get",
          [](OwnedClient& owned, const LookupMatch& match, const BudgetPair& keep,
             const RowsOutPairs& out, const std::optional<PagesTable>& pages,
             std::uint32_t head_begin, std::uint32_t head_count, const std::string& traceparent) {
            const std::vector<LayerOut> layers = layers_out(out);
            const GetOptions options{layers, head_begin, head_count, pages_out(pages), traceparent};
            return OwnedPrefix(std::make_shared<Prefix>(
                answer([&, &c = owned.get()] { return c.get(match, to_budget(keep), options); })));
          },
          nb::arg("match"), nb::arg("keep"), nb::arg("out"), nb::arg("pages").none(),
          nb::arg("head_begin"), nb::arg("head_count"), nb::arg("traceparent"));
}

void bind_profiles(ClientClass& client) {
  client
      .def("add_profile",
           [](OwnedClient& owned, const std::string& json) {
             return answer([&, &c = owned.get()] { return c.add_profile(json); });
           })
      .def(
          "profiles",
          [](OwnedClient& owned, const std::optional<std::string>& model) {
            const std::optional<Digest> scope = to_scope(model);
            return answer([&, &c = owned.get()] { return c.profiles(scope); });
          },
          nb::arg("model").none())
      .def("profile",
           [](OwnedClient& owned, const std::string& model, const std::string& name) {
             const Digest fingerprint = unwrap(parse_digest(model));
             return answer([&, &c = owned.get()] { return c.profile(fingerprint, name); });
           })
      .def("remove_model",
           [](OwnedClient& owned, const std::string& model) {
             const Digest fingerprint = unwrap(parse_digest(model));
             check(without_gil([&, &c = owned.get()] { return c.remove_model(fingerprint); }));
           })
      .def("remove_profile", [](OwnedClient& owned, const std::string& model,
                                const std::string& name) {
        const Digest fingerprint = unwrap(parse_digest(model));
        check(without_gil([&, &c = owned.get()] { return c.remove_profile(fingerprint, name); }));
      });
}

void bind_operations(ClientClass& client) {
  client
      .def(
          "segments",
          [](OwnedClient& owned, const std::optional<std::string>& model, std::uint32_t limit) {
            const std::optional<Digest> scope = to_scope(model);
            return answer([&, &c = owned.get()] { return c.segments(scope, limit); });
          },
          nb::arg("model").none(), nb::arg("limit"))
      .def("segment",
           [](OwnedClient& owned, const std::string& hex) {
             const SegmentId id = to_segment_id(hex);
             return answer([&, &c = owned.get()] { return c.segment(id); });
           })
      .def("remove_segment",
           [](OwnedClient& owned, const std::string& hex, bool recursive) {
             const SegmentId id = to_segment_id(hex);
             return answer([&, &c = owned.get()] { return c.remove_segment(id, recursive); });
           })
      .def("check_segment",
           [](OwnedClient& owned, const std::string& hex) {
             const SegmentId id = to_segment_id(hex);
             return answer([&, &c = owned.get()] { return c.check_segment(id); });
           })
      .def("trim_segment",
           [](OwnedClient& owned, const std::string& hex, const BudgetPair& keep,
              const std::string& durability, bool dry_run) {
             const SegmentId id = to_segment_id(hex);
             const Budget budget = to_budget(keep);
             const Durability level = unwrap(parse_durability(durability));
             return answer(
                 [&, &c = owned.get()] { return c.trim_segment(id, budget, level, dry_run); });
           })
      .def("set_retention",
           [](OwnedClient& owned, const std::string& hex, const HintValues& hints) {
             const auto [priority, ttl_seconds, expected] = hints;
             const msg::SetRetention change{to_segment_id(hex), priority, ttl_seconds};
             return answer([&, &c = owned.get()] { return c.set_retention(change); });
           })
      .def(
          "budgets",
          [](OwnedClient& owned, const std::optional<std::string>& model,
             const std::string& session) {
            return answer([&, &c = owned.get(), scope = to_scope(model)] {
              return c.budgets(scope, session);
            });
          },
          nb::arg("model").none(), nb::arg("session"))
      .def(
          "set_budget",
          [](OwnedClient& owned, const std::optional<std::string>& model,
             const std::optional<std::string>& recipe, const std::optional<BudgetPair>& keep,
             const std::optional<BudgetPair>& limit, const std::string& user,
             const std::string& comment, const std::string& session, const std::string& table,
             bool dry_run) {
            msg::SetBudget change{{to_scope(model), session},
                                  recipe,
                                  to_budget(keep),
                                  to_budget(limit),
                                  user,
                                  comment,
                                  {}};
            change.table = table;
            change.dry_run = dry_run;
            return answer([&, &c = owned.get()] { return c.set_budget(change); });
          },
          nb::arg("model").none(), nb::arg("recipe").none(), nb::arg("keep").none(),
          nb::arg("limit").none(), nb::arg("user"), nb::arg("comment"), nb::arg("session"),
          nb::arg("table"), nb::arg("dry_run"))
      .def("stats",
           [](OwnedClient& owned) { return answer([&c = owned.get()] { return c.stats(); }).rows; })
      .def("status",
           [](OwnedClient& owned) { return answer([&c = owned.get()] { return c.status(); }); });
}

}  // namespace

void bind_client(nb::module_& module) {
  bind_put(module);
  bind_prefix(module);
  ClientClass client(module, "Client");
  client.def("with_deadline", [](OwnedClient& owned, std::uint32_t deadline_ms) {
    return OwnedClient(owned.get().with_deadline(deadline_ms));
  });
  nb::class_<OwnedBuffer> buffer(module, "HostBuffer");
  buffer.def("bytes", [](nb::handle_t<OwnedBuffer> self) {
    return array_over(nb::cast<const OwnedBuffer&>(self).get().bytes(), self);
  });
  client.def("allocate", [](OwnedClient& owned, std::size_t size_bytes) {
    return OwnedBuffer(answer([&, &c = owned.get()] { return c.allocate(size_bytes); }));
  });
  bind_paths(client);
  bind_profiles(client);
  bind_operations(client);
  module.def("connect",
             [](const std::string& address, const std::string& tenant, const std::string& token,
                std::uint32_t timeout_ms, std::uint32_t deadline_ms, bool retry,
                const std::string& tls_ca, const std::string& tls_cert, const std::string& tls_key,
                bool share_memory, const std::string& rdma) {
               ConnectOptions options;
               options.page_mover = kernels::make_cuda_page_mover;
               options.tenant = tenant;
               options.token = token;
               options.timeout_ms = timeout_ms;
               options.deadline_ms = deadline_ms;
               options.retry = retry;
               options.tls_ca = tls_ca;
               options.tls_cert = tls_cert;
               options.tls_key = tls_key;
               options.share_memory = share_memory;
               options.rdma = rdma;
               options.client_name = "precis-python/" PRECIS_VERSION;
               expect_forks();
               return OwnedClient(answer([&] { return Client::connect(address, options); }));
             });
  module.def("open", [](const std::string& directory, std::uint64_t memory, std::uint64_t disk,
                        unsigned threads, const std::string& device) {
    const OpenOptions options{memory, disk, threads, device, kernels::make_cuda_page_mover};
    expect_forks();
    return OwnedClient(answer([&] { return Client::open(directory, options); }));
  });
}

}  // namespace precis::python

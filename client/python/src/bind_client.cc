// Client, Put and Prefix. Whatever waits for the service does so without the GIL.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "arrays.h"
#include "bindings.h"
#include "convert.h"
#include "errors.h"
#include "precis/client.h"

namespace precis::python {
namespace {

// Waits for `call`, which answers with a Result, and unwraps it.
template <typename Call>
auto answer(Call&& call) {
  return unwrap(without_gil(std::forward<Call>(call)));
}

// `object` for Python: where its last handle goes, that may wait for the service or for a thread,
// and other Python threads go on. (Shared, as nanobind has it, with the Python object alone.)
template <typename T>
std::shared_ptr<T> held(std::shared_ptr<T> object) {
  T* const raw = object.get();
  return {raw,
          [object = std::move(object)](T*) mutable { without_gil([&object] { object.reset(); }); }};
}

std::optional<SegmentId> to_parent(const std::optional<std::string>& parent) {
  if (!parent) return std::nullopt;
  return to_segment_id(*parent);
}

std::optional<Digest> to_scope(const std::optional<std::string>& model) {
  if (!model) return std::nullopt;
  return unwrap(parse_digest(*model));
}

// The arrays of one push, whose memory they keep.
struct PushedArrays {
  AnyArray keys, values;
  std::optional<AnyArray> queries;
  std::optional<FloatArray> lse, scores, query_mean, query_covariance;

  LayerPush views(std::uint32_t head_begin, std::uint32_t token_begin) const {
    return {.keys = heads_view(keys, "keys"),
            .values = heads_view(values, "values"),
            .queries = queries ? heads_view(*queries, "queries") : HeadsView{},
            .lse = float_view(lse),
            .scores = float_view(scores),
            .head_begin = head_begin,
            .token_begin = token_begin,
            .query_mean = float_view(query_mean),
            .query_covariance = float_view(query_covariance)};
  }
};

// A Put and what it reads of Python's while pieces of it are under way.
class PutHandle {
 public:
  explicit PutHandle(Put put) : put_(std::move(put)) {}
  PutHandle(PutHandle&&) = default;
  // Pieces under way are called off, which waits.
  ~PutHandle() {
    without_gil([this] { put_.reset(); });
  }

  Put& put() { return *put_; }
  const msg::PutBegun& begun() const { return put_->begun(); }

  void layer(std::uint32_t layer, PushedArrays arrays, std::uint32_t head_begin,
             std::uint32_t token_begin, bool wait) {
    const LayerPush push = arrays.views(head_begin, token_begin);  // or throws
    held_.push_back(std::move(arrays));
    const Status status = without_gil([&]() -> Status {
      return wait ? put_->layer(layer, push) : put_->start_layer(layer, push);
    });
    let_go(wait || !status.ok() ? 0 : Put::kLayersAheadMax);
    check(status);
  }
  // For all that waits for the pieces, or ends them.
  template <typename Call>
  auto settled(Call&& call) {
    auto outcome = without_gil(std::forward<Call>(call));
    let_go(0);
    return outcome;
  }

 private:
  void let_go(std::size_t left) {
    while (held_.size() > left) held_.pop_front();
  }

  std::deque<PushedArrays> held_;  // the newest last; longer than put_, which may read them
  std::optional<Put> put_;
};

// (positions, seats, scores, keys, values) over the prefix's memory, which they keep alive.
nb::tuple head_arrays(nb::handle_t<Prefix> self, std::uint32_t layer, std::uint32_t head) {
  const HeadEntries entries = nb::cast<const Prefix&>(self).head(layer, head);
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
      .def("wait", [](PutHandle& p) { check(p.settled([&] { return p.put().wait_layers(); })); })
      .def("commit",
           [](PutHandle& p, const std::string& durability) {
             const Durability level = unwrap(parse_durability(durability));
             return unwrap(p.settled([&] { return p.put().commit(level); }));
           })
      .def("abort", [](PutHandle& p) { check(p.settled([&] { return p.put().abort(); })); });
}

void bind_prefix(nb::module_& module) {
  nb::class_<Prefix>(module, "Prefix")
      .def_prop_ro("matched_tokens", &Prefix::matched_tokens)
      .def_prop_ro("num_layers", &Prefix::num_layers)
      .def_prop_ro("model", &Prefix::model)
      .def("wait_layer",
           [](const Prefix& prefix, std::uint32_t layer) {
             check(without_gil([&] { return prefix.wait_layer(layer); }));
           })
      .def("wait", [](const Prefix& prefix) { check(without_gil([&] { return prefix.wait(); })); })
      .def("head", &head_arrays)
      .def("plan", [](const Prefix& prefix) { return from_plan(prefix.plan()); })
      .def("bytes", &Prefix::bytes)
      .def("seconds", &Prefix::seconds);
}

using ClientClass = nb::class_<Client>;

void bind_paths(ClientClass& client) {
  client
      .def("register_model",
           [](Client& c, const ModelSpec& spec, const std::vector<AnyArray>& o_proj) {
             std::vector<HeadsView> views;
             for (const AnyArray& layer : o_proj) views.push_back(heads_view(layer, "o_proj"));
             return answer([&] { return c.register_model(spec, views); });
           })
      .def("models", [](Client& c) { return answer([&] { return c.models(); }); })
      .def(
          "begin_put",
          [](Client& c, const Model& model, const TokenArray& tokens, const std::string& recipe,
             const std::optional<BudgetPair>& keep, const std::optional<std::string>& parent,
             const std::optional<BudgetPair>& parent_read, std::uint32_t writers) {
            const PutOptions options{recipe, to_budget(keep), to_parent(parent),
                                     to_budget(parent_read), writers};
            return PutHandle(
                answer([&] { return c.begin_put(model, token_view(tokens), options); }));
          },
          nb::arg("model"), nb::arg("tokens").noconvert(), nb::arg("recipe"),
          nb::arg("keep").none(), nb::arg("parent").none(), nb::arg("parent_read").none(),
          nb::arg("writers"))
      .def(
          "lookup",
          [](Client& c, const Model& model, const TokenArray& tokens) {
            return answer([&] { return c.lookup(model, token_view(tokens)); });
          },
          nb::arg("model"), nb::arg("tokens").noconvert())
      .def("get", [](Client& c, const LookupMatch& match, const BudgetPair& keep,
                     const std::vector<std::pair<OutArray, OutArray>>& out) {
        const Budget budget = to_budget(keep);
        std::vector<LayerOut> layers;
        for (const auto& [keys, values] : out) {
          const std::string name = "out[" + std::to_string(layers.size()) + "]";
          layers.push_back({rows_out(keys, (name + ".keys").c_str()),
                            rows_out(values, (name + ".values").c_str())});
        }
        Prefix prefix = answer([&] { return c.get(match, budget, layers); });
        return held(std::make_shared<Prefix>(std::move(prefix)));
      });
}

void bind_profiles(ClientClass& client) {
  client
      .def("add_profile",
           [](Client& c, const std::string& json) {
             return answer([&] { return c.add_profile(json); });
           })
      .def(
          "profiles",
          [](Client& c, const std::optional<std::string>& model) {
            const std::optional<Digest> scope = to_scope(model);
            return answer([&] { return c.profiles(scope); });
          },
          nb::arg("model").none())
      .def("profile",
           [](Client& c, const std::string& model, const std::string& name) {
             const Digest fingerprint = unwrap(parse_digest(model));
             return answer([&] { return c.profile(fingerprint, name); });
           })
      .def("remove_profile", [](Client& c, const std::string& model, const std::string& name) {
        const Digest fingerprint = unwrap(parse_digest(model));
        check(without_gil([&] { return c.remove_profile(fingerprint, name); }));
      });
}

void bind_sessions(ClientClass& client) {
  client
      .def(
          "open_session",
          [](Client& c, const std::string& name, std::optional<std::uint64_t> ttl) {
            return answer([&] { return c.open_session(name, ttl); });
          },
          nb::arg("name"), nb::arg("ttl").none())
      .def("advance_session",
           [](Client& c, const std::string& name, const std::string& tip) {
             const SegmentId id = to_segment_id(tip);
             return answer([&] { return c.advance_session(name, id); });
           })
      .def("pin_session",
           [](Client& c, const std::string& name, bool pinned) {
             return answer([&] { return c.pin_session(name, pinned); });
           })
      .def("fork_session",
           [](Client& c, const std::string& name, const std::string& new_name) {
             return answer([&] { return c.fork_session(name, new_name); });
           })
      .def("session",
           [](Client& c, const std::string& name) {
             return answer([&] { return c.session(name); });
           })
      .def("sessions", [](Client& c) { return answer([&] { return c.sessions(); }); })
      .def("remove_session", [](Client& c, const std::string& name) {
        check(without_gil([&] { return c.remove_session(name); }));
      });
}

void bind_operations(ClientClass& client) {
  client
      .def(
          "segments",
          [](Client& c, const std::optional<std::string>& model, std::uint32_t limit) {
            const std::optional<Digest> scope = to_scope(model);
            return answer([&] { return c.segments(scope, limit); });
          },
          nb::arg("model").none(), nb::arg("limit"))
      .def("segment",
           [](Client& c, const std::string& hex) {
             const SegmentId id = to_segment_id(hex);
             return answer([&] { return c.segment(id); });
           })
      .def("remove_segment",
           [](Client& c, const std::string& hex, bool recursive) {
             const SegmentId id = to_segment_id(hex);
             return answer([&] { return c.remove_segment(id, recursive); });
           })
      .def("check_segment",
           [](Client& c, const std::string& hex) {
             const SegmentId id = to_segment_id(hex);
             return answer([&] { return c.check_segment(id); });
           })
      .def("trim_segment",
           [](Client& c, const std::string& hex, const BudgetPair& keep,
              const std::string& durability, bool dry_run) {
             const SegmentId id = to_segment_id(hex);
             const Budget budget = to_budget(keep);
             const Durability level = unwrap(parse_durability(durability));
             return answer([&] { return c.trim_segment(id, budget, level, dry_run); });
           })
      .def(
          "budgets",
          [](Client& c, const std::optional<std::string>& model) {
            const std::optional<Digest> scope = to_scope(model);
            return answer([&] { return c.budgets(scope); });
          },
          nb::arg("model").none())
      .def(
          "set_budget",
          [](Client& c, const std::optional<std::string>& model,
             const std::optional<std::string>& recipe, const std::optional<BudgetPair>& keep) {
            const msg::SetBudget change{{to_scope(model)}, recipe, to_budget(keep)};
            return answer([&] { return c.set_budget(change); });
          },
          nb::arg("model").none(), nb::arg("recipe").none(), nb::arg("keep").none())
      .def("stats", [](Client& c) { return answer([&] { return c.stats(); }).rows; })
      .def("status", [](Client& c) { return answer([&] { return c.status(); }); });
}

}  // namespace

void bind_client(nb::module_& module) {
  bind_put(module);
  bind_prefix(module);
  ClientClass client(module, "Client");
  client.def("with_deadline", [](Client& c, std::uint32_t deadline_ms) {
    return held(c.with_deadline(deadline_ms));
  });
  nb::class_<HostBuffer> buffer(module, "HostBuffer");
  buffer.def("bytes", [](nb::handle_t<HostBuffer> self) {
    return array_over(nb::cast<const HostBuffer&>(self).bytes(), self);
  });
  client.def("allocate", [](Client& c, std::size_t size_bytes) {
    return held(answer([&] { return c.allocate(size_bytes); }));
  });
  bind_paths(client);
  bind_profiles(client);
  bind_sessions(client);
  bind_operations(client);
  module.def("connect",
             [](const std::string& address, const std::string& tenant, const std::string& token,
                std::uint32_t timeout_ms, std::uint32_t deadline_ms, bool retry) {
               const ConnectOptions options{tenant,      token, timeout_ms,
                                            deadline_ms, retry, "precis-python/" PRECIS_VERSION};
               return held(answer([&] { return Client::connect(address, options); }));
             });
  module.def("open", [](const std::string& directory, std::uint64_t memory_bytes, unsigned threads,
                        const std::string& device) {
    const OpenOptions options{memory_bytes, threads, device};
    return held(answer([&] { return Client::open(directory, options); }));
  });
}

}  // namespace precis::python

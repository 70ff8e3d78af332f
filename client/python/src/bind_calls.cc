// Binds Calls. C++ threads run the calls without the GIL; poll() converts the results to Python in
// the thread that calls it.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "convert.h"
#include "errors.h"
#include "gil.h"
#include "pages.h"
#include "precis/calls.h"
#include "put_handle.h"
#include "waits.h"

namespace precis::python {
namespace {

nb::object to_python(const Calls::Value& value) {
  if (const auto* match = std::get_if<LookupMatch>(&value)) return nb::cast(*match);
  if (const auto* prefix = std::get_if<std::shared_ptr<Prefix>>(&value)) {
    return nb::cast(OwnedPrefix(std::shared_ptr(*prefix)));
  }
  if (const auto* segment = std::get_if<msg::SegmentInfo>(&value)) return nb::cast(*segment);
  return nb::none();
}

std::vector<TokenId> path_of(const TokenArray& tokens) {
  return {tokens.data(), tokens.data() + tokens.size()};
}

// A Calls with the Python objects that its calls use: each call's `kept` object is returned with
// the outcome. All functions need the GIL; the threads that run the calls do not.
class CallsHandle {
 public:
  CallsHandle(OwnedClient& client, unsigned threads)
      : calls_(unwrap(Calls::make(client.shared(), threads, [waits = waits_] { waits.adopt(); }))) {
  }
  CallsHandle(CallsHandle&&) = default;
  // Drops the waiting calls, interrupts the running calls and waits for them.
  ~CallsHandle() {
    if (!calls_) return;
    if (maker_.is_this_process()) {
      close();
    } else {
      calls_.release();
      for (auto& [ticket, object] : kept_) object.release();
    }
  }

  void close() {
    if (!calls_ || !maker_.is_this_process()) return;
    waits_.end();
    auto calls = std::move(calls_);
    without_gil([&] { calls.reset(); });
    const auto kept = std::move(kept_);  // destroying these may run Python code
    kept_.clear();
  }

  Calls& calls() const {
    maker_.check();
    if (!calls_) raise(Status::unavailable("the calls are closed"));
    return *calls_;
  }

  Calls::Ticket keep(Result<Calls::Ticket> ticket, nb::object kept) {
    const Calls::Ticket number = unwrap(std::move(ticket));
    kept_[number] = std::move(kept);
    return number;
  }

  // (ticket, outcome) of each finished call. The outcome is the exception, or what `outcome_of`
  // returns for the kept object and the result. If that raises, as a signal's handler may, the next
  // poll() returns all of them.
  nb::list poll(const nb::callable& outcome_of) {
    std::vector<Calls::Done> taken = calls().poll();
    nb::list outcomes;
    try {
      for (const Calls::Done& done : taken) {
        outcomes.append(nb::make_tuple(done.ticket, outcome(done, outcome_of)));
      }
      // Signal handlers run here: after the return, their exception would lose the outcomes.
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    } catch (...) {
      if (calls_) calls_->give_back(std::move(taken));
      throw;
    }
    for (const Calls::Done& done : taken) kept_.erase(done.ticket);
    return outcomes;
  }
  bool cancel(Calls::Ticket ticket) {
    if (!calls().cancel(ticket)) return false;
    nb::object kept = std::move(kept_[ticket]);
    kept_.erase(ticket);
    return true;
  }

 private:
  nb::object outcome(const Calls::Done& done, const nb::callable& outcome_of) const {
    if (!done.status.ok()) return exception_of(done.status);
    const nb::object kept = kept_.at(done.ticket), result = to_python(done.result);
    nb::object made = nb::steal(outliving_interpreter([&] {
      return PyObject_CallFunctionObjArgs(outcome_of.ptr(), kept.ptr(), result.ptr(), nullptr);
    }));
    if (!made.is_valid()) throw nb::python_error();
    return made;
  }

  Maker maker_;
  Waits waits_;
  std::unique_ptr<Calls> calls_;
  std::unordered_map<Calls::Ticket, nb::object> kept_;
};

Calls::Ticket commit(CallsHandle& h, PutHandle& put, const std::string& durability,
                     nb::object kept) {
  put.check_maker();
  const Durability level = unwrap(parse_durability(durability));
  // `kept` holds the put until its outcome is taken.
  return h.keep(h.calls().submit([put = &put, level](const auto&) -> Result<Calls::Value> {
    PRECIS_ASSIGN(msg::SegmentInfo segment, put->commit_without_gil(level));
    return Calls::Value(std::move(segment));
  }),
                std::move(kept));
}

}  // namespace

void bind_calls(nb::module_& module) {
  nb::class_<CallsHandle>(module, "Calls")
      .def(nb::init<OwnedClient&, unsigned>())
      .def("close", &CallsHandle::close)
      .def("descriptor", [](CallsHandle& h) { return h.calls().descriptor(); })
      .def("poll", &CallsHandle::poll)
      .def("cancel", &CallsHandle::cancel)
      .def("commit", &commit)
      .def(
          "lookup",
          [](CallsHandle& h, const Model& model, const TokenArray& tokens,
             const std::optional<BudgetPair>& keep, std::uint32_t align, std::uint32_t lease_ms,
             const HintValues& hints, const std::string& traceparent, const std::string& session,
             nb::object kept) {
            const auto options =
                to_lookup_options(keep, align, lease_ms, hints, traceparent, session);
            return h.keep(h.calls().lookup(model, path_of(tokens), options), std::move(kept));
          },
          nb::arg("model"), nb::arg("tokens").noconvert(), nb::arg("keep").none(), nb::arg("align"),
          nb::arg("lease_ms"), nb::arg("hints"), nb::arg("traceparent"), nb::arg("session"),
          nb::arg("kept"))
      .def(
          "lookup_many",
          [](CallsHandle& h, const Model& model, const std::vector<TokenArray>& paths,
             const std::optional<BudgetPair>& keep, std::uint32_t align, std::uint32_t lease_ms,
             const HintValues& hints, const std::string& traceparent, const std::string& session,
             const std::vector<nb::object>& kept) {
            std::vector<std::vector<TokenId>> all;
            for (const TokenArray& path : paths) all.push_back(path_of(path));
            const auto options =
                to_lookup_options(keep, align, lease_ms, hints, traceparent, session);
            const auto tickets = unwrap(h.calls().lookup_many(model, std::move(all), options));
            for (std::size_t i = 0; i < tickets.size(); ++i) h.keep(tickets[i], kept.at(i));
            return tickets;
          },
          nb::arg("model"), nb::arg("paths"), nb::arg("keep").none(), nb::arg("align"),
          nb::arg("lease_ms"), nb::arg("hints"), nb::arg("traceparent"), nb::arg("session"),
          nb::arg("kept"))
      .def(
          "get",
          [](CallsHandle& h, const LookupMatch& match, const BudgetPair& keep,
             const RowsOutPairs& out, const std::optional<PagesTable>& pages,
             std::uint32_t head_begin, std::uint32_t head_count, const std::string& traceparent,
             nb::object kept) {
            const std::vector<LayerOut> layers = layers_out(out);
            const GetOptions options{layers, head_begin, head_count, pages_out(pages), traceparent};
            return h.keep(h.calls().get(match, to_budget(keep), options), std::move(kept));
          },
          nb::arg("match"), nb::arg("keep"), nb::arg("out"), nb::arg("pages").none(),
          nb::arg("head_begin"), nb::arg("head_count"), nb::arg("traceparent"), nb::arg("kept"))
      .def("wait_layer",
           [](CallsHandle& h, const OwnedPrefix& prefix, std::uint32_t layer, nb::object kept) {
             return h.keep(h.calls().wait_layer(prefix.shared(), layer), std::move(kept));
           })
      .def("wait", [](CallsHandle& h, const OwnedPrefix& prefix, nb::object kept) {
        return h.keep(h.calls().wait(prefix.shared()), std::move(kept));
      });
}

}  // namespace precis::python

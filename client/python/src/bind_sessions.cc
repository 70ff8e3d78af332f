// Binds the calls about sessions, as functions of a client.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>

#include "bindings.h"
#include "convert.h"
#include "errors.h"
#include "gil.h"
#include "precis/client.h"
#include "put_handle.h"

namespace precis::python {

void bind_sessions(nb::module_& module) {
  bind_row<msg::SessionRow>(module, "SessionRow");

  module.def(
      "open_session",
      [](OwnedClient& owned, const std::string& name, std::optional<std::uint64_t> ttl,
         const std::optional<BudgetPair>& total) {
        return unwrap(without_gil([&, &c = owned.get(), most = to_budget(total)] {
          return c.open_session(name, ttl, most);
        }));
      },
      nb::arg("client"), nb::arg("name"), nb::arg("ttl").none(), nb::arg("total").none());
  module.def(
      "advance_session", [](OwnedClient& owned, const std::string& name, const std::string& tip) {
        const SegmentId id = to_segment_id(tip);
        return unwrap(without_gil([&, &c = owned.get()] { return c.advance_session(name, id); }));
      });
  module.def("pin_session", [](OwnedClient& owned, const std::string& name, bool pinned) {
    return unwrap(without_gil([&, &c = owned.get()] { return c.pin_session(name, pinned); }));
  });
  module.def("fork_session", [](OwnedClient& owned, const std::string& name,
                                const std::string& new_name) {
    return unwrap(without_gil([&, &c = owned.get()] { return c.fork_session(name, new_name); }));
  });
  module.def("session", [](OwnedClient& owned, const std::string& name) {
    return unwrap(without_gil([&, &c = owned.get()] { return c.session(name); }));
  });
  module.def("sessions", [](OwnedClient& owned) {
    return unwrap(without_gil([&c = owned.get()] { return c.sessions(); }));
  });
  module.def("remove_session", [](OwnedClient& owned, const std::string& name) {
    check(without_gil([&, &c = owned.get()] { return c.remove_session(name); }));
  });
}

}  // namespace precis::python

// Binds the calls that manage tenants, as functions of a client.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "bindings.h"
#include "convert.h"
#include "errors.h"
#include "gil.h"
#include "precis/client.h"
#include "put_handle.h"

namespace precis::python {
namespace {

using Count = std::optional<std::uint64_t>;
using SmallCount = std::optional<std::uint32_t>;

msg::IssuedToken add(OwnedClient& owned, const std::string& name, const std::string& role,
                     std::uint32_t weight, const std::string& salt, std::uint64_t max_disk_bytes,
                     std::uint64_t max_memory_bytes, std::uint32_t max_puts,
                     std::uint32_t max_requests_per_s) {
  const msg::AddTenant tenant{
      name, role, weight, salt, max_disk_bytes, max_memory_bytes, max_puts, max_requests_per_s};
  return unwrap(without_gil([&, &c = owned.get()] { return c.add_tenant(tenant); }));
}

msg::TenantRow change(OwnedClient& owned, const std::string& name, const std::string& role,
                      SmallCount weight, Count max_disk_bytes, Count max_memory_bytes,
                      SmallCount max_puts, SmallCount max_requests_per_s, bool below_use) {
  const msg::ChangeTenant changed{
      name,     role, weight, max_disk_bytes, max_memory_bytes, max_puts, max_requests_per_s,
      below_use};
  return unwrap(without_gil([&, &c = owned.get()] { return c.change_tenant(changed); }));
}

}  // namespace

void bind_tenants(nb::module_& module) {
  bind_row<msg::TenantRow>(module, "TenantRow");
  nb::class_<msg::IssuedToken>(module, "IssuedToken")
      .def_ro("tenant", &msg::IssuedToken::tenant)
      .def_ro("token", &msg::IssuedToken::token);

  module.def("tenants", [](OwnedClient& owned) {
    return unwrap(without_gil([&c = owned.get()] { return c.tenants(); }));
  });
  module.def("tenant", [](OwnedClient& owned, const std::string& name) {
    return unwrap(without_gil([&, &c = owned.get()] { return c.tenant(name); }));
  });
  module.def("add_tenant", &add);
  module.def("change_tenant", &change, nb::arg("client"), nb::arg("name"), nb::arg("role"),
             nb::arg("weight").none(), nb::arg("max_disk_bytes").none(),
             nb::arg("max_memory_bytes").none(), nb::arg("max_puts").none(),
             nb::arg("max_requests_per_s").none(), nb::arg("below_use"));
  module.def("rotate_token", [](OwnedClient& owned, const std::string& name, bool drop_old) {
    return unwrap(without_gil([&, &c = owned.get()] { return c.rotate_token(name, drop_old); }));
  });
  module.def("remove_tenant", [](OwnedClient& owned, const std::string& name, bool purge) {
    const auto removed =
        unwrap(without_gil([&, &c = owned.get()] { return c.remove_tenant(name, purge); }));
    return nb::make_tuple(removed.segments, removed.bytes);
  });
}

}  // namespace precis::python

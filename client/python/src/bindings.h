// The parts of the extension module precis._core. They bind the C++ declarations one to one; the
// Python package adds names, defaults and types for users.
#pragma once

#include <nanobind/nanobind.h>

namespace precis::python {

void bind_messages(nanobind::module_& module);  // plain structs: specs, rows, statistics
void bind_client(nanobind::module_& module);    // Client, Put, Prefix
void bind_sessions(nanobind::module_& module);  // calls about sessions
void bind_tenants(nanobind::module_& module);   // calls that manage tenants
void bind_pages(nanobind::module_& module);     // Pages
void bind_calls(nanobind::module_& module);     // Calls
void bind_kernels(nanobind::module_& module);   // compress(): only the kernels
void bind_profile(nanobind::module_& module);   // solvers of profile tables
void bind_waits(nanobind::module_& module);     // Waits: ends the calls of another thread

}  // namespace precis::python

// The parts of the extension module precis._core. They bind what the C++ headers declare, as it
// stands; names, defaults and types for people are in the Python package around them.
#pragma once

#include <nanobind/nanobind.h>

namespace precis::python {

void bind_messages(nanobind::module_& module);  // plain structs: specs, rows, statistics
void bind_client(nanobind::module_& module);    // Client, Put, Prefix
void bind_pages(nanobind::module_& module);     // Pages
void bind_calls(nanobind::module_& module);     // Calls
void bind_kernels(nanobind::module_& module);   // compress: the kernels alone
void bind_profile(nanobind::module_& module);   // profile tables from what entries are worth
void bind_waits(nanobind::module_& module);     // Waits: ends the calls of another thread

}  // namespace precis::python

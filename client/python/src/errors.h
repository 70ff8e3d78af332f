// Turns a Status into a Python exception: the only place where errors go from C++ to Python.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "precis/status.h"

namespace precis::python {

namespace nb = nanobind;

// Raises the subclass of precis.Error for the status's code. Needs the GIL.
[[noreturn]] void raise(const Status& status);

// The exception that raise() would raise. Needs the GIL.
nb::object exception_of(const Status& status);

// Also raises after a successful call if a signal handler raised meanwhile, so that its exception
// is not lost.
inline void check(const Status& status) {
  if (!status.ok() || PyErr_Occurred() != nullptr) raise(status);
}

template <typename T>
T unwrap(Result<T> result) {
  check(result.status());
  return std::move(result).value();
}

}  // namespace precis::python

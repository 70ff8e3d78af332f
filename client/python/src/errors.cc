#include "errors.h"

#include <string_view>

namespace precis::python {

void raise(const Status& status) {
  if (PyErr_Occurred() != nullptr) throw nb::python_error();  // what interrupted the call
  const std::string_view name = status_code_name(status.code());
  const nb::str code(name.data(), name.size());
  const nb::object error_of = nb::module_::import_("precis.errors").attr("error_of");
  // A message may quote bytes that came from outside: it need not be UTF-8.
  const nb::object message = nb::steal(PyUnicode_DecodeUTF8(
      status.message().data(), static_cast<Py_ssize_t>(status.message().size()), "replace"));
  const nb::object error = error_of(code, message, status.retry_after_ms());
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

}  // namespace precis::python

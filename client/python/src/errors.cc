#include "errors.h"

#include <string>

#include "gil.h"

namespace precis::python {
namespace {

// precis.errors.error_of(code, message, retry_after_ms) as a new reference; null if it raised.
PyObject* error_of(const char* code, PyObject* message, unsigned retry_after_ms) {
  static PyObject* const make =
      nb::object(nb::module_::import_("precis.errors").attr("error_of")).release().ptr();
  return outliving_interpreter(
      [&] { return PyObject_CallFunction(make, "sOI", code, message, retry_after_ms); });
}

}  // namespace

nb::object exception_of(const Status& status) {
  const std::string code(status_code_name(status.code()));
  // A message may quote untrusted bytes that are not UTF-8.
  const nb::object message = nb::steal(PyUnicode_DecodeUTF8(
      status.message().data(), static_cast<Py_ssize_t>(status.message().size()), "replace"));
  nb::object error = nb::steal(error_of(code.c_str(), message.ptr(), status.retry_after_ms()));
  if (!error.is_valid()) throw nb::python_error();
  return error;
}

void raise(const Status& status) {
  if (PyErr_Occurred() != nullptr) throw nb::python_error();  // the interrupt's exception
  const nb::object error = exception_of(status);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

}  // namespace precis::python

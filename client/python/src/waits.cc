#include "waits.h"

#include <nanobind/nanobind.h>

#include "bindings.h"
#include "precis/interrupt.h"

namespace precis::python {

namespace nb = nanobind;

namespace {

// Of the Waits that this thread has adopted, if any.
thread_local std::shared_ptr<const std::atomic<bool>> adopted;

}  // namespace

void Waits::adopt() const { adopted = ended_; }

void notice_signals() {
  const nb::object main = nb::module_::import_("threading").attr("main_thread")();
  const auto main_thread = nb::cast<unsigned long>(main.attr("ident"));
  on_wait([main_thread] {
    if (adopted && adopted->load()) return true;
    // Others do not wait for the interpreter: it may be about to end.
    if (PyThread_get_thread_ident() != main_thread) return false;
    const nb::gil_scoped_acquire held;
    return PyErr_CheckSignals() != 0;
  });
}

void bind_waits(nb::module_& module) {
  nb::class_<Waits>(module, "Waits")
      .def(nb::init<>())
      .def("adopt", &Waits::adopt)
      .def("end", &Waits::end);
}

}  // namespace precis::python

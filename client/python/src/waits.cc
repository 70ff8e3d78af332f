#include "waits.h"

#include <nanobind/nanobind.h>

#include <atomic>

#include "bindings.h"
#include "gil.h"
#include "precis/interrupt.h"

namespace precis::python {

namespace nb = nanobind;

namespace {

// Set by Waits::adopt(): the flag of the Waits that this thread adopted.
thread_local std::shared_ptr<const std::atomic<bool>> adopted;

std::atomic<unsigned long> main_thread{0};

}  // namespace

void Waits::adopt() const { adopted = ended_; }

bool is_interrupted() {
  // At the end of the interpreter, the calls of all threads except the main thread end: they could
  // not return to Python.
  const bool is_main = PyThread_get_thread_ident() == main_thread.load();
  if (interpreter_ends()) return !is_main;
  if (adopted && adopted->load()) return true;
  // Other threads do not take the GIL here, because the interpreter may be about to end.
  if (!is_main) return false;
  const nb::gil_scoped_acquire held;
  return PyErr_CheckSignals() != 0;
}

void notice_signals() {
  const nb::object main = nb::module_::import_("threading").attr("main_thread")();
  main_thread.store(nb::cast<unsigned long>(main.attr("ident")));
  on_wait(is_interrupted);
}

void bind_waits(nb::module_& module) {
  nb::class_<Waits>(module, "Waits")
      .def(nb::init<>())
      .def("adopt", &Waits::adopt)
      .def("end", &Waits::end);
}

}  // namespace precis::python

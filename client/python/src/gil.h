// Releases the GIL around code that waits or computes, and takes it again only while the
// interpreter exists.
#pragma once

#include <Python.h>
#include <cxxabi.h>

#include <utility>

namespace precis::python {

// Whether the interpreter is shutting down. Does not need the GIL.
bool interpreter_ends();

// Stops this thread for good; the other threads and the end of the process do not wait for it.
[[noreturn]] void stop_thread();

// Runs `call`, which runs Python code or takes the GIL. If a thread asks for the GIL while the
// interpreter shuts down, CPython ends the thread by unwinding its stack, which would terminate a
// C++ process; instead the thread stops here. `call` must not have objects to destroy.
template <typename Call>
auto outliving_interpreter(Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (abi::__forced_unwind&) {
    stop_thread();
  }
}

// Releases the GIL for its lifetime. If another thread has begun to shut the interpreter down, the
// destructor does not return: the thread stops there.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

// Runs `call` while other Python threads continue; for all code that waits or computes.
template <typename Call>
auto without_gil(Call&& call) {
  const WithoutGil released;
  return call();
}

// Makes the end of the process wait, for at most two seconds, until no thread is in a call, because
// the objects that calls use are destroyed after that. Call it once.
void wait_for_calls_at_exit();

}  // namespace precis::python

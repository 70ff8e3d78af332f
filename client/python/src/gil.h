// The GIL is let go of around what waits or computes, and taken back only while there is an
// interpreter to come back to.
#pragma once

#include <Python.h>
#include <cxxabi.h>

#include <utility>

namespace precis::python {

// Whether the interpreter is shutting down. Needs no GIL.
bool interpreter_ends();

// Stops this thread for good; other threads, and the process's end, go on without it.
[[noreturn]] void stop_thread();

// Runs `call`, beneath which Python code runs or the GIL is taken. CPython ends a thread that would
// take the GIL of an interpreter that shuts down by unwinding its stack, which C++ answers by
// ending the process: the thread stops here instead. `call` has no objects to destroy.
template <typename Call>
auto outliving_interpreter(Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (abi::__forced_unwind&) {
    stop_thread();
  }
}

// While one lives, its thread does not hold the GIL. In a thread other than the one that shuts the
// interpreter down the destructor does not return once that has begun: the thread stops there.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

// Runs `call` while other Python threads go on; for everything that waits or computes.
template <typename Call>
auto without_gil(Call&& call) {
  const WithoutGil released;
  return call();
}

// At the very end of the process waits, for some seconds at most, until no thread is in a call:
// what they use is taken down next. Once.
void wait_for_calls_at_exit();

}  // namespace precis::python

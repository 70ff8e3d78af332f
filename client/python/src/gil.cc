#include "gil.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace precis::python {
namespace {

// Long enough for waiting threads to end: they check every 100 ms whether they must (interrupt.cc).
constexpr std::chrono::seconds kExitWaitMax{2};
constexpr std::chrono::milliseconds kExitWaitStep{1};

// Threads that have released the GIL and not taken it again.
std::atomic<int> in_calls{0};

}  // namespace

bool interpreter_ends() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

void stop_thread() {
  for (;;) pause();
}

WithoutGil::WithoutGil() : state_(PyEval_SaveThread()) { in_calls.fetch_add(1); }

WithoutGil::~WithoutGil() {
  in_calls.fetch_sub(1);
  outliving_interpreter([this] { PyEval_RestoreThread(state_); });
}

void wait_for_calls_at_exit() {
  // A forked child does not have the threads of the parent's calls.
  pthread_atfork(nullptr, nullptr, [] { in_calls.store(0); });
  Py_AtExit([] {
    const auto end = std::chrono::steady_clock::now() + kExitWaitMax;
    while (in_calls.load() > 0 && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(kExitWaitStep);
    }
  });
}

}  // namespace precis::python

#include "owned.h"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace precis::python {
namespace {

// Exit handlers run in reverse order. This one is registered in the child, so it runs before all
// handlers that the parent registered.
void end_without_destructors() {
  on_exit(
      [](int status, void*) {
        std::fflush(nullptr);
        _exit(status);
      },
      nullptr);
}

}  // namespace

void expect_forks() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, end_without_destructors); });
}

}  // namespace precis::python

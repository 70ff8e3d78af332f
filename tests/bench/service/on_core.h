// Binds threads to a core, for latencies that depend on whether two processes share a core.
#pragma once

#include <sched.h>

#include "precis/status.h"

namespace precis::bench {

// Binds the calling thread, and threads and processes that it starts while this object exists, to
// one core. The destructor restores the calling thread's cores.
class OnCore {
 public:
  explicit OnCore(unsigned core) {
    PRECIS_CHECK(::sched_getaffinity(0, sizeof before_, &before_) == 0);
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(core, &only);
    PRECIS_CHECK(::sched_setaffinity(0, sizeof only, &only) == 0);
  }
  ~OnCore() { ::sched_setaffinity(0, sizeof before_, &before_); }
  OnCore(const OnCore&) = delete;
  OnCore& operator=(const OnCore&) = delete;

 private:
  cpu_set_t before_;
};

}  // namespace precis::bench

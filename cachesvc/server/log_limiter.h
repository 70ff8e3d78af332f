// Limits log lines about events that anyone who reaches the port can cause, so that they cannot
// fill the log. The log has the first events of each period, and the number of the others.
#pragma once

#include <utility>

#include "cachesvc/base/log.h"

namespace precis {

// Loop thread only.
class LogLimiter {
 public:
  static constexpr unsigned kMax = 10;  // between two calls of take_suppressed()

  // Counts an event and returns whether to log it.
  bool allow() { return ++happened_ <= kMax; }
  // Returns how many events were not logged since the last call, and starts a new period.
  unsigned take_suppressed() {
    const unsigned happened = std::exchange(happened_, 0);
    return happened > kMax ? happened - kMax : 0;
  }

  // As take_suppressed(), and logs the number.
  void tell_suppressed(Log& log) {
    if (const unsigned more = take_suppressed(); more > 0) {
      log.info("more requests refused", {{"count", more}});
    }
  }

 private:
  unsigned happened_ = 0;
};

}  // namespace precis

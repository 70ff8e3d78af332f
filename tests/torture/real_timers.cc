// A library that the nodes of ./dev torture --cluster load before libfaketime, which shifts all
// absolute times of timers with the wall clock. Asio sets timers that are due at once by an
// absolute time of the monotonic clock, so these would fire hours later, or never. This library
// calls the kernel itself.
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

extern "C" int timerfd_settime(int fd, int flags, const itimerspec* to,
                               itimerspec* before) noexcept {
  return static_cast<int>(::syscall(SYS_timerfd_settime, fd, flags, to, before));
}

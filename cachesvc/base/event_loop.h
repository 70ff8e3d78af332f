// The one event loop of a process. asio_loop.h implements it for a machine; tests also run it in
// simulated time. Transports and request handlers run entirely on the loop's thread. Compute and
// storage run on Executors (executor.h) and return to the loop with post(). Create and destroy
// handles (Timer, Watch) on the loop's thread, or while the loop does not run, and always before
// the loop is destroyed.
//
// The loop's thread is the thread that drives it. It is always the same thread, except for a loop
// in run_lent(). There, a thread that waits for a result may drive the loop itself, one thread at a
// time, and so needs no other thread to wake up.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "cachesvc/base/clock.h"
#include "precis/status.h"

namespace precis {

class EventLoop {
 public:
  virtual ~EventLoop() = default;

  // The clock of its timers.
  virtual const Clock& clock() const = 0;
  // Runs until stop(). Handlers queued by post() before stop() have run when it returns.
  virtual void run() = 0;
  // Like run(), but other threads may drive the loop with drive() while nothing is expected
  // (rest()). If no other thread drives it for a while, or a function is posted, this thread
  // continues.
  virtual void run_lent() = 0;
  // Any thread except the loop's. If the loop is lent and nobody drives it, calls `begin`, drives
  // the loop until `done` returns true, and returns true. `done` is checked after every turn;
  // handlers of the loop must make it true, or a timer must wake the loop so that it is checked
  // again. Otherwise returns false at once without doing anything.
  virtual bool drive(const std::function<void()>& begin, const std::function<bool()>& done) = 0;
  // Any thread. The loop must not be destroyed before these calls return.
  virtual void stop() = 0;
  virtual void post(std::function<void()> fn) = 0;
  virtual bool on_loop_thread() const = 0;

  // Calls fn on the loop after `delay`, unless the returned handle is destroyed first.
  class Timer {
   public:
    virtual ~Timer() = default;
  };
  virtual std::unique_ptr<Timer> after(std::chrono::nanoseconds delay,
                                       std::function<void()> fn) = 0;

  // Calls fn on the loop whenever fd is readable, until the handle is destroyed. Does not own fd.
  class Watch {
   public:
    virtual ~Watch() = default;
  };
  virtual std::unique_ptr<Watch> watch_readable(int fd, std::function<void()> fn) = 0;
  // Like watch_readable(), and also calls `writable` once after each await_writable() when fd can
  // be written to. Watch a descriptor only once.
  class SocketWatch : public Watch {
   public:
    virtual void await_writable() = 0;
    // Suspends (true) or resumes calls of `readable`, for a reader that has not yet consumed the
    // earlier data.
    virtual void hold(bool on) = 0;
  };
  virtual std::unique_ptr<SocketWatch> watch_socket(int fd, std::function<void()> readable,
                                                    std::function<void()> writable) = 0;

  // A polled source. `progress` does the available work and returns how much it did. `arm` prepares
  // fd for blocking, and returns false if work arrived meanwhile. The loop spins on progress for at
  // most `spin` after the last work, except when recent spins were unsuccessful; then it arms and
  // blocks.
  struct Poller {
    int fd;
    std::function<unsigned()> progress;
    std::function<bool()> arm;
    std::chrono::nanoseconds spin{20'000};
  };
  virtual std::unique_ptr<Watch> add_poller(Poller poller) = 0;
  // Sets how long the loop polls its descriptors after the last work before it blocks, if spinning
  // has paid lately. With pollers, the longest spin time applies. Call it on the loop's thread, or
  // before run().
  virtual void spin_for(std::chrono::nanoseconds spin) = 0;
  // Asks the loop to call the pollers' progress soon (after posting an operation on one).
  virtual void kick() = 0;
  // On the loop's thread. rest(): nothing more is expected unless a thread of this process asks for
  // it, so the loop blocks without spinning when it has nothing to do, and other threads may drive
  // a lent loop. expect(): the opposite.
  virtual void rest() = 0;
  virtual void expect() = 0;

  // The number of turns of the loop. It grows while the loop works or spins, and stays the same
  // while the loop is idle. Any thread.
  virtual std::uint64_t rounds() const = 0;
};

}  // namespace precis

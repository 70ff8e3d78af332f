// The one event loop of a process. Boost.Asio implements it (event_loop.cc) and appears in no
// header. Transports and request handlers run entirely on the loop's thread. Compute and storage
// run on Executors (executor.h) and return to the loop with post(). Create and destroy handles
// (Timer, Watch) on the loop's thread, or while the loop does not run, and always before the loop
// is destroyed.
//
// The loop's thread is the thread that drives it. It is always the same thread, except for a loop
// in run_lent(). There, a thread that waits for a result may drive the loop itself, one thread at a
// time, and so needs no other thread to wake up.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "precis/status.h"

namespace precis {

class EventLoop {
 public:
  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Runs until stop(). Handlers queued by post() before stop() have run when it returns.
  void run();
  // Like run(), but other threads may drive the loop with drive() while nothing is expected
  // (rest()). If no other thread drives it for a while, or a function is posted, this thread
  // continues.
  void run_lent();
  // Any thread except the loop's. If the loop is lent and nobody drives it, calls `begin`, drives
  // the loop until `done` returns true, and returns true. `done` is checked after every turn;
  // handlers of the loop must make it true, or a timer must wake the loop so that it is checked
  // again. Otherwise returns false at once without doing anything.
  bool drive(const std::function<void()>& begin, const std::function<bool()>& done);
  // Any thread. The loop must not be destroyed before these calls return.
  void stop();
  void post(std::function<void()> fn);
  bool on_loop_thread() const;

  // Calls fn on the loop after `delay`, unless the returned handle is destroyed first.
  class Timer {
   public:
    virtual ~Timer() = default;
  };
  std::unique_ptr<Timer> after(std::chrono::nanoseconds delay, std::function<void()> fn);

  // Calls fn on the loop whenever fd is readable, until the handle is destroyed. Does not own fd.
  class Watch {
   public:
    virtual ~Watch() = default;
  };
  std::unique_ptr<Watch> watch_readable(int fd, std::function<void()> fn);
  // Like watch_readable(), and also calls `writable` once after each await_writable() when fd can
  // be written to. Watch a descriptor only once.
  class SocketWatch : public Watch {
   public:
    virtual void await_writable() = 0;
    // Suspends (true) or resumes calls of `readable`, for a reader that has not yet consumed the
    // earlier data.
    virtual void hold(bool on) = 0;
  };
  std::unique_ptr<SocketWatch> watch_socket(int fd, std::function<void()> readable,
                                            std::function<void()> writable);

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
  std::unique_ptr<Watch> add_poller(Poller poller);
  // Sets how long the loop polls its descriptors after the last work before it blocks, if spinning
  // has paid lately. With pollers, the longest spin time applies. Call it on the loop's thread, or
  // before run().
  void spin_for(std::chrono::nanoseconds spin);
  // Asks the loop to call the pollers' progress soon (after posting an operation on one).
  void kick();
  // On the loop's thread. rest(): nothing more is expected unless a thread of this process asks for
  // it, so the loop blocks without spinning when it has nothing to do, and other threads may drive
  // a lent loop. expect(): the opposite.
  void rest();
  void expect();

  // The number of turns of the loop. It grows while the loop works or spins, and stays the same
  // while the loop is idle. Any thread.
  std::uint64_t rounds() const;

 private:
  friend struct AsioAccess;  // asio.h, for sockets on the same loop
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace precis

// The one event loop of a process: Boost.Asio behind it (event_loop.cc), none of it in sight.
// Everything a transport or a request handler does runs on the loop's thread; compute and storage
// run on Executors (executor.h) and come back with post(). Handles (Timer, Watch) are made and
// destroyed on the loop's thread, or while it does not run; before the loop.
//
// The loop's thread is the one that drives it. That is one and the same, but for a loop that is
// run_lent(): there a thread that waits for something may drive meanwhile, one at a time, and needs
// nobody to be woken for it.
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
  // As run(), of a loop that other threads may drive while nothing is expected (rest()). Where
  // nobody does for a while, this thread goes on; and at once where something is posted.
  void run_lent();
  // Any thread but the loop's. If the loop is lent and nobody drives it: does `begin` and drives
  // until `done`, which is asked after every turn and must come true by what the loop does, or by
  // time where a timer makes it turn; then returns true. Else it returns false at once and has done
  // nothing.
  bool drive(const std::function<void()>& begin, const std::function<bool()>& done);
  // Any thread, while the loop lives: also until the call has returned.
  void stop();
  void post(std::function<void()> fn);
  bool on_loop_thread() const;

  // Calls fn on the loop after `delay`, unless the returned handle was destroyed before.
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
  // The same, and once after each await_writable() `writable` when fd can be written to. A
  // descriptor is watched once.
  class SocketWatch : public Watch {
   public:
    virtual void await_writable() = 0;
    // Whether readable is not called for now, although fd may be: what came last is not read yet.
    virtual void hold(bool on) = 0;
  };
  std::unique_ptr<SocketWatch> watch_socket(int fd, std::function<void()> readable,
                                            std::function<void()> writable);

  // A source that is polled: `progress` does what work there is and returns how much; `arm`
  // prepares fd for blocking and returns false if work came in meanwhile. The loop spins on
  // progress for at most `spin` after the last work, unless the last times were in vain, then arms
  // and blocks.
  struct Poller {
    int fd;
    std::function<unsigned()> progress;
    std::function<bool()> arm;
    std::chrono::nanoseconds spin{20'000};
  };
  std::unique_ptr<Watch> add_poller(Poller poller);
  // Without a poller: how long the loop looks at its descriptors after the last work before it
  // blocks, where that has paid lately. On the loop's thread, or before run().
  void spin_for(std::chrono::nanoseconds spin);
  // Asks the loop to run the pollers' progress soon (after posting an operation on one).
  void kick();
  // On the loop: nothing more is expected unless somebody here asks for it, so it blocks without
  // spinning once it has nothing to do. It may be lent from now until somebody does (expect()).
  void rest();
  void expect();

  // How often the loop has gone round: grows while it works or spins, stands while it is idle. Any
  // thread.
  std::uint64_t rounds() const;

 private:
  friend struct AsioAccess;  // asio.h, for the sockets beside the loop
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace precis

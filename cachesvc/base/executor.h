// A fixed-size pool of threads that takes work off the event loop. docs/design/threads.md lists
// those of the service. thread_executor.h implements it for a machine; tests also run it in
// simulated time.
#pragma once

#include <cstddef>
#include <functional>

namespace precis {

class Executor {
 public:
  virtual ~Executor() = default;  // runs every posted function first
  // Any thread. Runs fn on one of the pool's threads, in first-in-first-out order.
  virtual void post(std::function<void()> fn) = 0;
  virtual std::size_t queued() const = 0;
};

// Call it during work over many bytes, after each piece. If a request has called ask_to_yield()
// lately, the calling thread yields its core every few hundred KiB over the next few MiB. Otherwise
// the kernel may run the work for milliseconds while threads with little to do wait for the core.
// (The first request after a pause may still wait that long once.) It acts only on an Executor's
// thread: on other threads a caller waits for the work itself.
void yield_if_asked(std::size_t size_bytes);
// Any thread. Call it when a request arrives or is sent and a caller waits for the answer.
void ask_to_yield();

}  // namespace precis

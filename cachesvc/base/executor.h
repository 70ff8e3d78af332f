// A fixed-size pool of threads that takes work off the event loop. The service has one each for
// compute, for changes of the store, for reads and for copies.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace precis {

class Executor {
 public:
  // The threads' names begin with `name`.
  Executor(std::string name, unsigned threads);
  ~Executor();  // runs every posted function, then joins
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Any thread. Runs fn on one of the pool's threads, in first-in-first-out order.
  void post(std::function<void()> fn);
  std::size_t queued() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
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

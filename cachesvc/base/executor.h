// A bounded pool of threads that takes work off the event loop: one each for compute, for
// changes of the store, for reads and for copies.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace precis {

class Executor {
 public:
  // `name` shows in the threads' names.
  Executor(std::string name, unsigned threads);
  ~Executor();  // runs what was posted, then joins
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Any thread. Runs fn on one of the pool's threads, first in first out.
  void post(std::function<void()> fn);
  std::size_t queued() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// For work over many bytes, after each piece of it: where somebody has asked for way lately, who
// waits for this core has it first, every few hundred KiB for the next MiBs. The kernel by itself
// may leave it to the work for milliseconds, while others wait who have little to do. (One who asks
// after a silence may wait so once.) Only on an Executor's thread: elsewhere somebody waits for the
// work.
void give_way(std::size_t size_bytes);
// Any thread: a request has come, or goes out, whose answer somebody waits for.
void ask_for_way();

}  // namespace precis

// The CPU backend's threads. Work is a loop of independent items; the split into items never
// depends on the number of threads, so no result does either.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace precis::kernels {

class ThreadPool {
 public:
  // `threads` includes the callers of parallel_for: at most this many threads work at a time,
  // unless there are more callers. 0 is every core. Starts fewer if the system refuses more.
  explicit ThreadPool(unsigned threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  unsigned num_threads() const { return static_cast<unsigned>(threads_.size()) + 1; }

  // Runs fn(i) once for every i in [0, count) on the caller and on all free threads; returns when
  // all have run. Items start in ascending order, so an item may wait for earlier items. Any number
  // of threads may call at once. fn must neither throw nor call parallel_for.
  template <typename Fn>
  void parallel_for(std::size_t count, const Fn& fn) {
    run(
        count, [](const void* f, std::size_t i) { (*static_cast<const Fn*>(f))(i); }, &fn);
  }

 private:
  struct Job {
    void (*invoke)(const void*, std::size_t);
    const void* fn;
    std::size_t count;
    std::atomic<std::size_t> next{0};
    unsigned helpers = 0;  // threads inside; guarded by mutex_
    void work();
  };
  void run(std::size_t count, void (*invoke)(const void*, std::size_t), const void* fn);
  void thread_main();

  std::mutex mutex_;
  std::condition_variable work_;  // a job was queued, or stop_
  std::condition_variable done_;  // a helper left a job
  std::deque<Job*> jobs_;         // guarded by mutex_; owned by the callers waiting in run()
  unsigned busy_ = 0;             // callers and helpers at work; guarded by mutex_
  bool stop_ = false;             // guarded by mutex_
  std::vector<std::thread> threads_;
};

// The context that every CPU stage gets besides its arguments.
enum class Isa;
struct CpuContext {
  ThreadPool& pool;
  Isa isa;
};

}  // namespace precis::kernels

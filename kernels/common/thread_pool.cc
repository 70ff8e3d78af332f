#include "kernels/common/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <system_error>

namespace precis::kernels {

ThreadPool::ThreadPool(unsigned threads) {
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  threads_.reserve(threads - 1);
  try {
    for (unsigned i = 1; i < threads; ++i) threads_.emplace_back([this] { thread_main(); });
  } catch (const std::system_error&) {
    // If the machine is out of threads, the pool runs with the threads it got.
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Job::work() {
  for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) invoke(fn, i);
}

void ThreadPool::run(std::size_t count, void (*invoke)(const void*, std::size_t), const void* fn) {
  Job job{invoke, fn, count};
  if (count <= 1 || threads_.empty()) return job.work();
  bool room;
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(&job);
    room = ++busy_ < num_threads();
  }
  if (room) work_.notify_all();
  job.work();
  std::unique_lock lock(mutex_);
  std::erase(jobs_, &job);  // No thread enters the job from here on.
  --busy_;
  if (!jobs_.empty()) work_.notify_one();
  done_.wait(lock, [&job] { return job.helpers == 0; });
}

void ThreadPool::thread_main() {
  ::pthread_setname_np(::pthread_self(), "compute-helper");
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return stop_ || (!jobs_.empty() && busy_ < num_threads()); });
    if (stop_) return;
    Job* job = jobs_.front();
    ++job->helpers;
    ++busy_;
    lock.unlock();
    job->work();
    lock.lock();
    --busy_;
    // All items of the job are taken; if it stayed in the queue, threads would spin on it.
    std::erase(jobs_, job);
    if (--job->helpers == 0) done_.notify_all();
  }
}

}  // namespace precis::kernels

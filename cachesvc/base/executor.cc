// A first-in-first-out queue served by a fixed number of named threads (executor.h).
#include "cachesvc/base/executor.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "precis/status.h"

namespace precis {

struct Executor::Impl {
  std::mutex mutex;
  std::condition_variable work_or_stop;
  std::deque<std::function<void()>> queue;  // guarded by mutex
  bool stopping = false;                    // guarded by mutex
  std::vector<std::thread> threads;

  void serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      work_or_stop.wait(lock, [this] { return stopping || !queue.empty(); });
      if (queue.empty()) return;  // Stopping, and all that was posted has run or is running.
      {
        const auto fn = std::move(queue.front());
        queue.pop_front();
        lock.unlock();
        fn();
      }  // What fn owns dies here, outside the lock.
      lock.lock();
    }
  }
};

namespace {

// Linux cuts thread names at 15 characters.
constexpr std::size_t kThreadNameMax = 15;

std::string thread_name(const std::string& name, unsigned index) {
  const std::string suffix = "-" + std::to_string(index);
  return name.substr(0, kThreadNameMax - suffix.size()) + suffix;
}

}  // namespace

Executor::Executor(std::string name, unsigned threads) : impl_(std::make_unique<Impl>()) {
  PRECIS_CHECK(threads > 0);
  impl_->threads.reserve(threads);
  for (unsigned i = 0; i < threads; ++i) {
    impl_->threads.emplace_back([impl = impl_.get()] { impl->serve(); });
    pthread_setname_np(impl_->threads.back().native_handle(), thread_name(name, i).c_str());
  }
}

Executor::~Executor() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->work_or_stop.notify_all();
  for (std::thread& thread : impl_->threads) thread.join();
}

void Executor::post(std::function<void()> fn) {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->queue.push_back(std::move(fn));
  }
  impl_->work_or_stop.notify_one();
}

std::size_t Executor::queued() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->queue.size();
}

}  // namespace precis

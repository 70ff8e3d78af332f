// A first-in-first-out queue served by a fixed number of named threads.
#include "cachesvc/base/thread_executor.h"

#include <pthread.h>
#include <semaphore.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "precis/status.h"

namespace precis {
namespace {

constexpr std::size_t kYieldBytes = 256u << 10;
// How often a thread yields after a request has asked for it: over about a millisecond, the time of
// an answer. Yielding always would cost TCP transfers on an otherwise idle machine a tenth of their
// speed and more.
constexpr unsigned kTurns = 8;

std::atomic<std::uint64_t> asked{0};

thread_local bool on_executor = false;
thread_local std::size_t done_bytes = 0;  // since this thread last could yield
thread_local std::uint64_t heard = 0;     // the value of `asked` seen last
thread_local unsigned turns = 0;          // yields that remain

}  // namespace

void ask_to_yield() { asked.fetch_add(1, std::memory_order_relaxed); }

void yield_if_asked(std::size_t size_bytes) {
  if (!on_executor) return;
  done_bytes += size_bytes;
  if (done_bytes < kYieldBytes) return;
  done_bytes = 0;
  if (const std::uint64_t now = asked.load(std::memory_order_relaxed); now != heard) {
    heard = now;
    turns = kTurns;
  }
  if (turns == 0) return;
  --turns;
  std::this_thread::yield();
}

// A semaphore counts the queued functions. With glibc's condition variables, a signaling thread
// waits for earlier woken threads that have not run yet: milliseconds on a busy machine.
// libstdc++'s semaphores spin before they block.
struct ThreadExecutor::Impl {
  Impl() { PRECIS_CHECK(::sem_init(&work_or_stop, 0, 0) == 0); }
  ~Impl() { ::sem_destroy(&work_or_stop); }

  std::mutex mutex;
  std::deque<std::function<void()>> queue;  // guarded by mutex
  ::sem_t work_or_stop;
  std::vector<std::thread> threads;

  std::function<void()> take() {
    std::lock_guard lock(mutex);
    if (queue.empty()) return nullptr;
    auto fn = std::move(queue.front());
    queue.pop_front();
    return fn;
  }

  void serve() {
    on_executor = true;
    for (;;) {
      while (::sem_wait(&work_or_stop) != 0) {  // interrupted by a signal
      }
      const auto fn = take();
      if (!fn) return;  // Stopping, and every posted function has run or is running.
      fn();
    }
  }
};

namespace {

// Linux limits thread names to 15 characters.
constexpr std::size_t kThreadNameMax = 15;

std::string thread_name(const std::string& name, unsigned index) {
  const std::string suffix = "-" + std::to_string(index);
  return name.substr(0, kThreadNameMax - suffix.size()) + suffix;
}

}  // namespace

ThreadExecutor::ThreadExecutor(std::string name, unsigned threads)
    : impl_(std::make_unique<Impl>()) {
  PRECIS_CHECK(threads > 0);
  impl_->threads.reserve(threads);
  for (unsigned i = 0; i < threads; ++i) {
    impl_->threads.emplace_back([impl = impl_.get()] { impl->serve(); });
    pthread_setname_np(impl_->threads.back().native_handle(), thread_name(name, i).c_str());
  }
}

ThreadExecutor::~ThreadExecutor() {
  for (std::size_t i = 0; i < impl_->threads.size(); ++i) ::sem_post(&impl_->work_or_stop);
  for (std::thread& thread : impl_->threads) thread.join();
}

void ThreadExecutor::post(std::function<void()> fn) {
  PRECIS_CHECK(fn != nullptr);
  {
    std::lock_guard lock(impl_->mutex);
    impl_->queue.push_back(std::move(fn));
  }
  ::sem_post(&impl_->work_or_stop);
}

std::size_t ThreadExecutor::queued() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->queue.size();
}

}  // namespace precis

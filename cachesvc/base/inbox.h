// A queue of functions from any thread to the one thread of a loop. It is lock-free: a thread that
// is preempted while it adds a function must not block the loop, which other threads wait for.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

namespace precis {

class Inbox {
 public:
  using Function = std::function<void()>;

  Inbox() = default;
  ~Inbox() { clear(); }
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // Any thread.
  void put(Function fn) {
    auto* const added = new Letter{std::move(fn), newest_.load(std::memory_order_relaxed), nullptr};
    // Sequentially consistent. A poster adds first and then reads whether the loop sleeps; the loop
    // announces its sleep first and then looks into the inbox.
    while (!newest_.compare_exchange_weak(added->before, added)) {
    }
  }
  bool empty() const { return newest_.load() == nullptr; }

  // The loop's thread. Calls the queued functions in order of arrival and returns their number.
  // Functions that they add wait for the next run().
  std::size_t run() {
    std::size_t count = 0;
    for (auto letter = take(); letter; letter = std::move(letter->next)) {
      std::exchange(letter->fn, nullptr)();
      ++count;
    }
    return count;
  }
  // Destroys the queued functions, and also the functions that their destructors add.
  void clear() {
    while (auto letter = take()) {
      while (letter) letter = std::move(letter->next);
    }
  }

 private:
  struct Letter {
    Function fn;
    Letter* before;                // the next older letter, while queued
    std::unique_ptr<Letter> next;  // the next newer letter, once taken
  };

  std::unique_ptr<Letter> take() {
    std::unique_ptr<Letter> oldest;
    for (Letter* letter = newest_.exchange(nullptr); letter != nullptr;) {
      letter->next = std::move(oldest);
      oldest.reset(std::exchange(letter, letter->before));
    }
    return oldest;
  }

  std::atomic<Letter*> newest_{nullptr};
};

}  // namespace precis

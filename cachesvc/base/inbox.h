// What any thread hands to the one thread of a loop. Without a lock: a thread that is put off its
// core while it hands something over must not hold up the loop, which others wait for too.
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
    // Sequentially consistent: who puts looks afterwards whether the loop sleeps, which looks in
    // here before it does.
    while (!newest_.compare_exchange_weak(added->before, added)) {
    }
  }
  bool empty() const { return newest_.load() == nullptr; }

  // The loop's thread. Calls what is here, in the order in which it came, and returns how many
  // these were; what they put in waits for the next time.
  std::size_t run() {
    std::size_t count = 0;
    for (auto letter = take(); letter; letter = std::move(letter->next)) {
      std::exchange(letter->fn, nullptr)();
      ++count;
    }
    return count;
  }
  // Forgets what is here, and what its going puts in.
  void clear() {
    while (auto letter = take()) {
      while (letter) letter = std::move(letter->next);
    }
  }

 private:
  struct Letter {
    Function fn;
    Letter* before;                // while it is in here
    std::unique_ptr<Letter> next;  // once it was taken
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

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
    auto* const added = new Node{std::move(fn), newest_.load(std::memory_order_relaxed), nullptr};
    // Sequentially consistent, so that no wake-up is missed. A poster adds its function and then
    // reads whether the loop sleeps; the loop announces its sleep and then looks into the inbox. At
    // least one of them sees the other.
    while (!newest_.compare_exchange_weak(added->before, added)) {
    }
  }
  bool empty() const { return newest_.load() == nullptr; }

  // The loop's thread. Calls the queued functions in order of arrival and returns their number.
  // Functions that they add wait for the next run().
  std::size_t run() {
    std::size_t count = 0;
    for (auto node = take(); node; node = std::move(node->next)) {
      std::exchange(node->fn, nullptr)();
      ++count;
    }
    return count;
  }
  // Destroys the queued functions, and also the functions that their destructors add.
  void clear() {
    while (auto node = take()) {
      while (node) node = std::move(node->next);
    }
  }

 private:
  struct Node {
    Function fn;
    Node* before;                // the next older node, while queued
    std::unique_ptr<Node> next;  // the next newer node, once taken
  };

  std::unique_ptr<Node> take() {
    std::unique_ptr<Node> oldest;
    for (Node* node = newest_.exchange(nullptr); node != nullptr;) {
      node->next = std::move(oldest);
      oldest.reset(std::exchange(node, node->before));
    }
    return oldest;
  }

  std::atomic<Node*> newest_{nullptr};
};

}  // namespace precis

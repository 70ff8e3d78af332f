// Coroutines for request handlers, so that a path reads top to bottom although it waits.
//
// A Task's body runs on the event loop's thread from its first line to its last. Work that must not
// block the loop is awaited: run_on() runs a function on an Executor, and completion() turns a
// callback into a value. A Task starts lazily, is awaited once, and owns its frame. The project's
// code does not throw, so an exception that reaches a Task is a bug and ends the process.
#pragma once

#include <coroutine>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/executor.h"

namespace precis {

template <typename T>
class [[nodiscard]] Task;

namespace task_detail {

struct FinalAwaiter {
  bool await_ready() const noexcept { return false; }
  template <typename Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> done) const noexcept {
    return done.promise().continuation ? done.promise().continuation : std::noop_coroutine();
  }
  void await_resume() const noexcept {}
};

struct PromiseBase {
  std::coroutine_handle<> continuation;
  std::suspend_always initial_suspend() const noexcept { return {}; }
  FinalAwaiter final_suspend() const noexcept { return {}; }
  void unhandled_exception() const noexcept { std::terminate(); }
};

template <typename T>
struct Promise : PromiseBase {
  std::optional<T> value;
  Task<T> get_return_object();
  template <typename U>
  void return_value(U&& result) {
    value.emplace(std::forward<U>(result));
  }
  T take() { return std::move(*value); }
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object();
  void return_void() const noexcept {}
  void take() const noexcept {}
};

// A coroutine that nobody awaits: it starts at once and frees itself at its end.
struct Detached {
  struct promise_type {
    Detached get_return_object() const noexcept { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() const noexcept { std::terminate(); }
  };
};

}  // namespace task_detail

template <typename T>
class [[nodiscard]] Task {
 public:
  using promise_type = task_detail::Promise<T>;
  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) noexcept {
    handle_.promise().continuation = awaiting;
    return handle_;
  }
  T await_resume() { return handle_.promise().take(); }

  // Starts the task, once, for an owner that does not await it. Destroying a waiting task cancels
  // it there; the awaited operation must not resume it afterwards.
  void start() { handle_.resume(); }

 private:
  std::coroutine_handle<promise_type> handle_;
};

template <typename T>
Task<T> task_detail::Promise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<Promise<T>>::from_promise(*this));
}
inline Task<void> task_detail::Promise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<Promise<void>>::from_promise(*this));
}

// Starts `task` now; nobody waits for it.
inline void spawn(Task<void> task) {
  [](Task<void> owned) -> task_detail::Detached { co_await owned; }(std::move(task));
}

// A task that starts now and runs concurrently with its creator. The creator awaits its value
// later, once, while everything that the task refers to still exists.
template <typename T>
class Started {
 public:
  explicit Started(Task<T> task) : state_(std::make_shared<State>()) {
    spawn(run(std::move(task), state_));
  }
  bool await_ready() const noexcept { return state_->value.has_value(); }
  void await_suspend(std::coroutine_handle<> awaiting) noexcept { state_->awaiting = awaiting; }
  T await_resume() { return std::move(*state_->value); }

 private:
  struct State {
    std::optional<T> value;
    std::coroutine_handle<> awaiting;
  };
  static Task<void> run(Task<T> task, std::shared_ptr<State> state) {
    state->value.emplace(co_await task);
    if (state->awaiting) state->awaiting.resume();
  }
  std::shared_ptr<State> state_;
};

// co_await run_on(executor, loop, fn): runs fn() on the executor and returns its result on the
// loop.
template <typename Fn>
class RunOn {
 public:
  RunOn(Executor& executor, EventLoop& loop, Fn fn)
      : executor_(executor), loop_(loop), fn_(std::move(fn)) {}
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> awaiting) {
    executor_.post([this, awaiting] {
      result_.emplace(fn_());
      loop_.post([awaiting] { awaiting.resume(); });
    });
  }
  auto await_resume() { return std::move(*result_); }

 private:
  Executor& executor_;
  EventLoop& loop_;
  Fn fn_;
  std::optional<std::invoke_result_t<Fn&>> result_;
};
template <typename Fn>
RunOn<Fn> run_on(Executor& executor, EventLoop& loop, Fn fn) {
  return {executor, loop, std::move(fn)};
}

// co_await completion<T>([&](auto done) { start(..., done); }): returns the value that `done` is
// called with. Call `done` on the loop's thread and never inside start().
template <typename T, typename Start>
class CompletionAwaiter {
 public:
  explicit CompletionAwaiter(Start start) : start_(std::move(start)) {}
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> awaiting) {
    start_(std::function<void(T)>([this, awaiting](T value) {
      value_.emplace(std::move(value));
      awaiting.resume();
    }));
  }
  T await_resume() { return std::move(*value_); }

 private:
  Start start_;
  std::optional<T> value_;
};
template <typename T, typename Start>
CompletionAwaiter<T, Start> completion(Start start) {
  return CompletionAwaiter<T, Start>(std::move(start));
}

}  // namespace precis

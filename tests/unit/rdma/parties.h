// Loops with their own threads, and functions that wait for results from them.
#pragma once

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cachesvc/base/asio_loop.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis::test {

// Longer than any operation takes on the slowest machine; only a failing test reaches it.
inline constexpr std::chrono::seconds kPatience{60};

template <typename T>
T get(std::future<T> future) {
  if (future.wait_for(kPatience) != std::future_status::ready) {
    throw std::runtime_error("waited in vain");
  }
  return future.get();
}

class LoopThread {
 public:
  LoopThread() : thread_([this] { loop.run(); }) {}
  ~LoopThread() {
    loop.stop();
    thread_.join();
  }
  template <typename Fn>
  auto on_loop(Fn fn) -> decltype(fn()) {
    std::packaged_task<decltype(fn())()> task(std::move(fn));
    auto future = task.get_future();
    loop.post([&task] { task(); });
    return get(std::move(future));
  }
  // Starts an operation on the loop and waits for its end.
  Status wait(const std::function<void(std::function<void(Status)>)>& begin) {
    auto ended = std::make_shared<std::promise<Status>>();
    auto future = ended->get_future();
    loop.post([&] { begin([ended](Status status) { ended->set_value(std::move(status)); }); });
    return get(std::move(future));
  }

  AsioLoop loop;

 private:
  std::thread thread_;
};

inline std::vector<std::byte> random_bytes(std::size_t size) {
  static std::mt19937_64 random(7);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

}  // namespace precis::test

template <>
struct Catch::StringMaker<precis::Status> {
  static std::string convert(const precis::Status& status) { return status.to_string(); }
};

#include "cachesvc/base/asio_loop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "tests/unit/transport/party.h"

namespace precis {
namespace {

using test::get;
using test::LoopThread;

TEST_CASE("what is posted before stop() has run when run() returns", "[base]") {
  AsioLoop loop;
  int ran = 0;
  for (int i = 0; i < 100; ++i) loop.post([&] { ++ran; });
  loop.stop();
  loop.run();
  CHECK(ran == 100);
}

TEST_CASE("no post is lost between many threads and a loop that keeps going to sleep", "[base]") {
  LoopThread thread;
  constexpr int kThreads = 4, kPosts = 2000;
  std::atomic<int> ran{0};
  std::promise<void> all;
  std::vector<std::thread> posting;
  for (int t = 0; t < kThreads; ++t) {
    posting.emplace_back([&] {
      for (int i = 0; i < kPosts; ++i) {
        thread.loop.post([&] {
          if (++ran == kThreads * kPosts) all.set_value();
        });
        if (i % 16 == 0) std::this_thread::yield();
      }
    });
  }
  for (auto& t : posting) t.join();
  get(all.get_future());
  CHECK(ran == kThreads * kPosts);
}

TEST_CASE("the loop knows its own thread", "[base]") {
  LoopThread thread;
  CHECK(thread.on_loop([&] { return thread.loop.on_loop_thread(); }));
  CHECK_FALSE(thread.loop.on_loop_thread());
}

TEST_CASE("timers fire in order, and not once destroyed", "[base]") {
  LoopThread thread;
  std::promise<std::vector<int>> done;
  std::vector<int> fired;
  std::unique_ptr<EventLoop::Timer> first, second, never;
  thread.on_loop([&] {
    second = thread.loop.after(std::chrono::milliseconds(20), [&] {
      fired.push_back(2);
      done.set_value(fired);
    });
    first = thread.loop.after(std::chrono::milliseconds(1), [&] {
      fired.push_back(1);
      never.reset();
    });
    never = thread.loop.after(std::chrono::milliseconds(10), [&] { fired.push_back(3); });
  });
  CHECK(get(done.get_future()) == std::vector<int>{1, 2});
  thread.on_loop([&] {
    first.reset();
    second.reset();
  });
}

TEST_CASE("a timer may destroy itself", "[base]") {
  LoopThread thread;
  std::promise<void> done;
  std::unique_ptr<EventLoop::Timer> timer;
  thread.on_loop([&] {
    timer = thread.loop.after(std::chrono::nanoseconds(0), [&] {
      timer.reset();
      done.set_value();
    });
  });
  get(done.get_future());
}

class EventFd {
 public:
  EventFd() : fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~EventFd() { close(fd); }
  void signal() const {
    if (eventfd_write(fd, 1) != 0) throw std::runtime_error("eventfd_write");
  }
  bool take() const {
    eventfd_t value;
    return eventfd_read(fd, &value) == 0;
  }
  const int fd;
};

TEST_CASE("a watched descriptor calls whenever it is readable, until the watch goes", "[base]") {
  LoopThread thread;
  const EventFd event;
  std::atomic<int> calls{0};
  std::promise<void> three;
  std::unique_ptr<EventLoop::Watch> watch;
  thread.on_loop([&] {
    watch = thread.loop.watch_readable(event.fd, [&] {
      event.take();
      if (++calls == 3) three.set_value();
      if (calls < 3) event.signal();
    });
  });
  event.signal();
  get(three.get_future());
  thread.on_loop([&] { watch.reset(); });
  event.signal();
  thread.on_loop([] {});
  CHECK(calls == 3);
  CHECK(event.take());  // the descriptor is still ours, and nobody has read it
}

// A source of work behind an eventfd.
struct Source {
  EventFd event;
  std::atomic<unsigned> pending{0};
  std::atomic<unsigned> progressed{0};
  std::atomic<unsigned> armed{0};
  std::function<void()> on_armed = [] {};

  EventLoop::Poller poller(std::chrono::nanoseconds spin) {
    return {.fd = event.fd,
            .progress =
                [this] {
                  ++progressed;
                  return pending.exchange(0);
                },
            .arm =
                [this] {
                  while (event.take()) {
                  }
                  if (pending > 0) return false;
                  ++armed;
                  on_armed();
                  return true;
                },
            .spin = spin};
  }
};

TEST_CASE("an idle poller is not polled: the loop blocks until its descriptor wakes it", "[base]") {
  LoopThread thread;
  Source source;
  std::promise<void> armed;
  source.on_armed = [&] {
    if (source.armed == 1) armed.set_value();
  };
  std::unique_ptr<EventLoop::Watch> watch;
  std::atomic<std::uint64_t> rounds{0};
  thread.on_loop(
      [&] { watch = thread.loop.add_poller(source.poller(std::chrono::microseconds(50))); });
  get(armed.get_future());
  const unsigned progressed = source.progressed;
  // The next round is the one that runs this function.
  const auto [polled, armed_again] = thread.on_loop(
      [&] { return std::pair(source.progressed - progressed, source.armed.load()); });
  CHECK(polled == 0);
  CHECK(armed_again == 1);
  thread.on_loop([&] { watch.reset(); });
}

TEST_CASE("work at a blocked poller is done, again and again", "[base]") {
  LoopThread thread;
  Source source;
  std::unique_ptr<EventLoop::Watch> watch;
  thread.on_loop(
      [&] { watch = thread.loop.add_poller(source.poller(std::chrono::nanoseconds(0))); });
  for (unsigned round = 0; round < 200; ++round) {
    while (source.armed <= round) std::this_thread::yield();  // it blocks, or is about to
    source.pending = 1;
    source.event.signal();
    while (source.pending > 0) std::this_thread::yield();
  }
  CHECK(source.armed >= 200);
  thread.on_loop([&] { watch.reset(); });
}

TEST_CASE("work that comes in while arming is not slept over", "[base]") {
  LoopThread thread;
  Source source;
  std::promise<unsigned> slept;
  std::unique_ptr<EventLoop::Watch> watch;
  unsigned arms = 0, work = 0, done = 0;
  auto poller = source.poller(std::chrono::nanoseconds(0));
  poller.arm = [&] {
    if (++arms > 3) {
      slept.set_value(done);
      return true;
    }
    ++work;  // no event reports this work: returning false must be enough
    return false;
  };
  poller.progress = [&] {
    done += work;
    return std::exchange(work, 0);
  };
  thread.on_loop([&] { watch = thread.loop.add_poller(std::move(poller)); });
  CHECK(get(slept.get_future()) == 3);
  thread.on_loop([&] { watch.reset(); });
}

}  // namespace
}  // namespace precis

#include "cachesvc/base/loop_handles.h"

#include <utility>

#include "cachesvc/base/asio.h"
#include "precis/status.h"

namespace precis {
namespace {

namespace asio = boost::asio;
using asio::posix::descriptor_base;

class AsioTimer final : public EventLoop::Timer {
 public:
  AsioTimer(asio::io_context& context, std::chrono::nanoseconds delay, std::function<void()> fn)
      : timer_(context, delay), alive_(std::make_shared<bool>(true)) {
    // The handler shares `alive`: an expired timer can no longer be canceled.
    timer_.async_wait([alive = alive_, fn = std::move(fn)](const boost::system::error_code& e) {
      if (*alive && !e) fn();
    });
  }
  ~AsioTimer() override { *alive_ = false; }

 private:
  asio::steady_timer timer_;
  std::shared_ptr<bool> alive_;
};

// Shared by the handle and its pending waits, because a wait may outlive the handle in the
// context's queue.
struct WatchState : std::enable_shared_from_this<WatchState> {
  WatchState(asio::io_context& context, int fd, std::function<void()> r, std::function<void()> w)
      : descriptor(context, fd), readable(std::move(r)), writable(std::move(w)) {}
  void await_readable() {
    descriptor.async_wait(descriptor_base::wait_read,
                          [self = shared_from_this()](const boost::system::error_code& error) {
                            if (!self->alive) return;
                            check(error);
                            self->readable();
                            self->waiting = self->alive && !self->held;
                            if (self->waiting) self->await_readable();
                          });
  }
  // For a descriptor that epoll can watch, a wait fails only because its handle has ended. After an
  // ignored failure nothing would watch the descriptor, and its connection would hang.
  static void check(const boost::system::error_code& error) { PRECIS_CHECK(!error); }
  void hold(bool on) {
    held = on;
    if (!held && !std::exchange(waiting, true)) await_readable();
  }
  void await_writable() {
    if (std::exchange(awaited, true)) return;
    descriptor.async_wait(descriptor_base::wait_write,
                          [self = shared_from_this()](const boost::system::error_code& error) {
                            if (!self->alive) return;
                            check(error);
                            self->awaited = false;
                            self->writable();
                          });
  }
  asio::posix::stream_descriptor descriptor;
  std::function<void()> readable, writable;
  bool alive = true;
  bool held = false;
  bool waiting = true;   // a wait for readable is pending
  bool awaited = false;  // a wait for writable is pending
};

class StateWatch final : public EventLoop::SocketWatch {
 public:
  explicit StateWatch(std::shared_ptr<WatchState> state) : state_(std::move(state)) {}
  ~StateWatch() override {
    state_->alive = false;
    state_->descriptor.release();
  }
  void await_writable() override { state_->await_writable(); }
  void hold(bool on) override { state_->hold(on); }

 private:
  std::shared_ptr<WatchState> state_;
};

}  // namespace

std::unique_ptr<EventLoop::Timer> start_timer(EventLoop& loop, std::chrono::nanoseconds delay,
                                              std::function<void()> fn) {
  return std::make_unique<AsioTimer>(AsioAccess::context(loop), delay, std::move(fn));
}

std::unique_ptr<EventLoop::SocketWatch> watch_descriptor(EventLoop& loop, int fd,
                                                         std::function<void()> readable,
                                                         std::function<void()> writable) {
  auto state = std::make_shared<WatchState>(AsioAccess::context(loop), fd, std::move(readable),
                                            std::move(writable));
  state->await_readable();
  return std::make_unique<StateWatch>(std::move(state));
}

}  // namespace precis

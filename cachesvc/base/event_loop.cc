#include "cachesvc/base/event_loop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "cachesvc/base/asio.h"
#include "cachesvc/base/inbox.h"
#include "precis/status.h"

namespace precis {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

// Progress calls between two looks at the other descriptors while spinning: a look costs more than
// a progress call.
constexpr int kProgressPerLook = 16;

// How long a lent loop that nobody drives is left alone: what comes meanwhile waits so long.
constexpr std::chrono::milliseconds kLentTime{5};
// Of what is posted by what was posted, before the descriptors have their turn.
constexpr int kInboxTurnsMax = 8;
// Then what is posted has its turn, or the descriptors theirs.
constexpr std::chrono::microseconds kTurnTime{100};
constexpr int kLastTurnsMax = 8;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Whether spinning pays, as the last times told. It does where what comes next comes soon and from
// another core; where it is this core that the others wait for, it is they who pay.
class SpinLuck {
 public:
  bool worth_it() const { return idle_left_ == 0; }
  void found() { pause_ = 0; }
  // The loop blocks, after having spun in vain or without spinning.
  void blocked(bool in_vain) {
    if (in_vain) {
      pause_ = std::min(2 * pause_ + 1, kPauseMax);
      idle_left_ = pause_;
    } else if (idle_left_ > 0) {
      --idle_left_;
    }
  }

 private:
  static constexpr int kPauseMax = 63;
  int pause_ = 0;      // how often it blocked unspun after the last time in vain
  int idle_left_ = 0;  // how often still
};

}  // namespace

Status to_status(const boost::system::error_code& error, std::string_view what) {
  if (!error) return {};
  std::string message = std::string(what) + ": " + error.message();
  if (error == asio::error::operation_aborted) return Status::canceled(std::move(message));
  if (error == asio::error::timed_out) return Status::timed_out(std::move(message));
  return Status::unavailable(std::move(message));
}

struct EventLoop::Impl {
  Impl() : bell(context) {
    const int descriptor = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (descriptor < 0) {  // as Asio says of its own
      throw boost::system::system_error(errno, boost::system::system_category(), "eventfd");
    }
    bell.assign(descriptor);
    listen();
  }
  ~Impl() {
    closing = true;
    inbox.clear();
  }

  // One added poller. Shared by its handle, by the list of pollers and by the wait on its
  // descriptor, whose completion may still be queued when the handle goes.
  struct Source {
    Source(asio::io_context& context, Poller p) : poller(std::move(p)), descriptor(context) {}
    Poller poller;
    asio::posix::stream_descriptor descriptor;
    bool waiting = false;
    bool removed = false;
  };

  class PollerWatch final : public Watch {
   public:
    PollerWatch(Impl& impl, std::shared_ptr<Source> source)
        : impl_(impl), source_(std::move(source)) {}
    ~PollerWatch() override {
      source_->removed = true;
      source_->descriptor.release();  // the descriptor stays its owner's
      std::erase(impl_.sources, source_);
    }

   private:
    Impl& impl_;
    std::shared_ptr<Source> source_;
  };

  // Runs ready handlers; true if one of them was work.
  bool run_ready() {
    std::size_t posted = 0;
    auto enough = Clock::now() + kTurnTime;
    for (int turn = 0; turn < kInboxTurnsMax && !inbox.empty(); ++turn) {
      const std::size_t ran = inbox.run();
      queued.fetch_sub(static_cast<int>(ran));
      posted += ran;
      if (Clock::now() >= enough) break;
    }
    // Not poll(), which does not return while a descriptor is ready again and again.
    std::size_t handlers = 0;
    if (posted > 0) enough = Clock::now() + kTurnTime;
    while (context.poll_one() > 0 && (++handlers, Clock::now() < enough)) {
    }
    handlers -= std::min(handlers, std::exchange(wakeups, 0));
    return posted + handlers > 0;
  }

  unsigned progress() {
    unsigned done = 0;
    // By index: a callback may add or remove pollers. What is skipped once is next time's.
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const auto source = sources[i];
      done += source->poller.progress();
    }
    return done;
  }

  Clock::duration spin() const {
    Clock::duration longest = own_spin;
    for (const auto& s : sources) longest = std::max(longest, Clock::duration(s->poller.spin));
    return longest;
  }

  // True if every poller may block now; its descriptor then wakes the loop.
  bool arm() {
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const auto source = sources[i];
      if (!source->poller.arm()) return false;
      if (!source->waiting) wait(source);
    }
    return true;
  }

  void wait(const std::shared_ptr<Source>& source) {
    source->waiting = true;
    source->descriptor.async_wait(asio::posix::descriptor_base::wait_read,
                                  [this, source](const boost::system::error_code&) {
                                    source->waiting = false;
                                    ++wakeups;
                                  });
  }

  void post(std::function<void()> fn) {
    if (closing) return;  // what goes with the loop still posts
    queued.fetch_add(1);
    inbox.put(std::move(fn));
    // Whoever sees it asleep rings: one alone might be put off its core before it does.
    if (asleep.load() && thread.load() != std::this_thread::get_id()) ring();
    // Behind the count: who leaves the loop looks in the other order, so one of the two sees it.
    if (left.load()) want();
  }

  // Until there is something to do. Who posts rings where this sleeps: one of the two sees the
  // other.
  void sleep() {
    asleep.store(true);
    if (inbox.empty()) context.run_one();
    asleep.store(false);
  }
  void ring() {
    const std::uint64_t once = 1;
    PRECIS_CHECK(::write(bell.native_handle(), &once, sizeof once) == sizeof once);
  }
  void listen() {
    bell.async_wait(asio::posix::descriptor_base::wait_read,
                    [this](const boost::system::error_code& error) {
                      if (error) {
                        PRECIS_CHECK(error == asio::error::operation_aborted);  // the loop goes
                        return;
                      }
                      std::uint64_t rung = 0;
                      static_cast<void>(::read(bell.native_handle(), &rung, sizeof rung));
                      ++wakeups;
                      listen();
                    });
  }

  void run() {
    const auto work = begin_running();
    drive([] { return false; });
    thread = std::thread::id();
  }

  // What it returns keeps Asio from stopping when it has nothing to do.
  [[nodiscard]] asio::executor_work_guard<asio::io_context::executor_type> begin_running() {
    stopping = false;
    thread = std::this_thread::get_id();
    context.restart();
    return asio::make_work_guard(context);
  }

  // Until `done` or the loop's end.
  template <typename Done>
  void drive(Done done) {
    auto last_work = Clock::now();
    bool spun = false;  // since the last work
    while (!stopping && !done()) {
      rounds.fetch_add(1, std::memory_order_relaxed);
      const bool nothing_expected = std::exchange(resting, false);
      const bool may_spin = !nothing_expected && luck.worth_it();
      bool worked = run_ready();
      // Where it is about to block anyway, a call of each poller tells: each is a system call.
      for (int i = 0; i < (may_spin ? kProgressPerLook : 1) && !stopping; ++i) {
        if (progress() > 0) worked = true;
        if (std::exchange(kicked, false)) worked = true;
        // What has arrived is posted, and waited for.
        if (sources.empty() || queued.load(std::memory_order_relaxed) > 0) break;
        relax();
      }
      if (stopping || done()) break;
      const auto now = Clock::now();
      if (worked) {
        if (std::exchange(spun, false)) luck.found();
        last_work = now;
        continue;
      }
      if (may_spin && now - last_work < spin()) {
        spun = true;
        continue;
      }
      if (!arm() || kicked) continue;
      luck.blocked(std::exchange(spun, false));
      sleep();
      last_work = Clock::now();
    }
  }

  // ---- lending: `left` says that the loop is lent and nobody drives it -------------------------

  void run_lent() {
    const auto work = begin_running();
    for (;;) {
      quiet = false;  // it is this thread's until somebody says so
      drive([this] { return quiet && queued.load() == 0; });
      thread = std::thread::id();
      if (stopping) return;
      leave();
      take_back();
      thread = std::this_thread::get_id();
    }
  }

  void leave() {
    const bool wanted_at_once = !quiet || stopping;
    left.store(true);
    if (wanted_at_once || queued.load() > 0) want();
  }

  bool enter() {
    bool expected = true;
    return left.compare_exchange_strong(expected, false);
  }

  void want() {
    const std::lock_guard lock(lending);
    wanted = true;
    wanted_changed.notify_one();
  }

  // By the thread of run_lent(): once it is wanted, or nobody has driven for a while.
  void take_back() {
    std::unique_lock lock(lending);
    for (;;) {
      const std::uint64_t drives_before = drives.load();
      const bool at_once = wanted_changed.wait_for(lock, kLentTime, [this] { return wanted; });
      wanted = false;
      if ((at_once || drives.load() == drives_before) && enter()) return;
    }
  }

  bool drive_lent(const std::function<void()>& begin, const std::function<bool()>& done) {
    if (!enter()) return false;
    thread = std::this_thread::get_id();
    begin();
    drive(done);
    // What it has still to say is said by this thread: another one would have to wake for it.
    for (int i = 0; i < kLastTurnsMax && queued.load() > 0 && !stopping; ++i) run_ready();
    drives.fetch_add(1);
    thread = std::thread::id();
    leave();
    return true;
  }

  std::atomic<bool> closing{false};
  Inbox inbox;
  std::atomic<bool> asleep{false};
  asio::io_context context{1};
  asio::posix::stream_descriptor bell;  // an eventfd
  std::vector<std::shared_ptr<Source>> sources;
  std::size_t wakeups = 0;     // waits on pollers' descriptors that ended: no work in themselves
  std::atomic<int> queued{0};  // posts that have not run
  Clock::duration own_spin{0};
  bool kicked = false;
  bool resting = false;
  bool quiet = false;  // nothing is expected
  bool stopping = false;
  SpinLuck luck;

  std::atomic<bool> left{false};
  std::atomic<std::uint64_t> drives{0};  // by other threads than run_lent()'s
  std::mutex lending;
  std::condition_variable wanted_changed;
  bool wanted = false;  // guarded by lending

  std::atomic<std::thread::id> thread{};
  std::atomic<std::uint64_t> rounds{0};
};

asio::io_context& AsioAccess::context(EventLoop& loop) { return loop.impl_->context; }

EventLoop::EventLoop() : impl_(std::make_unique<Impl>()) {}
EventLoop::~EventLoop() = default;

void EventLoop::run() { impl_->run(); }
void EventLoop::run_lent() { impl_->run_lent(); }
bool EventLoop::drive(const std::function<void()>& begin, const std::function<bool()>& done) {
  return impl_->drive_lent(begin, done);
}

void EventLoop::stop() {
  // Behind what was posted before.
  post([impl = impl_.get()] { impl->stopping = true; });
}

void EventLoop::post(std::function<void()> fn) { impl_->post(std::move(fn)); }

bool EventLoop::on_loop_thread() const {
  return impl_->thread.load() == std::this_thread::get_id();
}

std::unique_ptr<EventLoop::Timer> EventLoop::after(std::chrono::nanoseconds delay,
                                                   std::function<void()> fn) {
  class AsioTimer final : public Timer {
   public:
    AsioTimer(asio::io_context& context, std::chrono::nanoseconds delay, std::function<void()> fn)
        : timer_(context, delay), alive_(std::make_shared<bool>(true)) {
      // `alive` is shared with the handler: a timer that has expired can no longer be cancelled.
      timer_.async_wait([alive = alive_, fn = std::move(fn)](const boost::system::error_code& e) {
        if (*alive && !e) fn();
      });
    }
    ~AsioTimer() override { *alive_ = false; }

   private:
    asio::steady_timer timer_;
    std::shared_ptr<bool> alive_;
  };
  return std::make_unique<AsioTimer>(impl_->context, delay, std::move(fn));
}

std::unique_ptr<EventLoop::Watch> EventLoop::add_poller(Poller poller) {
  const int fd = poller.fd;
  auto source = std::make_shared<Impl::Source>(impl_->context, std::move(poller));
  source->descriptor.assign(fd);
  impl_->sources.push_back(source);
  return std::make_unique<Impl::PollerWatch>(*impl_, std::move(source));
}

void EventLoop::spin_for(std::chrono::nanoseconds spin) { impl_->own_spin = spin; }
void EventLoop::kick() {
  if (on_loop_thread()) {
    impl_->kicked = true;
  } else {
    post([] {});
  }
}

void EventLoop::rest() { impl_->resting = impl_->quiet = true; }
void EventLoop::expect() { impl_->quiet = false; }

std::uint64_t EventLoop::rounds() const { return impl_->rounds.load(std::memory_order_relaxed); }

}  // namespace precis

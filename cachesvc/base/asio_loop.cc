#include "cachesvc/base/asio_loop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "cachesvc/base/asio.h"
#include "cachesvc/base/inbox.h"
#include "cachesvc/base/loop_handles.h"
#include "cachesvc/base/loop_handoff.h"
#include "cachesvc/base/spin_policy.h"
#include "precis/status.h"

namespace precis {
namespace {

namespace asio = boost::asio;
using Steady = std::chrono::steady_clock;

// Progress calls between two polls of the descriptors while the loop spins. A poll of the
// descriptors costs more than a progress call.
constexpr int kProgressPerLook = 16;

// Rounds of posted functions, including those that posted functions post, before the loop polls the
// descriptors.
constexpr int kInboxTurnsMax = 8;
// Time limit for the posted functions of one turn, and again for the handlers of descriptors.
constexpr std::chrono::microseconds kTurnTime{100};
constexpr int kLastTurnsMax = 8;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Status to_status(const boost::system::error_code& error, std::string_view what) {
  if (!error) return {};
  std::string message = std::string(what) + ": " + error.message();
  if (error == asio::error::operation_aborted) return Status::canceled(std::move(message));
  if (error == asio::error::timed_out) return Status::timed_out(std::move(message));
  return Status::unavailable(std::move(message));
}

struct AsioLoop::Impl {
  Impl() : wake_event(context) {
    const int descriptor = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (descriptor < 0) {  // the error that Asio reports for its own descriptors
      throw boost::system::system_error(errno, boost::system::system_category(), "eventfd");
    }
    wake_event.assign(descriptor);
    listen();
  }
  ~Impl() {
    closing = true;
    inbox.clear();
  }

  // One added poller. Its handle, the list of pollers and the wait on its descriptor share it. The
  // wait's completion may still be queued when the handle is destroyed.
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
      source_->descriptor.release();  // the caller still owns the descriptor
      std::erase(impl_.sources, source_);
    }

   private:
    Impl& impl_;
    std::shared_ptr<Source> source_;
  };

  // Runs ready handlers. Returns true if one of them did work.
  bool run_ready() {
    std::size_t posted = 0;
    auto enough = Steady::now() + kTurnTime;
    for (int turn = 0; turn < kInboxTurnsMax && !inbox.empty(); ++turn) {
      const std::size_t ran = inbox.run();
      queued.fetch_sub(static_cast<int>(ran));
      posted += ran;
      if (Steady::now() >= enough) break;
    }
    // poll() would not return while a descriptor is ready again and again.
    std::size_t handlers = 0;
    if (posted > 0) enough = Steady::now() + kTurnTime;
    while (context.poll_one() > 0 && (++handlers, Steady::now() < enough)) {
    }
    handlers -= std::min(handlers, std::exchange(wakeups, 0));
    return posted + handlers > 0;
  }

  unsigned progress() {
    unsigned done = 0;
    // Iterates by index, because a callback may add or remove pollers. A skipped poller runs next
    // time.
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const auto source = sources[i];
      done += source->poller.progress();
    }
    return done;
  }

  Steady::duration spin() const {
    Steady::duration longest = own_spin;
    for (const auto& s : sources) longest = std::max(longest, Steady::duration(s->poller.spin));
    return longest;
  }

  // Returns true if every poller may block now. Its descriptor then wakes the loop.
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
    if (closing) return;  // objects that are destroyed with the loop still post
    queued.fetch_add(1);
    inbox.put(std::move(fn));
    // Every posting thread that sees the loop asleep wakes it: a single waking thread could
    // be preempted before it does.
    if (asleep.load() && thread.load() != std::this_thread::get_id()) wake();
    handoff.posted();
  }

  // Blocks until there is something to do. post() adds first and reads `asleep` second; this
  // function does the reverse, so at least one of the two threads sees the other.
  void sleep() {
    asleep.store(true);
    if (inbox.empty()) context.run_one();
    asleep.store(false);
  }
  void wake() {
    const std::uint64_t once = 1;
    PRECIS_CHECK(::write(wake_event.native_handle(), &once, sizeof once) == sizeof once);
  }
  void listen() {
    wake_event.async_wait(
        asio::posix::descriptor_base::wait_read, [this](const boost::system::error_code& error) {
          if (error) {
            // the loop is being destroyed
            PRECIS_CHECK(error == asio::error::operation_aborted);
            return;
          }
          std::uint64_t count = 0;
          static_cast<void>(::read(wake_event.native_handle(), &count, sizeof count));
          ++wakeups;
          listen();
        });
  }

  void run() {
    const auto work = begin_running();
    drive([] { return false; });
    thread = std::thread::id();
  }

  // The returned guard keeps Asio from stopping when it has nothing to do.
  [[nodiscard]] asio::executor_work_guard<asio::io_context::executor_type> begin_running() {
    stopping = false;
    thread = std::this_thread::get_id();
    context.restart();
    return asio::make_work_guard(context);
  }

  // Runs until `done` returns true or the loop stops.
  template <typename Done>
  void drive(Done done) {
    auto last_work = Steady::now();
    bool spun = false;  // since the last work
    while (!stopping && !done()) {
      rounds.fetch_add(1, std::memory_order_relaxed);
      const bool nothing_expected = std::exchange(resting, false);
      const bool may_spin = !nothing_expected && spin_policy.worth_it();
      bool worked = run_ready();
      // If the loop is about to block anyway, one call of each poller is enough: each is a system
      // call.
      for (int i = 0; i < (may_spin ? kProgressPerLook : 1) && !stopping; ++i) {
        if (progress() > 0) worked = true;
        if (std::exchange(kicked, false)) worked = true;
        // Posted functions wait: run them before further progress calls.
        if (sources.empty() || queued.load(std::memory_order_relaxed) > 0) break;
        relax();
      }
      if (stopping || done()) break;
      const auto now = Steady::now();
      if (worked) {
        if (std::exchange(spun, false)) spin_policy.found();
        last_work = now;
        continue;
      }
      if (may_spin && now - last_work < spin()) {
        spun = true;
        continue;
      }
      if (!arm() || kicked) continue;
      spin_policy.blocked(std::exchange(spun, false));
      sleep();
      last_work = Steady::now();
    }
  }

  // ---- lending --------------------------------------------------------------------------------

  void run_lent() {
    const auto work = begin_running();
    for (;;) {
      quiet = false;  // the loop is not lent until a handler calls rest()
      drive([this] { return quiet && queued.load() == 0; });
      thread = std::thread::id();
      if (stopping) return;
      leave();
      handoff.take_back();
      thread = std::this_thread::get_id();
    }
  }

  bool drive_lent(const std::function<void()>& begin, const std::function<bool()>& done) {
    if (!handoff.enter()) return false;
    thread = std::this_thread::get_id();
    begin();
    drive(done);
    // This thread also runs the last posted functions: run_lent()'s thread would have to wake up
    // for them.
    for (int i = 0; i < kLastTurnsMax && queued.load() > 0 && !stopping; ++i) run_ready();
    handoff.drove();
    thread = std::thread::id();
    leave();
    return true;
  }

  void leave() {
    const bool wanted_at_once = !quiet || stopping;
    handoff.leave([&] { return wanted_at_once || queued.load() > 0; });
  }

  const SystemClock clock;
  std::atomic<bool> closing{false};
  Inbox inbox;
  std::atomic<bool> asleep{false};
  asio::io_context context{1};
  asio::posix::stream_descriptor wake_event;  // an eventfd
  std::vector<std::shared_ptr<Source>> sources;
  std::size_t wakeups = 0;     // ended waits on descriptors of pollers and of wake_event; no work
  std::atomic<int> queued{0};  // posted functions that have not run
  Steady::duration own_spin{0};
  bool kicked = false;
  bool resting = false;
  bool quiet = false;  // nothing is expected (rest())
  bool stopping = false;
  SpinPolicy spin_policy;
  LoopHandoff handoff;

  std::atomic<std::thread::id> thread{};
  std::atomic<std::uint64_t> rounds{0};
};

asio::io_context& AsioAccess::context(EventLoop& loop) {
  auto* const own = dynamic_cast<AsioLoop*>(&loop);
  PRECIS_CHECK(own != nullptr);  // sockets exist on a machine only
  return own->impl_->context;
}

AsioLoop::AsioLoop() : impl_(std::make_unique<Impl>()) {}
AsioLoop::~AsioLoop() = default;

const Clock& AsioLoop::clock() const { return impl_->clock; }

void AsioLoop::run() { impl_->run(); }
void AsioLoop::run_lent() { impl_->run_lent(); }
bool AsioLoop::drive(const std::function<void()>& begin, const std::function<bool()>& done) {
  return impl_->drive_lent(begin, done);
}

void AsioLoop::stop() {
  // Posted, so that functions posted earlier run first.
  post([impl = impl_.get()] { impl->stopping = true; });
}

void AsioLoop::post(std::function<void()> fn) { impl_->post(std::move(fn)); }

bool AsioLoop::on_loop_thread() const { return impl_->thread.load() == std::this_thread::get_id(); }

std::unique_ptr<AsioLoop::Timer> AsioLoop::after(std::chrono::nanoseconds delay,
                                                 std::function<void()> fn) {
  return start_timer(*this, delay, std::move(fn));
}
std::unique_ptr<AsioLoop::Watch> AsioLoop::watch_readable(int fd, std::function<void()> fn) {
  return watch_descriptor(*this, fd, std::move(fn), nullptr);
}
std::unique_ptr<AsioLoop::SocketWatch> AsioLoop::watch_socket(int fd,
                                                              std::function<void()> readable,
                                                              std::function<void()> writable) {
  return watch_descriptor(*this, fd, std::move(readable), std::move(writable));
}

std::unique_ptr<AsioLoop::Watch> AsioLoop::add_poller(Poller poller) {
  const int fd = poller.fd;
  auto source = std::make_shared<Impl::Source>(impl_->context, std::move(poller));
  source->descriptor.assign(fd);
  impl_->sources.push_back(source);
  return std::make_unique<Impl::PollerWatch>(*impl_, std::move(source));
}

void AsioLoop::spin_for(std::chrono::nanoseconds spin) { impl_->own_spin = spin; }
void AsioLoop::kick() {
  if (on_loop_thread()) {
    impl_->kicked = true;
  } else {
    post([] {});
  }
}

void AsioLoop::rest() { impl_->resting = impl_->quiet = true; }
void AsioLoop::expect() { impl_->quiet = false; }

std::uint64_t AsioLoop::rounds() const { return impl_->rounds.load(std::memory_order_relaxed); }

}  // namespace precis

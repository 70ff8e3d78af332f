#include "tests/hostile/neighbour.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "cachesvc/base/descriptor.h"
#include "tests/hostile/session.h"
#include "tests/integration/random_kv.h"

namespace precis::hostile {
namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kClientsEach = 32;
constexpr std::uint32_t kTokens = 256;
// The honest tenant requests only a part of the service's capacity. A tenant that used all of the
// capacity would lose half of it to any other tenant.
constexpr std::chrono::milliseconds kRoundTime{600};

struct Times {
  std::mutex mutex;
  std::vector<double> lookups, puts, gets;  // seconds
  Status first_error;
};

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

template <typename Call>
auto timed(Times& times, std::vector<double>& into, const Call& call) {
  const auto start = Clock::now();
  auto result = call();
  const std::lock_guard lock(times.mutex);
  into.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  return result;
}

Status work(const std::string& address, std::uint32_t seed, Clock::time_point until, Times& times) {
  ConnectOptions options;
  options.tenant = "alice";
  options.token = Victim::login("alice").token;
  PRECIS_ASSIGN(auto client, Client::connect(address, options));
  PRECIS_ASSIGN(const Model model, client->register_model(testing::tiny_model()));
  std::mt19937 random(seed);
  PutOptions put;
  put.recipe = "global_kvdiff(min_entries=16)";
  auto next_round = Clock::now() + kRoundTime * (seed % kClientsEach) / kClientsEach;
  for (; next_round < until; next_round += kRoundTime) {
    std::this_thread::sleep_until(next_round);
    const auto tokens = testing::random_tokens(random, kTokens);
    const auto kv = testing::random_kv(random, testing::tiny_model(), 0, kTokens);
    PRECIS_ASSIGN(const auto segment, timed(times, times.puts, [&] {
                    return testing::put_all(*client, model, tokens, kv, put, Durability::kMemory);
                  }));
    for (unsigned i = 0; i < 10; ++i) {
      PRECIS_ASSIGN(const auto match,
                    timed(times, times.lookups, [&] { return client->lookup(model, tokens); }));
      PRECIS_TRY(timed(times, times.gets, [&] {
        auto prefix = client->get(match, Budget::all());
        return prefix.ok() ? prefix->wait() : prefix.status();
      }));
    }
    PRECIS_TRY(client->remove_segment(segment.id, /*recursive=*/true).status());
  }
  return {};
}

// A separate process that works from begin() until the destructor. It cannot run in the honest
// tenant's process: its threads, of lowest priority, would hold locks that the honest threads wait
// for. The constructor forks, while there are no other threads.
class Beside {
 public:
  // `work` returns once the flag is set.
  using Work = std::function<void(std::uint32_t seed, const std::atomic<bool>& over)>;
  Beside(unsigned threads, const Work& work) {
    int ends[2];
    PRECIS_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    pid_ = ::fork();
    PRECIS_CHECK(pid_ >= 0);
    const int own = ends[pid_ == 0 ? 1 : 0];
    ::close(ends[pid_ == 0 ? 0 : 1]);
    if (pid_ == 0) {
      run(own, threads, work);
      ::_exit(0);
    }
    line_ = Descriptor(own);
  }
  ~Beside() {
    ::shutdown(line_.get(), SHUT_RDWR);  // not close(): children forked later hold it, too
    ::waitpid(pid_, nullptr, 0);
  }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  void begin() { PRECIS_CHECK(::write(line_.get(), "", 1) == 1); }

 private:
  static void run(int line, unsigned threads, const Work& work) {
    char byte = 0;
    if (::read(line, &byte, 1) != 1) return;
    std::atomic<bool> over{false};
    std::vector<std::jthread> running;
    for (std::uint32_t i = 0; i < threads; ++i) running.emplace_back([&, i] { work(i, over); });
    static_cast<void>(::read(line, &byte, 1));  // until the other end shuts down
    over = true;
  }

  pid_t pid_ = -1;
  Descriptor line_;
};

// Runs whole sessions, changed sessions, and requests and headers as fast as possible.
void be_hostile(const Target& target, std::uint32_t seed, const std::atomic<bool>& over) {
  // Lowest priority: these clients run on this machine only for the test, so their own computation
  // must not slow the service.
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19);
  const Recording nothing;
  const Buffer ask = frame(FrameKind::kMessage, encode(msg::Request{1, msg::GetStats{}}));
  std::mt19937 random(seed);
  while (!over) {
    const Plan plan = random_plan(random);
    Twister twister(static_cast<std::uint32_t>(random()), nothing,
                    static_cast<std::uint32_t>(random() % 12));
    Talk talk(target, {.over_unix = plan.control_over_unix,
                       .host = static_cast<std::uint8_t>(2 + seed),
                       .twister = seed % 2 == 0 ? &twister : nullptr});
    run_session(talk, Victim::login("bob"), plan);
    for (unsigned i = 0; i < 2000 && seed % 4 == 1 && !over; ++i) {
      if (!talk.control().send(ask, {}, milliseconds(20))) break;
    }
  }
}

// Uses the same processor time without sending anything to the service, for comparison.
void be_busy(const std::atomic<bool>& over) {
  while (!over.load(std::memory_order_relaxed)) {
  }
}

Times& measure(Victim& victim, double seconds, Times& times) {
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(seconds));
  std::vector<std::jthread> clients;
  for (unsigned i = 0; i < kClientsEach; ++i) {
    clients.emplace_back([&, i] {
      const Status status = work(victim.address(), 1000 + i, until, times);
      const std::lock_guard lock(times.mutex);
      if (times.first_error.ok()) times.first_error = status;
    });
  }
  clients.clear();
  return times;
}

}  // namespace

Finding measure_neighbour(Victim& victim, double seconds) {
  Finding finding{16, "noisy neighbour", {}, {}};
  auto busy =
      std::make_unique<Beside>(std::thread::hardware_concurrency(),
                               [](std::uint32_t, const std::atomic<bool>& over) { be_busy(over); });
  auto hostile = std::make_unique<Beside>(kClientsEach,
                                          [&](std::uint32_t seed, const std::atomic<bool>& over) {
                                            be_hostile(victim.target(), seed, over);
                                          });
  Times alone, beside_busy, beside;
  measure(victim, seconds, alone);
  busy->begin();
  measure(victim, seconds, beside_busy);
  busy = nullptr;
  hostile->begin();
  measure(victim, seconds, beside);
  hostile = nullptr;
  const auto compare = [&](const std::string& name, std::vector<double> Times::*values, double q) {
    const double before = quantile(alone.*values, q), now = quantile(beside.*values, q);
    finding.count(name + "_alone_ms", before * 1e3);
    finding.count(name + "_busy_ms", quantile(beside_busy.*values, q) * 1e3);
    finding.count(name + "_beside_ms", now * 1e3);
    finding.expect(now <= 2 * before, name + " takes more than twice its time alone");
  };
  compare("lookup_p99", &Times::lookups, 0.99);
  compare("put_median", &Times::puts, 0.5);
  compare("get_median", &Times::gets, 0.5);
  finding.count("lookups_alone", static_cast<double>(alone.lookups.size()));
  finding.count("lookups_beside", static_cast<double>(beside.lookups.size()));
  for (const Times* times : {&alone, &beside_busy, &beside}) {
    finding.expect(times->first_error.ok(),
                   "an honest client failed: " + times->first_error.to_string());
  }
  victim.check(finding);
  return finding;
}

}  // namespace precis::hostile

#include "tests/torture/chaos.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <thread>
#include <utility>

#include "tests/integration/proc.h"
#include "tests/torture/chaos_path.h"

namespace precis::torture {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using testing::stat;

constexpr std::uint32_t kRoundsMin = 3;
constexpr std::uint64_t kOperationsEach = 4;  // of each client in a round, at least
constexpr seconds kRoundTime{4};              // including the second before the kill
constexpr std::uint32_t kKillSpreadMicros = 30'000;
constexpr seconds kStopTime{10};
constexpr milliseconds kLook{5};
// A longer wait means a hang, even on a busy machine.
constexpr seconds kPatience{240};
constexpr std::uint64_t kMemoryBytes = 256u << 20;

double per_second(std::uint64_t count, steady_clock::duration took) {
  return static_cast<double>(count) / std::chrono::duration<double>(took).count();
}

}  // namespace

Chaos::Chaos(ChaosOptions options)
    : options_(std::move(options)), shared_seed_(options_.seed), random_(options_.seed) {}

Status Chaos::all() {
  const Status status = run();
  if (status.ok() || !service_) return status;
  const std::string last_words = service_->last_words();
  return last_words.empty() ? status : status.with_context(last_words);
}

Status Chaos::run() {
  PRECIS_TRY(set_up().with_context("before the first kill"));
  const auto end_at = steady_clock::now() + seconds(options_.seconds);
  const bool timed = options_.seconds > 0;
  const auto done = [&] {
    if (!timed) return static_cast<double>(rounds_) / kRoundsMin;
    const std::chrono::duration<double> left = end_at - steady_clock::now();
    return std::clamp(1 - left.count() / options_.seconds, 0.0, 1.0);
  };
  while (done() < 1) {
    PRECIS_TRY(round(timed).with_context("round " + std::to_string(rounds_)));
    options_.progress(done(), std::to_string(killed_) + " killed, " +
                                  std::to_string(crowd_->operations()) + " operations");
  }
  PRECIS_TRY(stop_one().with_context("a stopped client"));
  return end().with_context("after the last kill");
}

Status Chaos::set_up() {
  std::vector<std::string> flags{"--memory", std::to_string(kMemoryBytes), "--log-level",
                                 options_.log_level};
  if (options_.tcp) flags.insert(flags.end(), {"--listen-unix", "off"});
  PRECIS_ASSIGN(service_, testing::ServiceProcess::start(options_.data_dir, flags));
  client_ = service_->connect();
  PRECIS_ASSIGN(model_, client_->register_model(chaos_model()));
  PRECIS_TRY(put_shared().with_context("the shared path"));
  links_before_ = testing::open_links(service_->pid());
  maps_before_ = testing::mapped_memory_files(service_->pid());
  crowd_.emplace(service_->address(), options_.seed, shared_seed_, options_.clients);
  return wait_for([this] { return crowd_->operations(); }, options_.clients);
}

Status Chaos::put_shared() {
  const ChaosPath path(shared_seed_);
  return put_path(*client_, *model_, path, path.kv).status();
}

Status Chaos::wait_for(const std::function<std::uint64_t()>& operations, std::uint64_t count) {
  const std::uint64_t until = operations() + count;
  const auto give_up = steady_clock::now() + kPatience;
  while (operations() < until) {
    PRECIS_TRY(crowd_->first_failure());
    if (steady_clock::now() > give_up) {
      return Status::internal("the clients do not get on: " + std::to_string(until - operations()) +
                              " operations are still to come");
    }
    std::this_thread::sleep_for(kLook);
  }
  return crowd_->first_failure();
}

Status Chaos::round(bool timed) {
  const auto operations = [this] { return crowd_->operations(); };
  const std::uint64_t each = kOperationsEach * options_.clients;
  const auto over = [&](auto since, std::uint64_t before) {
    return per_second(operations() - before, steady_clock::now() - since);
  };
  Rates rates;
  auto since = steady_clock::now();
  std::uint64_t before = operations();
  if (timed) {
    std::this_thread::sleep_for(seconds(1));
    rates.before = over(since, before);
  }
  PRECIS_TRY(kill_a_third());
  if (timed) {
    for (double* rate : {&rates.first_second, &rates.second_second}) {
      since = steady_clock::now();
      before = operations();
      std::this_thread::sleep_for(seconds(1));
      *rate = over(since, before);
    }
    measured_.push_back(rates);
    std::this_thread::sleep_for(kRoundTime - seconds(3));
  }
  PRECIS_TRY(wait_for(operations, timed ? 1 : each));
  for (const std::uint32_t seed : std::exchange(dead_, {})) {
    PRECIS_TRY(remove_path(*client_, *model_, chaos_tokens(seed)));
  }
  ++rounds_;
  return {};
}

Status Chaos::kill_a_third() {
  std::vector<std::size_t> order(crowd_->size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::shuffle(order, random_);
  order.resize(std::max<std::size_t>(1, order.size() / 3));
  for (const std::size_t i : order) {
    PRECIS_TRY(crowd_->first_failure());
    dead_.push_back(crowd_->replace(i));
    ++killed_;
    std::this_thread::sleep_for(
        std::chrono::microseconds(random_() % kKillSpreadMicros / order.size()));
  }
  return {};
}

Status Chaos::stop_one() {
  Member& one = crowd_->member(random_() % crowd_->size());
  PRECIS_TRY(wait_for([&] { return one.operations(); }, 1));
  one.signal(SIGSTOP);
  const auto others = [&] { return crowd_->operations_without(one); };
  const std::uint64_t before = others();
  const auto until = steady_clock::now() + (options_.seconds > 0 ? kStopTime : seconds(0));
  Status status;
  do {
    status = wait_for(others, options_.clients);
  } while (status.ok() && steady_clock::now() < until);
  beside_stopped_ = others() - before;
  one.signal(SIGCONT);
  PRECIS_TRY(status);
  return wait_for([&] { return one.operations(); }, kOperationsEach);
}

Status Chaos::end() {
  const std::vector<std::uint32_t> seeds = crowd_->seeds();
  PRECIS_TRY(crowd_->stop());
  operations_ = crowd_->operations();
  bytes_ = crowd_->bytes();
  dead_.insert(dead_.end(), seeds.begin(), seeds.end());
  dead_.push_back(shared_seed_);
  for (const std::uint32_t seed : dead_) {
    PRECIS_TRY(remove_path(*client_, *model_, chaos_tokens(seed)));
  }
  PRECIS_TRY(check_nothing_left());
  PRECIS_ASSIGN(const msg::ServerStatus status, client_->status());
  const bool in_place = !options_.tcp && status.device.starts_with("cpu");
  if (in_place && stat(*client_, "precis_in_place_bytes_total") == 0) {
    return Status::internal("no client's memory was read in place");
  }
  const auto connections = static_cast<std::uint64_t>(stat(*client_, "precis_connections_total"));
  const std::uint64_t expected = crowd_->made() + 1;  // plus this connection
  connected_again_ = connections - std::min(connections, expected);
  peak_bytes_ = testing::peak_resident_bytes(service_->pid());
  if (peak_bytes_ > kMemoryBytes + testing::kBesideMemoryBytes) {
    return Status::internal("the service took " + std::to_string(peak_bytes_) +
                            " B of memory, may take " +
                            std::to_string(kMemoryBytes + testing::kBesideMemoryBytes));
  }
  client_.reset();
  const int code = service_->stop();
  return code == 0 ? Status() : Status::internal("precisd ended with " + std::to_string(code));
}

// Waits, because the service notices each death after some delay.
Status Chaos::check_nothing_left() {
  const auto give_up = steady_clock::now() + kPatience;
  for (;;) {
    std::string left;
    const auto expect = [&](const char* what, double value, double wanted) {
      if (value == wanted) return;
      left += std::string(left.empty() ? "" : ", ") + what + " is " + std::to_string(value) +
              " instead of " + std::to_string(wanted);
    };
    for (const char* name :
         {"precis_open_puts", "precis_open_gets", "precis_staged_bytes", "precis_memory_bytes",
          "precis_segments", "precis_quarantined_segments", "precis_corrupt_layers_total"}) {
      expect(name, stat(*client_, name), 0);
    }
    expect("precis_connected_clients", stat(*client_, "precis_connected_clients"), 1);
    expect("the number of its sockets and watches",
           static_cast<double>(testing::open_links(service_->pid())),
           static_cast<double>(links_before_));
    expect("the number of its maps of clients' memory",
           static_cast<double>(testing::mapped_memory_files(service_->pid())),
           static_cast<double>(maps_before_));
    if (left.empty()) return {};
    if (steady_clock::now() > give_up) return Status::internal("something is left: " + left);
    std::this_thread::sleep_for(kLook);
  }
}

Chaos::Rates Chaos::rates() const {
  Rates mean;
  for (const Rates& rates : measured_) {
    mean.before += rates.before / static_cast<double>(measured_.size());
    mean.first_second += rates.first_second / static_cast<double>(measured_.size());
    mean.second_second += rates.second_second / static_cast<double>(measured_.size());
  }
  return mean;
}

}  // namespace precis::torture

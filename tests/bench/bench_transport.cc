// precis_bench_transport: pull and push by each means of each transport beside this machine's
// ceiling; then how well one trial of each, as a connection could make when it begins, would choose
// between two of them. Server and client are two threads of one process, each with its own
// transport and loop.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <string>
#include <thread>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/transport/loopback_transport.h"
#include "cachesvc/transport/ucx_transport.h"
#include "tests/bench/row.h"
#include "tests/bench/transport_ceilings.h"

namespace precis::bench {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kPoolBytes = 256u << 20;
constexpr std::size_t kLoadBytes = 16u << 20;

// A loop with its thread and a transport.
class Party {
 public:
  explicit Party(const std::function<std::unique_ptr<Transport>(EventLoop&)>& make)
      : transport(make(loop)), thread_([this] { loop.run(); }) {}
  ~Party() {
    loop.stop();
    thread_.join();
  }
  // Runs fn on the loop and waits for what it hands to its argument.
  template <typename T>
  T wait(const std::function<void(std::function<void(T)>)>& fn) {
    std::promise<T> promise;
    loop.post([&] { fn([&](T value) { promise.set_value(std::move(value)); }); });
    return promise.get_future().get();
  }

  EventLoop loop;
  std::unique_ptr<Transport> transport;

 private:
  std::thread thread_;
};

template <typename T>
T must(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "precis_bench_transport: %s\n", result.status().to_string().c_str());
  std::exit(1);
}

// Two parties that are connected, and the client's memory open to the server.
class Pair {
 public:
  Pair(const std::string& listen_address,
       const std::function<std::unique_ptr<Transport>(EventLoop&)>& make)
      : server_(make), client_(make) {
    std::promise<std::unique_ptr<Connection>> accepted;
    const std::string address = server_.wait<std::string>([&](auto done) {
      done(must(server_.transport->listen(
          listen_address, {.greet =
                               [](Bytes, const std::string&) {
                                 return Transport::Greeting{{}, true};
                               },
                           .accepted = [&](std::unique_ptr<Connection> c,
                                           Bytes) { accepted.set_value(std::move(c)); }})));
    });
    connected_ = client_.wait<std::shared_ptr<Transport::Connected>>([&](auto done) {
      client_.transport->connect(address, {}, 5000, [done](Result<Transport::Connected> result) {
        done(std::make_shared<Transport::Connected>(must(std::move(result))));
      });
    });
    connection_ = accepted.get_future().get();
    server_memory_ = must(server_.transport->register_memory(server_pool_.all()));
    client_memory_ = must(client_.transport->register_memory(client_pool_.all()));
    exposure_ = must(connected_->connection->expose(*client_memory_, client_memory_->bytes()));
    // What a message follows is known where it arrives.
    server_.wait<int>([&](auto done) {
      connection_->start(
          {.on_message = [done](std::vector<std::byte>) { done(0); }, .on_closed = [](Status) {}});
      client_.loop.post([&] { connected_->connection->send(std::vector<std::byte>(1)); });
    });
  }
  ~Pair() {
    client_.wait<int>([&](auto done) {
      exposure_.reset();
      connected_->connection.reset();
      done(0);
    });
    server_.wait<int>([&](auto done) {
      connection_.reset();
      done(0);
    });
  }

  std::string description() {
    return server_.wait<std::string>([&](auto done) { done(connection_->description()); });
  }

  // GB/s of one, of memory that no cache holds.
  double rate(bool pull, std::size_t size) {
    const RemoteRegion region = exposure_->region();
    const MutableBytes local = server_pool_.next(size);
    if (offset_ + size > region.size_bytes) offset_ = 0;
    const auto begin = steady_clock::now();
    const Status moved = server_.wait<Status>([&](auto done) {
      if (pull) {
        connection_->pull(region, offset_, local, *server_memory_, done);
      } else {
        connection_->push({local}, *server_memory_, region, offset_, done);
      }
    });
    const std::chrono::duration<double> took = steady_clock::now() - begin;
    if (!moved.ok()) must(Result<int>(moved));
    offset_ += size;
    return static_cast<double>(size) * 1e-9 / took.count();
  }

 private:
  Party server_, client_;
  ColdPool server_pool_{kPoolBytes}, client_pool_{kPoolBytes};
  std::unique_ptr<Registration> server_memory_, client_memory_;
  std::unique_ptr<Connection> connection_;
  std::shared_ptr<Transport::Connected> connected_;
  std::unique_ptr<Exposure> exposure_;
  std::size_t offset_ = 0;  // of the client's memory, of the next
};

struct Lane {
  const char* name;
  std::string address;
  std::function<std::unique_ptr<Transport>(EventLoop&)> make;
  std::function<double()> ceiling;  // seconds of one run
  const char* ceiling_name;
};

void measure(const Lane& lane, std::size_t size, std::size_t runs) {
  Pair pair(lane.address, lane.make);
  const std::string description = pair.description();
  for (const bool pull : {true, false}) {
    Samples samples;
    for (std::size_t run = 0; run < runs + 1; ++run) {
      const double ours = pair.rate(pull, size);
      const double ceiling = static_cast<double>(size) * 1e-9 / lane.ceiling();
      if (run > 0) samples.add(ours, ceiling);
    }
    const double rate = median(samples.values), ceiling = median(samples.ceilings);
    std::printf("%-32s %-5s %8.1f MiB %8.2f GB/s   %s %.2f GB/s, share %.2f\n", description.c_str(),
                pull ? "pull" : "push", static_cast<double>(size) / (1 << 20), rate,
                lane.ceiling_name, ceiling, rate / ceiling);
    std::fflush(stdout);
  }
}

// Threads that keep every core busy, as a host does that serves.
class Load {
 public:
  Load() {
    for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i) {
      threads_.emplace_back([this] {
        const std::vector<std::byte> from(kLoadBytes, std::byte{1});
        std::vector<std::byte> to(kLoadBytes);
        while (!stopping_) std::ranges::copy(from, to.begin());
      });
    }
  }
  ~Load() { stopping_ = true; }

 private:
  std::atomic<bool> stopping_{false};
  std::vector<std::jthread> threads_;
};

// Of single pulls by each of two means: how often the one that is slower in the median of them all
// was the faster one.
void try_once(const char* where, const Lane& a, const Lane& b, std::size_t size,
              std::size_t trials) {
  Pair first(a.address, a.make), second(b.address, b.make);
  first.rate(true, size);
  second.rate(true, size);
  std::vector<double> of_first, of_second;
  for (std::size_t i = 0; i < trials; ++i) {
    of_first.push_back(first.rate(true, size));
    of_second.push_back(second.rate(true, size));
  }
  const double medians[] = {median(of_first), median(of_second)};
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < trials; ++i) {
    wrong += (of_first[i] > of_second[i]) != (medians[0] > medians[1]);
  }
  std::printf("%-5s %s %.2f GB/s, %s %.2f GB/s: of %zu trials of %zu KiB %zu choose the slower\n",
              where, a.name, medians[0], b.name, medians[1], trials, size >> 10, wrong);
  std::fflush(stdout);
}

void run(const std::string& only, std::size_t runs) {
  const auto loopback = make_loopback_net();
  using Mode = UcxOptions::BulkMode;
  const auto ucx = [](std::string transports, Mode bulk) {
    return [transports, bulk](EventLoop& loop) {
      UcxOptions options;
      options.transports = transports;
      options.bulk = bulk;
      return must(make_ucx_transport(loop, options));
    };
  };
  for (const std::size_t size : {std::size_t{64} << 20, std::size_t{1} << 20}) {
    CopyCeiling copies(size, 1);
    const auto sockets = must(SocketCeiling::open(size, 1));
    const auto copy = [&] { return copies.run(1); };
    const auto socket = [&] { return must(sockets->run(1)); };
    const std::string port = "127.0.0.1:0";
    const std::vector<Lane> lanes = {
        {"loopback", "loopback:bench",
         [&](EventLoop& loop) { return make_loopback_transport(loop, loopback); }, copy,
         "streaming copy"},
        {"shm", port, ucx("", Mode::kAuto), copy, "streaming copy"},
        {"tcp", port, ucx("tcp", Mode::kAuto), socket, "raw socket"},
        {"tcp-messages", port, ucx("tcp", Mode::kMessages), socket, "raw socket"},
        {"tcp-one-sided", port, ucx("tcp", Mode::kOneSided), socket, "raw socket"},
    };
    for (const Lane& lane : lanes) {
      if (only.empty() || only == lane.name) measure(lane, size, runs);
    }
    if (!only.empty() && only != "trials") continue;
    const std::size_t trials = 20 * runs;
    try_once("alone", lanes[2], lanes[3], size, trials);
    const Load load;
    try_once("busy", lanes[2], lanes[3], size, trials);
  }
}

}  // namespace
}  // namespace precis::bench

int main(int argc, char** argv) {
  CLI::App app("Pull and push by each means, beside this machine's ceiling.");
  std::string only;
  std::size_t runs = 9;
  app.add_option("means", only, "one of them alone")
      ->check(CLI::IsMember({"loopback", "shm", "tcp", "tcp-messages", "tcp-one-sided", "trials"}));
  app.add_option("runs", runs, "of each figure")->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  precis::bench::run(only, runs);
  return 0;
}

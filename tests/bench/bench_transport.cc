// precis_bench_transport: pull and push over each transport beside this machine's ceiling. Server
// and client are two threads of one process, each with its own transport and loop.
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

void print(const char* transport, const char* what, std::size_t size, const Samples& samples,
           const char* ceiling_name) {
  const double rate = median(samples.values), ceiling = median(samples.ceilings);
  std::printf("%-14s %-5s %8.1f MiB %8.2f GB/s   %s %.2f GB/s, share %.2f\n", transport, what,
              static_cast<double>(size) / (1 << 20), rate, ceiling_name, ceiling, rate / ceiling);
  std::fflush(stdout);
}

struct Lane {
  const char* name;
  std::string address;
  std::function<std::unique_ptr<Transport>(EventLoop&)> make;
  std::function<double()> ceiling;  // seconds of one run
  const char* ceiling_name;
};

void measure(const Lane& lane, std::size_t size, std::size_t runs) {
  Party server(lane.make), client(lane.make);
  ColdPool server_pool(kPoolBytes), client_pool(kPoolBytes);
  auto server_memory = must(server.transport->register_memory(server_pool.all()));
  auto client_memory = must(client.transport->register_memory(client_pool.all()));

  std::promise<std::unique_ptr<Connection>> accepted;
  const std::string address = server.wait<std::string>([&](auto done) {
    done(must(server.transport->listen(
        lane.address, {.greet =
                           [](Bytes) {
                             return Transport::Greeting{{}, true};
                           },
                       .accepted = [&](std::unique_ptr<Connection> c,
                                       Bytes) { accepted.set_value(std::move(c)); }})));
  });
  auto connected = client.wait<std::shared_ptr<Transport::Connected>>([&](auto done) {
    client.transport->connect(address, {}, 5000, [done](Result<Transport::Connected> result) {
      done(std::make_shared<Transport::Connected>(must(std::move(result))));
    });
  });
  auto connection = accepted.get_future().get();
  auto exposure = must(connected->connection->expose(*client_memory, client_memory->bytes()));
  const RemoteRegion region = exposure->region();
  const std::string description =
      server.wait<std::string>([&](auto done) { done(connection->description()); });

  for (const bool pull : {true, false}) {
    Samples samples;
    std::size_t offset = 0;
    for (std::size_t run = 0; run < runs + 1; ++run) {
      const MutableBytes local = server_pool.next(size);
      if (offset + size > region.size_bytes) offset = 0;
      const auto begin = steady_clock::now();
      const Status status = server.wait<Status>([&](auto done) {
        if (pull) {
          connection->pull(region, offset, local, *server_memory, done);
        } else {
          connection->push({local}, *server_memory, region, offset, done);
        }
      });
      const std::chrono::duration<double> took = steady_clock::now() - begin;
      if (!status.ok()) must(Result<int>(status));
      const double gigabytes = static_cast<double>(size) * 1e-9, ceiling = lane.ceiling();
      if (run > 0) samples.add(gigabytes / took.count(), gigabytes / ceiling);
      offset += size;
    }
    print(description.c_str(), pull ? "pull" : "push", size, samples, lane.ceiling_name);
  }
  client.wait<int>([&](auto done) {
    exposure.reset();
    connected->connection.reset();
    done(0);
  });
  server.wait<int>([&](auto done) {
    connection.reset();
    done(0);
  });
}

int run(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  const std::size_t runs = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 9;
  const auto loopback = make_loopback_net();
  const auto ucx = [](std::string transports) {
    return [transports](EventLoop& loop) {
      UcxOptions options;
      options.transports = transports;
      return must(make_ucx_transport(loop, options));
    };
  };
  for (const std::size_t size : {std::size_t{64} << 20, std::size_t{1} << 20}) {
    CopyCeiling copies(size, 1);
    const auto sockets = must(SocketCeiling::open(size, 1));
    const auto copy = [&] { return copies.run(1); };
    const auto socket = [&] { return must(sockets->run(1)); };
    const std::vector<Lane> lanes = {
        {"loopback", "loopback:bench",
         [&](EventLoop& loop) { return make_loopback_transport(loop, loopback); }, copy,
         "streaming copy"},
        {"shm", "127.0.0.1:0", ucx(""), copy, "streaming copy"},
        {"tcp", "127.0.0.1:0", ucx("tcp"), socket, "raw socket"},
    };
    for (const Lane& lane : lanes) {
      if (only.empty() || only == lane.name) measure(lane, size, runs);
    }
  }
  return 0;
}

}  // namespace
}  // namespace precis::bench

int main(int argc, char** argv) { return precis::bench::run(argc, argv); }

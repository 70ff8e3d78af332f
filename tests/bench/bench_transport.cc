// precis_bench_transport: measures pull and push over each transport against this machine's
// ceiling. Server and client are two threads of one process; each has its own half of a transport
// and its own loop.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <string>
#include <thread>

#include "cachesvc/base/asio_loop.h"
#include "cachesvc/embed/loopback.h"
#include "cachesvc/transport/socket_transport.h"
#include "client/src/transport/socket_client.h"
#include "tests/bench/row.h"
#include "tests/bench/transport_ceilings.h"

namespace precis::bench {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kPoolBytes = 256u << 20;

template <typename Half>
using Make = std::function<std::unique_ptr<Half>(EventLoop&)>;

// A loop with its own thread, and one half of a transport.
template <typename Half>
class Party {
 public:
  explicit Party(const Make<Half>& make) : transport(make(loop)), thread_([this] { loop.run(); }) {}
  ~Party() {
    loop.stop();
    thread_.join();
  }
  // Runs fn on the loop and returns the value that fn passes to its callback.
  template <typename T>
  T wait(const std::function<void(std::function<void(T)>)>& fn) {
    std::promise<T> promise;
    loop.post([&] { fn([&](T value) { promise.set_value(std::move(value)); }); });
    return promise.get_future().get();
  }

  AsioLoop loop;
  std::unique_ptr<Half> transport;

 private:
  std::thread thread_;
};

template <typename T>
T must(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "precis_bench_transport: %s\n", result.status().to_string().c_str());
  std::exit(1);
}

// Two connected parties; the client's memory is exposed to the server.
class Pair {
 public:
  Pair(const std::string& listen_address, const Make<Transport>& make_server,
       const Make<ClientTransport>& make_client)
      : server_(make_server), client_(make_client) {
    using Connected = ClientTransport::Connected;
    std::promise<std::unique_ptr<Connection>> accepted;
    const std::string address = server_.wait<std::string>([&](auto done) {
      done(must(server_.transport->listen(
          listen_address,
          {.greet = [](const Transport::LoginAttempt&) { return Transport::Greeting{}; },
           .accepted = [&](std::unique_ptr<Connection> c,
                           const Hello&) { accepted.set_value(std::move(c)); }})));
    });
    connected_ = client_.wait<std::shared_ptr<Connected>>([&](auto done) {
      client_.transport->connect(address, {}, 5000, [done](Result<Connected> result) {
        done(std::make_shared<Connected>(must(std::move(result))));
      });
    });
    connection_ = accepted.get_future().get();
    server_memory_ = must(server_.transport->register_memory(server_pool_.all()));
    client_memory_ = must(client_.transport->allocate_memory(kPoolBytes));
    std::ranges::fill(client_memory_->bytes(), std::byte{1});  // no page is the shared zero page
    exposure_ = must(connected_->connection->expose(*client_memory_, client_memory_->bytes()));
    // Once the message has arrived, the server knows the exposure, which was sent before it.
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

  // Rate of one transfer in GB/s. The memory is in no cache.
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
  Party<Transport> server_;
  Party<ClientTransport> client_;
  ColdPool server_pool_{kPoolBytes};
  std::unique_ptr<Registration> server_memory_, client_memory_;
  std::unique_ptr<Connection> connection_;
  std::shared_ptr<ClientTransport::Connected> connected_;
  std::unique_ptr<Exposure> exposure_;
  std::size_t offset_ = 0;  // of the next transfer, in the client's memory
};

struct Lane {
  const char* name;
  std::string address;
  Make<Transport> make_server;
  Make<ClientTransport> make_client;
  std::function<double()> ceiling;  // seconds of one run
  const char* ceiling_name;
};

void measure(const Lane& lane, std::size_t size, std::size_t runs) {
  Pair pair(lane.address, lane.make_server, lane.make_client);
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

void run(const std::string& only, std::size_t runs) {
  const auto net = make_loopback_net();
  const std::string folder = std::filesystem::temp_directory_path();
  const auto server = [](std::string unix_path) {
    return [unix_path](EventLoop& loop) {
      SocketOptions options;
      options.listen_unix = unix_path;
      return make_socket_transport(loop, options);
    };
  };
  const auto client = [](EventLoop& loop) { return make_socket_client(loop); };
  const std::string unix_path = folder + "/precis-bench-" + std::to_string(::getpid()) + ".sock";
  for (const std::size_t size : {std::size_t{64} << 20, std::size_t{1} << 20}) {
    CopyCeiling copies(size, 1);
    const auto sockets = must(SocketCeiling::open(size, 1));
    const auto copy = [&] { return copies.run(1); };
    const auto socket = [&] { return must(sockets->run(1)); };
    const std::string port = "127.0.0.1:0";
    const std::vector<Lane> lanes = {
        {"loopback", "loopback:bench",
         [&](EventLoop& loop) { return make_loopback_server(loop, net); },
         [&](EventLoop& loop) { return make_loopback_client(loop, net); }, copy, "streaming copy"},
        {"shm", port, server(unix_path), client, copy, "streaming copy"},
        {"tcp", port, server(""), client, socket, "raw socket"},
    };
    for (const Lane& lane : lanes) {
      if (only.empty() || only == lane.name) measure(lane, size, runs);
    }
  }
}

}  // namespace
}  // namespace precis::bench

int main(int argc, char** argv) {
  CLI::App app("Measures pull and push by each means, beside this machine's ceiling.");
  std::string only;
  std::size_t runs = 9;
  app.add_option("means", only, "Only these means")
      ->check(CLI::IsMember({"loopback", "shm", "tcp"}));
  app.add_option("runs", runs, "The runs of each figure")->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  precis::bench::run(only, runs);
  return 0;
}

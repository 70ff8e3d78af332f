// The RDMA mover between a server's and a client's transport, over UCX's software path.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>

#include "cachesvc/net/control_stream.h"
#include "cachesvc/transport/socket_transport.h"
#include "client/src/transport/socket_client.h"
#include "parties.h"

namespace precis::test {
namespace {

constexpr const char* kToken = "a token";

struct Met {
  explicit Met(const std::string& server_token = kToken) : token(server_token) {
    ours = random_bytes(9u << 20);
    server.on_loop([&] {
      SocketOptions options;
      auto device = RdmaDevice::open_software(&server.loop);
      if (device.ok()) options.rdma = std::move(*device);
      is_there = options.rdma != nullptr;
      transport = make_socket_transport(server.loop, options);
      const auto bound = transport->listen(
          "127.0.0.1:0", {.greet = [this](const Transport::LoginAttempt&) -> Transport::Greeting {
                            return {Status(), "test", token};
                          },
                          .accepted =
                              [this](std::unique_ptr<Connection> made, const Hello&) {
                                made->start({});
                                const std::lock_guard lock(mutex);
                                accepted.push_back(std::move(made));
                                changed.notify_all();
                              }});
      if (bound.ok()) address = *bound;
    });
    REQUIRE_FALSE(address.empty());
    auto known = transport->register_memory(ours);
    REQUIRE(known.ok());
    local = std::move(*known);
    SocketClientOptions options;
    auto device = RdmaDevice::open_software(nullptr);
    if (device.ok()) options.rdma = std::move(*device);
    client.on_loop([&] { client_transport = make_socket_client(client.loop, options); });
  }
  ~Met() {
    client.on_loop([&] { client_transport.reset(); });
    server.on_loop([&] {
      accepted.clear();
      local.reset();
      transport.reset();
    });
  }

  struct Ends {
    Connection* server;
    std::unique_ptr<ClientConnection> client;
  };
  Ends connect() {
    std::promise<Result<ClientTransport::Connected>> promise;
    client.loop.post([&] {
      client_transport->connect(
          address, {"test", "", token}, 30'000,
          [&](Result<ClientTransport::Connected> made) { promise.set_value(std::move(made)); });
    });
    auto made = get(promise.get_future());
    REQUIRE(made.status() == Status());
    REQUIRE(made->welcome.status == Status());
    Ends ends{nullptr, std::move(made->connection)};
    client.on_loop([&] { ends.client->start({}); });
    std::unique_lock lock(mutex);
    const std::size_t count = ++connected;
    REQUIRE(changed.wait_for(lock, kPatience, [&] { return accepted.size() >= count; }));
    ends.server = accepted.back().get();
    return ends;
  }
  std::string description(Connection* connection) {
    return server.on_loop([&] { return connection->description(); });
  }
  bool joined(Connection* connection) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (description(connection).find("rdma") == std::string::npos) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }
  Status pull(Connection* connection, const RemoteRegion& from, std::uint64_t offset,
              MutableBytes into) {
    return server.wait(
        [&](auto done) { connection->pull(from, offset, into, *local, std::move(done)); });
  }
  Status push(Connection* connection, std::vector<Bytes> from, const RemoteRegion& to,
              std::uint64_t offset) {
    return server.wait(
        [&](auto done) { connection->push(from, *local, to, offset, std::move(done)); });
  }
  void drop(Ends& ends) {
    client.on_loop([&] { ends.client.reset(); });
  }

  const std::string token;
  LoopThread server, client;
  bool is_there = false;
  std::vector<std::byte> ours;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Registration> local;
  std::unique_ptr<ClientTransport> client_transport;
  std::string address;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::unique_ptr<Connection>> accepted;
  std::size_t connected = 0;
};

bool skipped(const Met& met) {
  if (!PRECIS_HAS_RDMA) {
    WARN("this build has no UCX");
    return true;
  }
  REQUIRE(met.is_there);
  return false;
}

TEST_CASE("bytes are pulled and pushed by RDMA once both sides have joined") {
  Met met;
  if (skipped(met)) return;
  auto ends = met.connect();
  REQUIRE(met.joined(ends.server));
  CHECK(met.description(ends.server) == "tcp (rdma, stream)");
  auto theirs = random_bytes(9u << 20);
  const auto memory = met.client_transport->register_memory(theirs);
  REQUIRE(memory.ok());
  auto exposed = ends.client->expose(**memory, theirs);
  REQUIRE(exposed.ok());
  const RemoteRegion region = (*exposed)->region();
  CHECK_FALSE(region.key.empty());

  REQUIRE(met.pull(ends.server, region, 0, met.ours) == Status());
  CHECK(met.ours == theirs);
  std::ranges::copy(random_bytes(met.ours.size()), met.ours.begin());
  const Bytes all(met.ours);
  REQUIRE(met.push(ends.server, {all.first(5), all.subspan(5, 7u << 20), all.subspan(100, 1)},
                   region, 3) == Status());
  CHECK(std::equal(all.begin(), all.begin() + 5 + (7 << 20), theirs.begin() + 3));
  CHECK(theirs[8 + (7u << 20)] == all[100]);
  CHECK(met.pull(ends.server, region, region.size_bytes - 1, MutableBytes(met.ours).first(2))
            .code() == StatusCode::kInvalidArgument);
  exposed->reset();
  met.drop(ends);
}

TEST_CASE("a region that was taken back, or is another connection's, is refused") {
  Met met;
  if (skipped(met)) return;
  auto first = met.connect();
  REQUIRE(met.joined(first.server));
  auto second = met.connect();
  REQUIRE(met.joined(second.server));
  auto theirs = random_bytes(4096);
  const auto before = theirs;
  const auto memory = met.client_transport->register_memory(theirs);
  auto exposed = first.client->expose(**memory, theirs);
  const RemoteRegion region = (*exposed)->region();
  const MutableBytes into = MutableBytes(met.ours).first(4096);
  REQUIRE(met.pull(first.server, region, 0, into) == Status());

  // The kernel's copy does not check the key, but the window of the connection does.
  CHECK(met.pull(second.server, region, 0, into).code() == StatusCode::kNotFound);
  CHECK(met.push(second.server, {into}, region, 0).code() == StatusCode::kNotFound);
  RemoteRegion other = region;
  other.id += 1;
  CHECK(met.pull(first.server, other, 0, into).code() == StatusCode::kNotFound);
  other = region;
  other.slot += 1;
  CHECK(met.pull(first.server, other, 0, into).code() == StatusCode::kNotFound);
  CHECK(met.pull(first.server, region, 0, into) == Status());

  exposed->reset();
  std::ranges::copy(random_bytes(met.ours.size()), met.ours.begin());
  CHECK(met.pull(first.server, region, 0, into).code() == StatusCode::kNotFound);
  CHECK(met.push(first.server, {into}, region, 0).code() == StatusCode::kNotFound);
  CHECK(theirs == before);
  met.drop(first);
  met.drop(second);
}

TEST_CASE("many transfers of many regions at once, some taken back, all end as they should") {
  Met met;
  if (skipped(met)) return;
  auto ends = met.connect();
  REQUIRE(met.joined(ends.server));
  constexpr std::size_t kRegions = 64, kBytes = 128u << 10;
  auto theirs = random_bytes(kRegions * kBytes);
  const auto memory = met.client_transport->register_memory(theirs);
  for (int round = 0; round < 5; ++round) {
    std::vector<std::unique_ptr<Exposure>> exposed;
    std::vector<std::future<Status>> ended;
    for (std::size_t i = 0; i < kRegions; ++i) {
      auto made = ends.client->expose(**memory, MutableBytes(theirs).subspan(i * kBytes, kBytes));
      REQUIRE(made.ok());
      exposed.push_back(std::move(*made));
      auto promise = std::make_shared<std::promise<Status>>();
      ended.push_back(promise->get_future());
      met.server.loop.post([&, i, promise, region = exposed.back()->region()] {
        ends.server->pull(region, 0, MutableBytes(met.ours).subspan(i * kBytes, kBytes), *met.local,
                          [promise](const Status& s) { promise->set_value(s); });
      });
    }
    for (std::size_t i = 0; i < kRegions; i += 2) exposed[i].reset();
    for (std::size_t i = 0; i < kRegions; ++i) {
      const Status status = get(std::move(ended[i]));
      if (i % 2 == 1 || status.code() != StatusCode::kNotFound) REQUIRE(status == Status());
      if (status.ok()) {
        CHECK(std::memcmp(met.ours.data() + i * kBytes, theirs.data() + i * kBytes, kBytes) == 0);
      }
    }
  }
  met.drop(ends);
}

TEST_CASE("a connection that closes ends its transfers, and the client's memory is at rest") {
  Met met;
  if (skipped(met)) return;
  auto ends = met.connect();
  REQUIRE(met.joined(ends.server));
  auto theirs = random_bytes(9u << 20);
  const auto memory = met.client_transport->register_memory(theirs);
  auto exposed = ends.client->expose(**memory, theirs);
  const RemoteRegion region = (*exposed)->region();
  std::promise<Status> promise;
  met.server.loop.post([&] {
    ends.server->pull(region, 0, met.ours, *met.local,
                      [&](const Status& status) { promise.set_value(status); });
    ends.server->close();
  });
  CHECK_FALSE(get(promise.get_future()).ok());
  exposed->reset();  // returns, because the server has released the region or closed
  CHECK(met.pull(ends.server, region, 0, met.ours).code() == StatusCode::kUnavailable);
  met.drop(ends);
}

TEST_CASE("a tenant without a token is offered no RDMA, and bytes go by the stream") {
  Met met("");
  if (skipped(met)) return;
  auto ends = met.connect();
  auto theirs = random_bytes(4096);
  const auto memory = met.client_transport->register_memory(theirs);
  auto exposed = ends.client->expose(**memory, theirs);
  CHECK((*exposed)->region().key.empty());
  const MutableBytes into = MutableBytes(met.ours).first(4096);
  CHECK(met.pull(ends.server, (*exposed)->region(), 0, into) == Status());
  CHECK(std::equal(into.begin(), into.end(), theirs.begin()));
  CHECK(met.description(ends.server) == "tcp (stream)");
  exposed->reset();
  met.drop(ends);
}

}  // namespace
}  // namespace precis::test

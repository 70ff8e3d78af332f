// A peer that is killed in the middle of a transfer: its transfers end with an error, its
// connection closes, and no other connection is affected.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <thread>

#include "tests/unit/transport/doomed_region.h"
#include "tests/unit/transport/party.h"

extern char** environ;

namespace precis::test {
namespace {

class Child {
 public:
  Child(const std::string& address, const std::string& whose_memory, Wire wire) {
    std::string program = PRECIS_DOOMED_PEER, a = address, w = whose_memory;
    std::string ca = wire == Wire::kTls ? test_certificate().ca : "";
    char* argv[] = {program.data(), a.data(), w.data(), ca.data(), nullptr};
    REQUIRE(posix_spawn(&pid_, program.c_str(), nullptr, nullptr, argv, environ) == 0);
  }
  ~Child() { kill_now(); }
  void kill_now() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    int status;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
};

// The byte's current value while a transfer writes it. ThreadSanitizer must not report this race.
[[gnu::no_sanitize("thread"), gnu::noinline]] std::byte glimpse(const std::byte& byte) {
  return *static_cast<const volatile std::byte*>(&byte);
}

TEST_CASE("peers that go as they connect, at any moment, disturb nobody", "[transport][death]") {
  const Wire wire = GENERATE(Wire::kUnix, Wire::kTcp, Wire::kTls);
  CAPTURE(wire_name(wire));
  Server server(wire);
  std::map<std::uint64_t, ServerEnd> guests;
  std::uint64_t came = 0;
  const std::string address =
      listen(server, wire, open_door([&](std::unique_ptr<Connection> connection) {
               guests.emplace(came++, ServerEnd(server.thread, std::move(connection)));
             }));
  std::vector<std::thread> crowd;  // so that both sides often wait for a core
  for (unsigned seed = 0; seed < 6; ++seed) {
    crowd.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      for (int round = 0; round < 20; ++round) {
        std::promise<void> answered;
        Caller hasty(wire);
        hasty.thread.on_loop([&] {
          hasty.transport->connect(address, {}, 30'000, [&](Result<ClientTransport::Connected>) {
            answered.set_value();
          });
        });
        // The client goes before the end of the greeting, or right after it.
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
        if (round % 2 == 0) get(answered.get_future());
      }
    });
  }
  for (std::thread& one : crowd) one.join();
  Caller patient(wire);
  auto connected = connect(patient, address);
  REQUIRE(connected.ok());
  const CallerEnd at_patient(patient.thread, std::move(connected.value().connection));
  CHECK(server.thread.on_loop([&] { return guests.size(); }) >= 61);
  guests.clear();
}

TEST_CASE("a peer killed in mid-transfer ends its transfers and disturbs nobody",
          "[transport][death]") {
  const Wire wire = GENERATE(Wire::kUnix, Wire::kTcp, Wire::kTls);
  const int round = GENERATE(range(0, 3));
  const std::string whose = GENERATE("own", "transports");
  if (whose == "transports" && wire != Wire::kUnix) return;  // matters only for kUnix
  CAPTURE(wire_name(wire), round, whose);
  Pair pair(wire);  // the other clients, on the same server
  std::vector<std::byte> bystanding(1u << 20), memory(kDoomedBytes), pushed(kDoomedBytes);
  auto registration = pair.server.register_memory(memory);
  auto push_registration = pair.server.register_memory(pushed);
  auto client_registration = pair.client.register_memory(bystanding);
  auto exposure = pair.at_client.expose(*client_registration);

  auto accepted = pair.accept_next();
  Child child(pair.address, whose, wire);
  ServerEnd doomed(pair.server.thread, get(std::move(accepted)));
  doomed.start();
  const RemoteRegion region = decode_doomed_region(doomed.inbox().wait_messages(1)[0]);

  std::vector<std::future<Status>> under_way;
  for (int i = 0; i < 4; ++i) {
    under_way.push_back(doomed.start_pull(region, 0, memory, *registration));
    under_way.push_back(doomed.start_push({pushed}, *push_registration, region, 0));
  }
  // Kills the peer at once, after some bytes of the first pull, or after the first pull.
  if (round == 1) {
    while (glimpse(memory[8u << 20]) != std::byte{0x42}) std::this_thread::yield();
  } else if (round == 2) {
    CHECK(get(std::move(under_way.front())).ok());
    under_way.erase(under_way.begin());
  }
  child.kill_now();

  std::size_t failed = 0;
  for (auto& transfer : under_way) {
    const Status status = get(std::move(transfer));
    CHECK((status.ok() || status.code() == StatusCode::kUnavailable));
    failed += status.ok() ? 0 : 1;
  }
  CHECK(failed > 0);
  CHECK(doomed.inbox().wait_closed().code() == StatusCode::kUnavailable);
  CHECK(pair.at_server.pull(exposure->region(), 0, MutableBytes(memory).first(1u << 20),
                            *registration) == Status());
  CHECK(doomed.inbox().closed_count() == 1);
  CHECK(pair.at_server.inbox().closed_count() == 0);
}

TEST_CASE("a killed server closes its clients' connections", "[transport][death]") {
  // The roles of the case above are exchanged. The end of the server's transport stands for a kill,
  // because a client waits only for the end of the socket. An Exposure outlives the server here.
  const Wire wire = GENERATE(Wire::kUnix, Wire::kTcp, Wire::kTls);
  CAPTURE(wire_name(wire));
  auto pair = std::make_unique<Pair>(wire);
  std::vector<std::byte> memory(1000);
  auto registration = pair->client.register_memory(memory);
  auto exposure = pair->at_client.expose(*registration);
  pair->server.thread.on_loop([&] { pair->server.transport.reset(); });
  CHECK(pair->at_client.inbox().wait_closed().code() == StatusCode::kUnavailable);
  exposure.reset();
  CHECK(pair->at_client.inbox().closed_count() == 1);
}

}  // namespace
}  // namespace precis::test

// The device over UCX's software path, which is the kernel's copy between processes. This path
// checks no keys and knows no connections, so these tests do not show that the hardware refuses a
// key that is stale or belongs to another connection. They do cover the checks of our own code.
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <string>

#include "cachesvc/net/rdma/rdma.h"
#include "parties.h"

namespace precis::test {
namespace {

struct Sides {
  Sides() {
    server.on_loop([&] {
      auto opened = RdmaDevice::open_software(&server.loop);
      if (opened.ok()) server_device = std::move(*opened);
    });
    auto opened = RdmaDevice::open_software(nullptr);
    if (opened.ok()) client_device = std::move(*opened);
    is_there = server_device && client_device;
  }
  ~Sides() {
    server.on_loop([&] {
      peer.reset();
      local.reset();
      server_device.reset();
    });
  }
  // Connects the server's end to `address` and registers its memory.
  Status connect(const RdmaAddress& address, MutableBytes memory) {
    return server.on_loop([&]() -> Status {
      PRECIS_ASSIGN(peer, server_device->make_peer());
      PRECIS_ASSIGN(local, server_device->register_memory(memory, MemorySpace::kHost));
      return peer->connect(address);
    });
  }
  Status pull(MutableBytes into, std::uint64_t address, const std::string& key) {
    return server.wait([&](auto done) {
      peer->get(into, *local, {address, key}, std::move(done));
    });
  }
  Status push(Bytes from, std::uint64_t address, const std::string& key) {
    return server.wait([&](auto done) {
      peer->put(from, *local, {address, key}, std::move(done));
    });
  }

  LoopThread server;
  bool is_there = false;
  std::unique_ptr<RdmaDevice> server_device, client_device;
  std::shared_ptr<RdmaPeer> peer;
  std::unique_ptr<RdmaMemory> local;
};

std::uint64_t address_of(const std::vector<std::byte>& bytes) {
  return reinterpret_cast<std::uintptr_t>(bytes.data());
}

bool skipped(const Sides& sides) {
  if (!PRECIS_HAS_RDMA) {
    WARN("this build has no UCX");
    return true;
  }
  REQUIRE(sides.is_there);
  return false;
}

TEST_CASE("registered memory is read and written by its key") {
  Sides sides;
  if (skipped(sides)) return;
  CHECK(sides.server_device->reaches(MemorySpace::kHost));
  auto theirs = random_bytes(5u << 20);
  std::vector<std::byte> ours(theirs.size());
  const auto known = sides.client_device->register_memory(theirs, MemorySpace::kHost);
  REQUIRE(known.ok());
  const auto their_peer = sides.client_device->make_peer();
  REQUIRE(their_peer.ok());
  REQUIRE(sides.connect((*their_peer)->address(), ours) == Status());

  REQUIRE(sides.pull(ours, address_of(theirs), (*known)->key()) == Status());
  CHECK(ours == theirs);
  std::ranges::copy(random_bytes(ours.size()), ours.begin());
  REQUIRE(sides.push(Bytes(ours).first(3), address_of(theirs) + 1, (*known)->key()) == Status());
  CHECK(std::equal(theirs.begin() + 1, theirs.begin() + 4, ours.begin()));
}

TEST_CASE("what is under way comes in order, however much there is of it") {
  Sides sides;
  if (skipped(sides)) return;
  std::vector<std::byte> theirs(8), ours = random_bytes(2000 * 8), back(8);
  const auto known = sides.client_device->register_memory(theirs, MemorySpace::kHost);
  const auto their_peer = sides.client_device->make_peer();
  REQUIRE(sides.connect((*their_peer)->address(), ours) == Status());
  std::size_t ended = 0;
  const Status last = sides.server.wait([&](auto done) {
    for (std::size_t i = 0; i < 2000; ++i) {
      sides.peer->put(Bytes(ours).subspan(8 * i, 8), *sides.local,
                      {address_of(theirs), (*known)->key()}, [&ended](const Status& status) {
                        if (status.ok()) ++ended;
                      });
    }
    sides.peer->get(back, *sides.local, {address_of(theirs), (*known)->key()}, done);
  });
  CHECK(last == Status());
  CHECK(ended == 2000);
  CHECK(std::equal(back.begin(), back.end(), ours.end() - 8));
}

TEST_CASE("a key of another form, and memory that is not there, are errors") {
  Sides sides;
  if (skipped(sides)) return;
  auto theirs = random_bytes(64);
  std::vector<std::byte> ours(64);
  const auto known = sides.client_device->register_memory(theirs, MemorySpace::kHost);
  const auto their_peer = sides.client_device->make_peer();
  REQUIRE(sides.connect((*their_peer)->address(), ours) == Status());
  const std::string key = (*known)->key();
  for (const std::string& wrong : {std::string(), key + "x", std::string(key.size(), 'Q')}) {
    CHECK(sides.pull(ours, address_of(theirs), wrong).code() == StatusCode::kInvalidArgument);
  }
  CHECK_FALSE(sides.pull(ours, 0x1000, key).ok());
  CHECK(sides.pull(ours, address_of(theirs), key) == Status());
  CHECK(ours == theirs);
}

TEST_CASE("an address that is cut or changed ends no process") {
  Sides sides;
  if (skipped(sides)) return;
  const auto their_peer = sides.client_device->make_peer();
  const RdmaAddress good = (*their_peer)->address();
  std::mt19937_64 random(11);
  sides.server.on_loop([&] {
    for (int i = 0; i < 5000; ++i) {
      RdmaAddress bad = good;
      std::string& part = random() % 2 == 0 ? bad.device : bad.endpoint;
      if (random() % 3 == 0) part.resize(random() % (part.size() + 2));
      if (!part.empty()) part[random() % part.size()] = static_cast<char>(random());
      const auto peer = sides.server_device->make_peer();
      if (peer.ok()) static_cast<void>((*peer)->connect(bad));
    }
  });
  std::vector<std::byte> ours(8);
  CHECK(sides.connect(good, ours) == Status());
}

TEST_CASE("a closed connection ends what is under way and takes nothing more") {
  Sides sides;
  if (skipped(sides)) return;
  auto theirs = random_bytes(4u << 20);
  std::vector<std::byte> ours(theirs.size());
  const auto known = sides.client_device->register_memory(theirs, MemorySpace::kHost);
  const auto their_peer = sides.client_device->make_peer();
  REQUIRE(sides.connect((*their_peer)->address(), ours) == Status());
  const std::string key = (*known)->key();
  std::size_t ended = 0, begun = 16;
  const Status last = sides.server.wait([&](auto done) {
    for (std::size_t i = 0; i < begun; ++i) {
      sides.peer->get(ours, *sides.local, {address_of(theirs), key}, [&, done](const Status&) {
        if (++ended == begun) done(Status());
      });
    }
    sides.peer->close();
  });
  CHECK(last == Status());
  CHECK(ended == begun);
  CHECK_FALSE(sides.pull(ours, address_of(theirs), key).ok());
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

TEST_CASE("another process's memory is reached until it dies, and its death is an error") {
  Sides sides;
  if (skipped(sides)) return;
  FILE* const out = ::popen("exec " PRECIS_DOOMED_PEER " & echo $!; wait", "r");
  REQUIRE(out != nullptr);
  const auto line = [&] {
    std::array<char, 4096> text{};
    REQUIRE(std::fgets(text.data(), text.size(), out) != nullptr);
    std::string read = text.data();
    while (!read.empty() && read.back() == '\n') read.pop_back();
    return read;
  };
  const pid_t pid = std::stoi(line());
  const std::string device = from_hex(line()), endpoint = from_hex(line()), key = from_hex(line());
  const std::uint64_t address = std::stoull(line());
  std::vector<std::byte> ours(1u << 20);
  REQUIRE(sides.connect({device, endpoint}, ours) == Status());
  CHECK(sides.pull(ours, address, key) == Status());
  CHECK(ours == std::vector<std::byte>(ours.size(), std::byte{0x5a}));
  ::kill(pid, SIGKILL);
  ::pclose(out);  // waits until the peer has ended
  CHECK_FALSE(sides.pull(ours, address, key).ok());
}

}  // namespace
}  // namespace precis::test

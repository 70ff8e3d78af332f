// The contract of transport.h over every wire: bulk bytes, their bounds, and the end of an
// exposure.
#include <sys/mman.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <future>
#include <memory>

#include "cachesvc/net/pages.h"
#include "tests/unit/transport/party.h"

namespace precis::test {
namespace {

// The owner of the memory that the client exposes.
enum class Owner { kClient, kTransport };

// Registered memory on both sides of a pair; the client's is exposed.
struct Memory {
  Memory(Pair& p, std::size_t size, std::uint64_t seed, Owner owner = Owner::kClient)
      : pair(p), random(seed), at_server(random_bytes(random, size)) {
    server = p.server.register_memory(at_server);
    if (owner == Owner::kTransport) {
      client = p.client.transport->allocate_memory(size).value();
      at_client = client->bytes().first(size);
      const auto bytes = random_bytes(random, size);
      std::copy(bytes.begin(), bytes.end(), at_client.begin());
    } else {
      clients_own = random_bytes(random, size);
      at_client = clients_own;
      client = p.client.register_memory(at_client);
    }
    exposure = p.at_client.expose(*client);
    // A server learns of a region by message, so it may use the region once a message has arrived.
    const std::size_t before = p.at_server.inbox().message_count();
    p.at_client.send(bytes_of("here is a region"));
    p.at_server.inbox().wait_messages(before + 1);
    settle();
  }
  ~Memory() { settle(); }
  // Orders this thread's accesses to the memory with those of the client's thread. They are ordered
  // anyway, but through the kernel, which the sanitizers do not see.
  void settle() {
    pair.client.thread.on_loop([] {});
  }
  // The client's memory, after a message that was sent after all completed pushes.
  std::vector<std::byte> client_bytes() {
    const std::size_t before = pair.at_client.inbox().message_count();
    pair.at_server.send(bytes_of("look"));
    pair.at_client.inbox().wait_messages(before + 1);
    settle();
    return {at_client.begin(), at_client.end()};
  }
  MutableBytes local(std::size_t offset, std::size_t size) {
    return MutableBytes(at_server).subspan(offset, size);
  }

  Pair& pair;
  std::mt19937_64 random;
  std::vector<std::byte> at_server, clients_own;
  MutableBytes at_client;
  std::unique_ptr<Registration> server, client;
  std::unique_ptr<Exposure> exposure;
};

TEST_CASE("a pull brings exactly the asked bytes", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  const std::size_t size = GENERATE(0u, 1u, 63u, 4097u, (1u << 20) + 3u, (9u << 20) + 5u);
  const Owner owner = GENERATE(Owner::kClient, Owner::kTransport);
  CAPTURE(wire_name(wire), size, owner);
  Pair pair(wire);
  Memory memory(pair, size + 2000, 11, owner);
  auto expected = memory.at_server;
  std::copy_n(memory.at_client.begin() + 1001, size, expected.begin() + 777);
  REQUIRE(pair.at_server.pull(memory.exposure->region(), 1001, memory.local(777, size),
                              *memory.server) == Status());
  CHECK((memory.at_server == expected));
}

TEST_CASE("a push gathers its ranges into the region", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  const std::size_t num_ranges = GENERATE(0u, 1u, 3u, 200u, 3000u);
  const std::size_t range_size_max = GENERATE(1u, 9000u, 70'000u, 3u << 20);
  if (num_ranges * range_size_max > (64u << 20)) return;
  const Owner owner = GENERATE(Owner::kClient, Owner::kTransport);
  CAPTURE(wire_name(wire), num_ranges, range_size_max, owner);
  Pair pair(wire);
  Memory memory(pair, num_ranges * range_size_max + 100, 12, owner);
  auto expected = memory.client_bytes();
  std::vector<Bytes> ranges;
  std::size_t to = 13;
  for (std::size_t i = 0; i < num_ranges; ++i) {
    // The ranges have sizes of every alignment, some are empty, and they lie all over the memory.
    const std::size_t size = memory.random() % (range_size_max + 1);
    const std::size_t from = memory.random() % (memory.at_server.size() - size);
    ranges.push_back(memory.local(from, size));
    std::copy_n(memory.at_server.begin() + static_cast<std::ptrdiff_t>(from), size,
                expected.begin() + static_cast<std::ptrdiff_t>(to));
    to += size;
  }
  memory.settle();
  REQUIRE(pair.at_server.push(ranges, *memory.server, memory.exposure->region(), 13) == Status());
  CHECK((memory.client_bytes() == expected));
}

TEST_CASE("many transfers at once do not mix", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  CAPTURE(wire_name(wire));
  constexpr std::size_t kPiece = 50'000;
  constexpr std::size_t kPieces = 200;
  Pair pair(wire);
  Memory pulled(pair, kPiece * kPieces, 13), pushed(pair, kPiece * kPieces, 14);
  std::vector<std::future<Status>> under_way;
  for (std::size_t i = 0; i < kPieces; ++i) {
    const std::size_t size = pulled.random() % kPiece;
    under_way.push_back(pair.at_server.start_pull(pulled.exposure->region(), i * kPiece,
                                                  pulled.local(i * kPiece, size), *pulled.server));
    std::copy_n(pulled.at_client.begin() + static_cast<std::ptrdiff_t>(i * kPiece + size),
                kPiece - size,
                pulled.at_server.begin() + static_cast<std::ptrdiff_t>(i * kPiece + size));
    under_way.push_back(pair.at_server.start_push(
        {pushed.local(i * kPiece, kPiece)}, *pushed.server, pushed.exposure->region(), i * kPiece));
  }
  for (auto& status : under_way) CHECK(get(std::move(status)) == Status());
  CHECK((pulled.at_server == pulled.client_bytes()));
  CHECK((pushed.at_server == pushed.client_bytes()));
}

TEST_CASE("a message sent after a push is seen after its bytes", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  CAPTURE(wire_name(wire));
  Pair pair(wire);
  Memory memory(pair, 3u << 20, 15);
  for (std::size_t round = 1; round <= 10; ++round) {
    std::fill(memory.at_server.begin(), memory.at_server.end(), static_cast<std::byte>(round));
    memory.settle();
    REQUIRE(pair.at_server.push({memory.local(0, memory.at_server.size())}, *memory.server,
                                memory.exposure->region(), 0) == Status());
    CHECK((memory.client_bytes() == memory.at_server));
  }
}

TEST_CASE("bytes outside the region are refused and the connection goes on", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  CAPTURE(wire_name(wire));
  Pair pair(wire);
  Memory memory(pair, 1000, 16);
  const auto before = memory.client_bytes();
  const RemoteRegion region = memory.exposure->region();
  const std::uint64_t offset =
      GENERATE(1u, 1000u, 1001u, ~std::uint64_t{0}, ~std::uint64_t{0} - 998);
  CHECK(pair.at_server.pull(region, offset, memory.local(0, 1000), *memory.server).code() ==
        StatusCode::kInvalidArgument);
  CHECK(pair.at_server.push({memory.local(0, 1000)}, *memory.server, region, offset).code() ==
        StatusCode::kInvalidArgument);
  CHECK((memory.client_bytes() == before));
  CHECK(pair.at_server.pull(region, 0, memory.local(0, 1000), *memory.server) == Status());
}

TEST_CASE("local bytes outside the registration are refused", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  CAPTURE(wire_name(wire));
  Pair pair(wire);
  Memory memory(pair, 1000, 17);
  std::vector<std::byte> elsewhere(1000);
  const RemoteRegion region = memory.exposure->region();
  CHECK(pair.at_server.pull(region, 0, elsewhere, *memory.server).code() ==
        StatusCode::kInvalidArgument);
  CHECK(pair.at_server.push({memory.local(0, 10), elsewhere}, *memory.server, region, 0).code() ==
        StatusCode::kInvalidArgument);
}

TEST_CASE("memory beside the registered memory is moved by what needs no registration",
          "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  CAPTURE(wire_name(wire));
  Pair pair(wire);
  Memory memory(pair, 1000, 21);
  std::vector<std::byte> beside(1000);
  const RemoteRegion region = memory.exposure->region();
  const Bytes both[] = {memory.local(0, 10), beside};
  const Registration& any = registration_of(both, *memory.server);
  REQUIRE(&any != memory.server.get());
  CHECK(&registration_of(std::span(both).first(1), *memory.server) == memory.server.get());
  const auto sent = memory.client_bytes();
  CHECK(pair.at_server.pull(region, 0, beside, any) == Status());
  CHECK((beside == sent));
  std::ranges::reverse(beside);
  CHECK(pair.at_server.push({memory.local(0, 0), beside}, any, region, 0) == Status());
  CHECK((memory.client_bytes() == beside));
}

TEST_CASE("a region that lies about itself fails its transfers and nothing else", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  CAPTURE(wire_name(wire));
  Pair pair(wire);
  Memory memory(pair, 1000, 18);
  std::vector<RemoteRegion> lies(3, memory.exposure->region());
  lies[0].id += 1;
  lies[1].size_bytes = std::uint64_t{1} << 60;
  lies[2].id = 0;
  for (const RemoteRegion& lie : lies) {
    CAPTURE(lie.id, lie.size_bytes);
    const std::uint64_t offset = lie.size_bytes > 1000 ? 2000 : 0;
    CHECK_FALSE(pair.at_server.pull(lie, offset, memory.local(0, 1000), *memory.server).ok());
    // The client discards pushes to regions that it does not have.
    const auto before = memory.client_bytes();
    static_cast<void>(pair.at_server.push({memory.local(0, 1000)}, *memory.server, lie, offset));
    CHECK((memory.client_bytes() == before));
  }
  CHECK(pair.at_server.pull(memory.exposure->region(), 0, memory.local(0, 1000), *memory.server) ==
        Status());
}

TEST_CASE("nothing reaches memory that was taken back", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  const Owner owner = GENERATE(Owner::kClient, Owner::kTransport);
  if (owner == Owner::kTransport && wire != Wire::kUnix) return;  // matters only for kUnix
  CAPTURE(wire_name(wire), owner);
  Pair pair(wire);
  for (int round = 0; round < 20; ++round) {
    Memory memory(pair, 8u << 20, 20, owner);
    const RemoteRegion region = memory.exposure->region();
    constexpr std::size_t kHalf = 4u << 20;
    auto push = pair.at_server.start_push({memory.local(0, kHalf)}, *memory.server, region, 0);
    auto pull =
        pair.at_server.start_pull(region, kHalf, memory.local(kHalf, kHalf), *memory.server);
    // Ends the exposure on the client's loop or on this thread, in the middle of the transfers.
    if (round % 2 == 0) {
      pair.client.thread.on_loop([&] { memory.exposure.reset(); });
    } else {
      memory.exposure.reset();
    }
    std::fill(memory.at_client.begin(), memory.at_client.end(), std::byte{0x11});
    const Status pushed = get(std::move(push)), pulled = get(std::move(pull));
    CHECK((pushed.ok() || pushed.code() == StatusCode::kNotFound));
    CHECK((pulled.ok() || pulled.code() == StatusCode::kNotFound));
    CHECK(std::all_of(memory.at_client.begin(), memory.at_client.end(),
                      [](std::byte b) { return b == std::byte{0x11}; }));
    CHECK(pair.at_server.pull(region, 0, memory.local(0, 10), *memory.server).code() ==
          StatusCode::kNotFound);
  }
  CHECK(pair.at_server.inbox().closed_count() == 0);
}

std::shared_ptr<const PeerMemory> read_in_place(ServerEnd& server, const RemoteRegion& region) {
  std::shared_ptr<const PeerMemory> memory;
  server.with_connection(
      [&](Connection& connection) { memory = connection.read_in_place(region); });
  return memory;
}

TEST_CASE("a part of what the transport allocated is exposed alone, and read where it is",
          "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  CAPTURE(wire_name(wire));
  Pair pair(wire);
  Memory memory(pair, 3u << 20, 17, Owner::kTransport);
  const MutableBytes part = memory.at_client.subspan(4096, 1u << 20);
  auto exposure = pair.at_client.expose(*memory.client, part);
  const RemoteRegion region = exposure->region();
  const std::size_t before = pair.at_server.inbox().message_count();
  pair.at_client.send(bytes_of("here is another"));
  pair.at_server.inbox().wait_messages(before + 1);

  REQUIRE(pair.at_server.pull(region, 100, memory.local(0, part.size() - 100), *memory.server) ==
          Status());
  CHECK(std::ranges::equal(memory.local(0, part.size() - 100), part.subspan(100)));
  CHECK(pair.at_server.pull(region, 1, memory.local(0, part.size()), *memory.server).code() ==
        StatusCode::kInvalidArgument);

  auto there = read_in_place(pair.at_server, region);
  const bool mapped = wire == Wire::kLoopback || wire == Wire::kUnix;
  REQUIRE((there != nullptr) == mapped);
  if (!mapped) return;
  CHECK(std::ranges::equal(there->bytes(), part));

  auto taken_back = std::async(std::launch::async, [&] { exposure.reset(); });
  CHECK(taken_back.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout);
  CHECK(std::ranges::equal(there->bytes(), part));
  pair.server.thread.on_loop([&] { there.reset(); });
  get(std::move(taken_back));
  CHECK(read_in_place(pair.at_server, region) == nullptr);
}

TEST_CASE("memory that is the client's own is not read in place within a host", "[transport]") {
  Pair pair(Wire::kUnix);
  Memory memory(pair, 1u << 20, 18);
  CHECK(read_in_place(pair.at_server, memory.exposure->region()) == nullptr);
}

TEST_CASE("a region that points past its shared buffer, or to another, reads nothing of it",
          "[transport]") {
  Pair pair(Wire::kUnix);
  Memory memory(pair, 1u << 20, 19, Owner::kTransport);
  const RemoteRegion region = memory.exposure->region();
  REQUIRE(region.buffer != 0);
  REQUIRE(read_in_place(pair.at_server, region) != nullptr);
  const auto lie = [&](auto change) {
    RemoteRegion lied = region;
    change(lied);
    return read_in_place(pair.at_server, lied) != nullptr;
  };
  for (const std::uint64_t offset :
       {memory.client->bytes().size() - region.size_bytes + 1, memory.client->bytes().size(),
        std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    CAPTURE(offset);
    CHECK_FALSE(lie([&](RemoteRegion& r) { r.buffer_offset = offset; }));
  }
  CHECK_FALSE(lie([](RemoteRegion& r) { r.size_bytes = ~std::uint64_t{0}; }));
  CHECK_FALSE(lie([](RemoteRegion& r) { r.buffer += 1; }));
  CHECK_FALSE(lie([](RemoteRegion& r) { r.slot += 1; }));
  CHECK_FALSE(lie([](RemoteRegion& r) { r.slot = ~std::uint32_t{0}; }));
  CHECK_FALSE(lie([](RemoteRegion& r) { r.id += 1; }));
  CHECK_FALSE(lie([](RemoteRegion& r) { r.space = MemorySpace::kDevice; }));
  // Another connection of the same process shares none of the memory.
  auto other = pair.connect_again();
  CHECK(read_in_place(other.first, region) == nullptr);
}

TEST_CASE("what is read in place stays when the client is gone", "[transport]") {
  Pair pair(Wire::kUnix);
  auto memory = pair.client.transport->allocate_memory(1u << 20).value();
  std::ranges::fill(memory->bytes(), std::byte{7});
  auto exposure = pair.at_client.expose(*memory);
  auto there = read_in_place(pair.at_server, exposure->region());
  REQUIRE(there != nullptr);
  // Drops the server's end of the link, so that the client no longer waits for the server.
  pair.at_server.drop();
  auto gone = std::async(std::launch::async, [&] {
    exposure.reset();
    memory.reset();
  });
  CHECK(std::ranges::all_of(there->bytes(), [](std::byte b) { return b == std::byte{7}; }));
  pair.server.thread.on_loop([&] { there.reset(); });
  get(std::move(gone));
}

// The number of mappings of shared pages in this process, which contains both peers.
std::size_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:precis") != std::string::npos) ++count;
  }
  return count;
}

// Waits for this number of mappings, because the server maps and unmaps when messages arrive.
// Returns whether it is reached.
bool becomes(std::size_t mappings) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (shared_mappings() != mappings && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
  return shared_mappings() == mappings;
}

TEST_CASE("a server maps a shared buffer once, until the peer drops it or the link ends",
          "[transport]") {
  Pair pair(Wire::kUnix);
  auto first = pair.client.transport->allocate_memory(1u << 20).value();
  const auto exposed = pair.at_client.expose(*first);  // now the pair's windows are mapped
  const std::size_t alone = shared_mappings();
  for (const bool dropped : {true, false}) {
    auto ends = pair.connect_again();
    auto memory = pair.client.transport->allocate_memory(5u << 20).value();
    std::vector<std::byte> local(5u << 20);
    const auto registration = pair.server.register_memory(local);
    auto exposure = ends.second.expose(*memory);  // now both windows are mapped
    const std::size_t mapped = shared_mappings();
    for (int round = 0; round < 3; ++round) {
      exposure = ends.second.expose(*memory);
      REQUIRE(ends.first.push({local}, *registration, exposure->region(), 0) == Status());
      CHECK(shared_mappings() == mapped);
    }
    exposure.reset();
    if (dropped) {
      memory.reset();
    } else {
      ends.second.drop();
    }
    // A message tells the server of the dropped memory or connection, and the server unmaps on
    // another thread. If the memory was dropped, both mappings of the buffer end. Otherwise both
    // windows and the server's mapping of the buffer end.
    const std::size_t left = dropped ? mapped - 2 : alone + 1;
    CHECK(becomes(left));
  }
}

TEST_CASE("a server unmaps dropped memory that it mapped after the client had stopped waiting",
          "[transport]") {
  Pair pair(Wire::kUnix);
  const auto first = pair.client.transport->allocate_memory(1u << 20).value();
  const auto exposed = pair.at_client.expose(*first);  // now both windows are mapped
  const std::size_t before = shared_mappings();
  auto memory = pair.client.transport->allocate_memory(1u << 20).value();
  // The loop's thread does not wait for the answer.
  auto exposure = pair.client.thread.on_loop([&] { return pair.at_client.expose(*memory); });
  CHECK(exposure->region().buffer == 0);
  REQUIRE(becomes(before + 2));
  exposure.reset();
  memory.reset();
  CHECK(becomes(before));
}

TEST_CASE("memory whose buffer the server does not know goes by the stream", "[transport]") {
  Pair pair(Wire::kUnix);
  Memory memory(pair, 3u << 20, 22, Owner::kTransport);
  RemoteRegion unknown = memory.exposure->region();
  unknown.buffer += 1;
  CHECK(pair.at_server.pull(unknown, 0, memory.local(0, 3u << 20), *memory.server) == Status());
  CHECK((memory.at_server == memory.client_bytes()));
}

TEST_CASE("completions never run inside the call that was given them", "[transport]") {
  const Wire wire = GENERATE(from_range(std::begin(kWires), std::end(kWires)));
  CAPTURE(wire_name(wire));
  Pair pair(wire);
  Memory memory(pair, 1000, 21);
  auto connection = pair.connect_again();
  ServerEnd& at_server = connection.first;
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{5000}}) {  // good, refused
    std::promise<bool> inside;
    at_server.with_connection([&](Connection& c) {
      auto calling = std::make_shared<bool>(true);
      c.pull(memory.exposure->region(), offset, memory.local(0, 0), *memory.server,
             [calling, &inside](const Status&) { inside.set_value(*calling); });
      *calling = false;
    });
    CHECK_FALSE(get(inside.get_future()));
  }
}

}  // namespace
}  // namespace precis::test

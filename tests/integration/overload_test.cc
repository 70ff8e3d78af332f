// Clients ask for more memory, requests or patience than the service has.
#include <catch2/catch.hpp>
#include <fstream>
#include <future>
#include <thread>

#include "precis/served_layout.h"
#include "tests/integration/options.h"
#include "tests/integration/proc.h"
#include "tests/integration/random_kv.h"
#include "tests/integration/raw_peer.h"
#include "tests/integration/service_process.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kSeed = 20251124;

// precisd with the least possible memory, and further settings.
ServiceProcess small_service(const TempDir& dir, const std::string& settings,
                             std::vector<std::string> flags = {}) {
  const std::string file = dir.path("precisd.toml");
  std::ofstream(file) << settings;
  flags.insert(flags.end(), {"--memory", "16MiB", "--config", file});
  return ServiceProcess(dir, flags);
}

TEST_CASE("many clients that put and read more than the memory holds all get there, within it",
          "[integration]") {
  constexpr std::uint32_t kClients = 12, kRounds = 3, kTokens = 2000;
  constexpr std::uint64_t kMemory = 16u << 20;
  const TempDir dir;
  const ServiceProcess service = small_service(dir, "");
  const auto owner = service.connect(patient());
  const Model model = owner->register_model(tiny_model()).value();
  const auto work = [&](std::uint32_t seed) -> Status {
    std::mt19937 random(seed);
    const auto client = service.connect(patient());
    for (std::uint32_t i = 0; i < kRounds; ++i) {
      const auto tokens = random_tokens(random, kTokens);
      const Kv kv = random_kv(random, model.spec, 0, kTokens);
      PRECIS_TRY(put_all(*client, model, tokens, kv, keep_most()).status());
      PRECIS_ASSIGN(const PrefixCopy copy, read_all(*client, model, tokens));
      if (!rows_are_of(copy, {&kv})) return Status::corruption("rows are not those pushed");
    }
    return {};
  };
  std::vector<std::future<Status>> workers;
  for (std::uint32_t i = 0; i < kClients; ++i) {
    workers.push_back(std::async(std::launch::async, work, kSeed + i));
  }
  for (auto& worker : workers) {
    const Status status = worker.get();
    INFO(status.to_string());
    CHECK(status.ok());
  }
  CHECK(stat(*owner, "precis_segments") == kClients * kRounds);
  CHECK(stat(*owner, "precis_staged_bytes") == 0);
  CHECK(stat(*owner, "precis_waiting_requests") == 0);
  CHECK(peak_resident_bytes(service.pid()) < kMemory + kBesideMemoryBytes);
}

TEST_CASE("readers of cold chains share memory for a few layers, and none waits in vain",
          "[integration]") {
  constexpr std::uint32_t kPaths = 8, kReaders = 8, kRounds = 4, kTurns = 3, kTurnTokens = 256;
  const TempDir dir;
  const ServiceProcess service = small_service(dir, "memory_wait_ms = 60000\n");
  const auto owner = service.connect(patient());
  ModelSpec spec = tiny_model();
  spec.num_layers = 8;
  spec.head_dim = 128;
  const Model model = owner->register_model(spec).value();
  std::mt19937 random(kSeed);
  std::vector<std::vector<TokenId>> paths;
  std::vector<std::vector<Kv>> turns(kPaths);
  for (std::uint32_t path = 0; path < kPaths; ++path) {
    paths.push_back(random_tokens(random, kTurns * kTurnTokens));
    for (std::uint32_t turn = 0; turn < kTurns; ++turn) {
      const std::uint32_t begin = turn * kTurnTokens;
      turns[path].push_back(random_kv(random, spec, begin, kTurnTokens));
      const std::vector<TokenId> tokens(paths[path].begin(),
                                        paths[path].begin() + begin + kTurnTokens);
      REQUIRE(put_all(*owner, model, tokens, turns[path].back(), keep_most()).ok());
    }
  }
  // There are no retries, so that a reader fails if it waits in vain for memory that another one
  // holds.
  const auto read = [&](std::uint32_t reader) -> Status {
    ConnectOptions options = only_once();
    options.timeout_ms = patient().timeout_ms;
    const auto client = service.connect(options);
    for (std::uint32_t i = 0; i < kRounds; ++i) {
      const std::uint32_t path = (reader + i) % kPaths;
      PRECIS_ASSIGN(const PrefixCopy copy, read_all(*client, model, paths[path]));
      std::vector<const Kv*> pushed;
      for (const Kv& turn : turns[path]) pushed.push_back(&turn);
      if (!rows_are_of(copy, pushed)) return Status::corruption("rows are not those pushed");
    }
    return {};
  };
  std::vector<std::future<Status>> readers;
  for (std::uint32_t i = 0; i < kReaders; ++i) {
    readers.push_back(std::async(std::launch::async, read, i));
  }
  for (auto& reader : readers) {
    const Status status = reader.get();
    INFO(status.to_string());
    CHECK(status.ok());
  }
  CHECK(stat(*owner, "precis_layers_cold_total") > 0);
  CHECK(stat(*owner, "precis_waiting_requests") == 0);
}

TEST_CASE("a limit that is reached is named, with when to come back, and waited for",
          "[integration]") {
  const TempDir dir;
  const ServiceProcess service = small_service(dir, "max_puts = 1\n");
  const auto client = service.connect(patient());
  const Model model = client->register_model(tiny_model()).value();
  std::mt19937 random(kSeed);
  const auto first_path = random_tokens(random, 100), second_path = random_tokens(random, 100);
  std::optional<Put> first = client->begin_put(model, first_path, keep_most()).value();

  const Status rejected =
      service.connect(only_once())->begin_put(model, second_path, keep_most()).status();
  INFO(rejected.to_string());
  CHECK(rejected.code() == StatusCode::kRejected);
  CHECK(rejected.retry_after_ms() > 0);
  CHECK(rejected.message().find("max_puts") != std::string::npos);
  CHECK(stat(*client, "precis_requests_rejected_total") == 1);

  const auto other = service.connect(patient());
  auto second = std::async(std::launch::async, [&] {
    return other->begin_put(model, second_path, keep_most()).status();
  });
  while (stat(*client, "precis_requests_rejected_total") == 1) {
  }
  first.reset();
  CHECK(second.get().ok());
}

TEST_CASE("a put whose other writers never come gives way to those who wait for memory",
          "[integration]") {
  const TempDir dir;
  const ServiceProcess service = small_service(dir, "silent_client_ms = 100\n");
  const auto lonely = service.connect(patient());
  const Model model = lonely->register_model(tiny_model()).value();
  std::mt19937 random(kSeed);
  // Each would stage more than half of the memory.
  const Kv kv = random_kv(random, model.spec, 0, 4500);
  PutOptions together = keep_most();
  together.writers = 2;
  Put half = lonely->begin_put(model, random_tokens(random, 4500), together).value();
  auto waits = std::async(std::launch::async, [&] { return half.commit(); });

  const auto busy = service.connect(patient());
  CHECK(put_all(*busy, model, random_tokens(random, 4500), kv, keep_most()).ok());
  CHECK(waits.get().status().code() == StatusCode::kUnavailable);
}

TEST_CASE("a silent client's puts give way to those who wait for memory", "[integration]") {
  const TempDir dir;
  const ServiceProcess service = small_service(dir, "silent_client_ms = 100\n");
  const auto silent = service.connect(patient());
  const Model model = silent->register_model(tiny_model()).value();
  std::mt19937 random(kSeed);
  // Each would stage more than half of the memory.
  const auto tokens = random_tokens(random, 4500);
  const Kv kv = random_kv(random, model.spec, 0, 4500);
  Put stuck = silent->begin_put(model, tokens, keep_most()).value();
  REQUIRE(stuck.layer(0, kv.layers[0].push()).ok());

  const auto busy = service.connect(patient());
  const auto path = random_tokens(random, 4500);
  CHECK(put_all(*busy, model, path, kv, keep_most()).ok());
  CHECK(rows_are_of(read_all(*busy, model, path).value(), {&kv}));
  const Status status = stuck.layer(1, kv.layers[1].push());
  CHECK(status.code() == StatusCode::kUnavailable);
  CHECK(status.message().find("put again") != std::string::npos);
  CHECK(stat(*busy, "precis_silent_puts_total") == 1);
  CHECK(put_all(*silent, model, tokens, kv, keep_most()).ok());
}

TEST_CASE("a client that stops reading a get is shed when others wait for what it holds",
          "[integration]") {
  const TempDir dir;
  const ServiceProcess service =
      small_service(dir, "silent_client_ms = 100\n", {"--listen-unix", "off"});
  const auto client = service.connect(patient());
  const Model model = client->register_model(tiny_model()).value();
  std::mt19937 random(kSeed);
  const auto tokens = random_tokens(random, 5400);
  const Kv kv = random_kv(random, model.spec, 0, 5400);
  REQUIRE(put_all(*client, model, tokens, kv, keep_most()).ok());
  const LookupMatch match = client->lookup(model, tokens).value();
  const msg::SegmentInfo& segment = match.links[0].segment;

  RawPeer peer;
  REQUIRE(peer.connect(service.address()).value().status.ok());
  msg::Get get;
  get.links.push_back({segment.id, segment.end, segment.entries});
  get.budget = Budget::all();
  const EntryForm rows = EntryForm::of(model.spec);
  get.destination = peer.expose(served_capacity_bytes(
      {&segment.entries, 1}, {&rows, 1}, model.spec.num_layers, model.spec.num_kv_heads));
  // The peer was answered once, so that its next message is sent at once.
  REQUIRE(peer.call(msg::GetStats{}).ok());
  peer.send_and_stand_still(encode(msg::Request{1000, get}));
  while (stat(*client, "precis_open_gets") == 0) {
  }
  // Another client reads and puts meanwhile. Its last call needs the memory that the peer holds.
  CHECK(rows_are_of(read_all(*client, model, tokens).value(), {&kv}));
  const auto path = random_tokens(random, 5400);
  CHECK(put_all(*client, model, path, kv, keep_most()).ok());
  CHECK(rows_are_of(read_all(*client, model, path).value(), {&kv}));
  CHECK(stat(*client, "precis_clients_shed_total") == 1);
  peer.resume();
  CHECK(peer.wait_closed().code() == StatusCode::kUnavailable);
  while (stat(*client, "precis_open_gets") > 0) {
  }
}

}  // namespace

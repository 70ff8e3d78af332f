// SIGKILL, to the service and to its clients.
#include <signal.h>

#include <catch2/catch.hpp>
#include <chrono>

#include "tests/integration/options.h"
#include "tests/integration/random_kv.h"
#include "tests/integration/service_process.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kSeed = 20250616;

PutOptions keep(double ratio) {
  PutOptions options;
  options.recipe = "ada_keydiff";
  options.keep = Budget::ratio(ratio).value();
  return options;
}

TEST_CASE("what was acknowledged survives a SIGKILL of the service bit for bit, nothing else does",
          "[integration]") {
  const TempDir dir;
  auto service = std::make_unique<ServiceProcess>(dir);
  auto client = service->connect(only_once());
  const Model model = client->register_model(tiny_model()).value();
  std::mt19937 random(kSeed);
  std::vector<std::vector<TokenId>> paths;
  std::vector<PrefixCopy> stored;
  const auto store = [&](Durability durability) {
    paths.push_back(random_tokens(random, 400));
    const Kv kv = random_kv(random, model.spec, 0, 400);
    REQUIRE(put_all(*client, model, paths.back(), kv, keep(0.4), durability).ok());
    stored.push_back(read_all(*client, model, paths.back()).value());
  };
  store(Durability::kFsync);
  store(Durability::kWal);

  // A put in progress, with every layer pushed, not committed.
  const auto open_path = random_tokens(random, 400);
  const Kv open_kv = random_kv(random, model.spec, 0, 400);
  std::optional<Put> open = client->begin_put(model, open_path, keep(0.4)).value();
  for (std::uint32_t l = 0; l < model.spec.num_layers; ++l) {
    REQUIRE(open->layer(l, open_kv.layers[l].push()).ok());
  }
  service->kill();
  CHECK(open->commit().status().code() == StatusCode::kUnavailable);
  CHECK(client->lookup(model, paths[0]).status().code() == StatusCode::kUnavailable);
  open.reset();

  service = std::make_unique<ServiceProcess>(dir);
  client = service->connect();
  CHECK(client->segments().value().size() == 2);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    CHECK(read_all(*client, model, paths[i]).value() == stored[i]);
  }
  CHECK_FALSE(client->lookup(model, open_path).value());
  CHECK(client->models().value().size() == 1);
  // The service stores more beside that data, and this put survives another kill.
  store(Durability::kWal);
  service->kill();
  service = std::make_unique<ServiceProcess>(dir);
  client = service->connect();
  CHECK(read_all(*client, model, paths.back()).value() == stored.back());
}

TEST_CASE("a commit acknowledged in memory is whole or absent after a SIGKILL", "[integration]") {
  const TempDir dir;
  auto service = std::make_unique<ServiceProcess>(dir);
  auto client = service->connect();
  const Model model = client->register_model(tiny_model()).value();
  std::mt19937 random(kSeed);
  const auto tokens = random_tokens(random, 300);
  const Kv kv = random_kv(random, model.spec, 0, 300);
  REQUIRE(put_all(*client, model, tokens, kv, keep(0.4), Durability::kMemory).ok());
  const PrefixCopy stored = read_all(*client, model, tokens).value();
  service->kill();
  service = std::make_unique<ServiceProcess>(dir);
  client = service->connect();
  // The model's row was written before the segment, and may be lost as well.
  const auto after = read_all(*client, client->register_model(tiny_model()).value(), tokens);
  if (after.ok()) {
    CHECK(*after == stored);
  } else {
    CHECK(after.status().code() == StatusCode::kNotFound);
  }
}

TEST_CASE("a put again, at a stronger durability, makes the first one durable", "[integration]") {
  const TempDir dir;
  auto service = std::make_unique<ServiceProcess>(dir);
  auto client = service->connect();
  const Model model = client->register_model(tiny_model()).value();
  std::mt19937 random(kSeed);
  const auto tokens = random_tokens(random, 300);
  const Kv kv = random_kv(random, model.spec, 0, 300);
  REQUIRE(put_all(*client, model, tokens, kv, keep(0.4), Durability::kMemory).ok());
  REQUIRE(put_all(*client, model, tokens, kv, keep(0.4), Durability::kFsync).ok());
  const PrefixCopy stored = read_all(*client, model, tokens).value();
  service->kill();
  service = std::make_unique<ServiceProcess>(dir);
  client = service->connect();
  CHECK(read_all(*client, model, tokens).value() == stored);
}

TEST_CASE("a service that is stopped while it compresses ends in order", "[integration]") {
  const TempDir dir;
  ServiceProcess service(dir);
  const auto client = service.connect();
  ModelSpec spec = tiny_model();
  spec.num_kv_heads = spec.num_q_heads = 8;
  spec.name = "a large layer";
  spec.num_layers = 1;
  const Model model = client->register_model(spec).value();
  std::mt19937 random(kSeed);
  const auto tokens = random_tokens(random, 20'000);
  const Kv kv = random_kv(random, model.spec, 0, 20'000);
  auto put = client->begin_put(model, tokens, keep(0.4)).value();
  REQUIRE(put.layer(0, kv.layers[0].push()).ok());
  CHECK(service.stop() == 0);
}

TEST_CASE("clients killed at random points of a put leave nothing and disturb nobody",
          "[integration]") {
  constexpr int kVictims = 50;
  constexpr int kSteps = 10;  // begin, eight pushes, waiting
  CAPTURE(kSeed);
  const TempDir dir;
  ServiceProcess service(dir);
  const auto client = service.connect();
  const Model model = client->register_model(tiny_model()).value();
  std::mt19937 random(kSeed);
  const auto tokens = random_tokens(random, 500);
  const Kv kv = random_kv(random, model.spec, 0, 500);
  REQUIRE(put_all(*client, model, tokens, kv, keep(1.0)).ok());
  const PrefixCopy stored = read_all(*client, model, tokens).value();
  const double staged = stat(*client, "precis_staged_bytes");
  const double memory = stat(*client, "precis_memory_bytes");
  CHECK(staged == 0);

  for (int i = 0; i < kVictims; ++i) {
    const std::uint32_t seed = static_cast<std::uint32_t>(random() % 1'000'000);
    const int steps = 1 + static_cast<int>(random() % kSteps);
    const auto spin = std::chrono::microseconds(random() % 2000);
    CAPTURE(i, seed, steps, spin.count());
    Process victim({PUT_VICTIM_PATH, service.address(), std::to_string(seed)});
    for (int s = 0; s < steps; ++s) REQUIRE(victim.read_line().has_value());
    // Waits until the victim is in the step that it has just announced.
    const auto until = std::chrono::steady_clock::now() + spin;
    while (std::chrono::steady_clock::now() < until) {
    }
    victim.signal(SIGKILL);
    REQUIRE(victim.wait() == -SIGKILL);

    std::mt19937 same(seed);
    CHECK_FALSE(client->lookup(model, random_tokens(same, 4096)).value());
    CHECK(read_all(*client, model, tokens).value() == stored);
  }
  // The service notices each death after a while.
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < give_up) {
    if (stat(*client, "precis_connected_clients") == 1 && stat(*client, "precis_open_puts") == 0 &&
        stat(*client, "precis_staged_bytes") == staged) {
      break;
    }
  }
  CHECK(stat(*client, "precis_connected_clients") == 1);
  CHECK(stat(*client, "precis_open_puts") == 0);
  CHECK(stat(*client, "precis_staged_bytes") == staged);
  CHECK(stat(*client, "precis_memory_bytes") == memory);
  CHECK(client->segments().value().size() == 1);
  const auto path = random_tokens(random, 500);
  REQUIRE(put_all(*client, model, path, kv, keep(0.5)).ok());
  CHECK(rows_are_of(read_all(*client, model, path).value(), {&kv}));
}

TEST_CASE("readers that leave in the middle of a get disturb nobody", "[integration]") {
  const TempDir dir;
  ServiceProcess service(dir);
  const auto client = service.connect();
  const Model model = client->register_model(tiny_model()).value();
  std::mt19937 random(kSeed);
  const auto tokens = random_tokens(random, 2000);
  const Kv kv = random_kv(random, model.spec, 0, 2000);
  REQUIRE(put_all(*client, model, tokens, kv, keep(1.0)).ok());
  const PrefixCopy stored = read_all(*client, model, tokens).value();
  // Clients that disconnect at once cancel prefixes that are on their way.
  for (int i = 0; i < 20; ++i) {
    const auto reader = service.connect();
    const Prefix prefix = reader->get(reader->lookup(model, tokens).value()).value();
    if (i % 2 == 0) CHECK(prefix.wait_layer(0).ok());
  }
  CHECK(read_all(*client, model, tokens).value() == stored);
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (stat(*client, "precis_open_gets") != 0 && std::chrono::steady_clock::now() < give_up) {
  }
  CHECK(stat(*client, "precis_open_gets") == 0);
  CHECK(stat(*client, "precis_staged_bytes") == 0);
}

}  // namespace

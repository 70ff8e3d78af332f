// A service that is killed and started again while clients use it.
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "tests/integration/options.h"
#include "tests/integration/random_kv.h"
#include "tests/integration/service_process.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kSeed = 20251125;

// A service, and a client that outlives the service.
struct Restarted {
  TempDir dir;
  std::unique_ptr<ServiceProcess> service = std::make_unique<ServiceProcess>(dir);
  const std::string address = service->address();
  std::shared_ptr<Client> client = service->connect(patient());
  Model model = client->register_model(tiny_model()).value();
  std::mt19937 random{kSeed};

  // Starts the service on the same data and port.
  void start_again() {
    service = std::make_unique<ServiceProcess>(dir, std::vector<std::string>{"--listen", address});
  }
};

TEST_CASE_METHOD(Restarted, "a client goes on with a service that was killed and started again",
                 "[integration]") {
  const auto tokens = random_tokens(random, 500), other = random_tokens(random, 500);
  const Kv kv = random_kv(random, model.spec, 0, 500);
  REQUIRE(put_all(*client, model, tokens, kv, keep_most()).ok());
  std::optional<Put> fresh = client->begin_put(model, other, keep_most()).value();
  std::optional<Put> begun =
      client->begin_put(model, random_tokens(random, 500), keep_most()).value();
  REQUIRE(begun->layer(0, kv.layers[0].push()).ok());

  service->kill();
  start_again();
  CHECK(rows_are_of(read_all(*client, model, tokens).value(), {&kv}));
  CHECK(client->open_session("chat", {}).ok());
  // Nothing was pushed for this put, so nothing of it is lost.
  for (std::uint32_t l = 0; l < model.spec.num_layers; ++l) {
    REQUIRE(fresh->layer(l, kv.layers[l].push()).ok());
  }
  CHECK(fresh->commit().ok());
  CHECK(rows_are_of(read_all(*client, model, other).value(), {&kv}));
  const Status lost = begun->layer(1, kv.layers[1].push());
  CHECK(lost.code() == StatusCode::kUnavailable);
  CHECK(lost.message().find("put again") != std::string::npos);

  service->kill();
  const Status late = client->with_deadline(300)->lookup(model, tokens).status();
  INFO(late.to_string());
  CHECK(late.code() == StatusCode::kTimedOut);
  start_again();
  CHECK(client->lookup(model, tokens).value().matched_tokens == 500);
}

TEST_CASE_METHOD(Restarted, "layers pushed ahead are all stored, also where the service was killed",
                 "[integration]") {
  const auto tokens = random_tokens(random, 3000);
  const Kv kv = random_kv(random, model.spec, 0, 3000);
  for (const bool killed : {false, true}) {
    CAPTURE(killed);
    std::optional<Put> put = client->begin_put(model, tokens, keep_most()).value();
    if (killed) {
      service->kill();
      start_again();
    }
    // The killed service accepted no piece, so all layers go to the next service.
    for (std::uint32_t l = 0; l < model.spec.num_layers; ++l) {
      REQUIRE(put->start_layer(l, kv.layers[l].push()).ok());
    }
    const auto stored = put->commit();
    INFO(stored.status().to_string());
    REQUIRE(stored.ok());
    CHECK(rows_are_of(read_all(*client, model, tokens).value(), {&kv}));
    REQUIRE(client->remove_segment(stored->id, /*recursive=*/false).ok());
  }
}

TEST_CASE_METHOD(Restarted, "reads under way when the service dies are answered by the next one",
                 "[integration]") {
  constexpr int kReaders = 3, kKills = 3, kReadsBetween = 20;
  const auto tokens = random_tokens(random, 3000);
  const Kv kv = random_kv(random, model.spec, 0, 3000);
  REQUIRE(put_all(*client, model, tokens, kv, keep_most()).ok());

  std::atomic<int> reads{0};
  std::atomic<bool> stop{false};
  std::array<Status, kReaders> failures;
  {
    std::vector<std::jthread> readers;
    for (Status& failure : failures) {
      readers.emplace_back([&, own = service->connect(patient())] {
        while (!stop && failure.ok()) {
          const auto copy = read_all(*own, model, tokens);
          failure = copy.status();
          if (copy.ok() && !rows_are_of(*copy, {&kv})) failure = Status::corruption("other rows");
          ++reads;
        }
        stop = true;
      });
    }
    for (int i = 0; i < kKills && !stop; ++i) {
      for (const int until = reads + kReadsBetween; reads < until && !stop;) {
        std::this_thread::yield();
      }
      service->kill();
      start_again();
    }
    for (const int until = reads + kReadsBetween; reads < until && !stop;) {
      std::this_thread::yield();
    }
    stop = true;
  }
  for (const Status& failure : failures) {
    INFO(failure.to_string());
    CHECK(failure.ok());
  }
}

}  // namespace

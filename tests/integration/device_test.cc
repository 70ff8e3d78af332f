// The service with the CUDA backend, on a device or in the emulator: from begin_put to get.
#include <catch2/catch.hpp>
#include <cstring>
#include <limits>
#include <thread>

#include "tests/integration/random_kv.h"
#include "tests/integration/service_process.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kTokens = 150;

PutOptions options_of(const std::string& recipe, std::uint64_t keep_ppm) {
  PutOptions options;
  options.recipe = recipe;
  options.keep = Budget::ratio_ppm(keep_ppm);
  return options;
}

std::shared_ptr<Client> open_on(const std::string& device, const TempDir& dir) {
  OpenOptions options;
  options.memory_bytes = 64u << 20;
  options.device = device;
  auto client = Client::open(dir.path("data"), options);
  INFO(client.status().to_string());
  REQUIRE(client.ok());
  return std::move(client).value();
}

}  // namespace

TEST_CASE("a service compresses on the device it was given, and says so", "[gpu][service]") {
  const TempDir dir;
  const auto client = open_on("cuda:0", dir);
  CHECK(client->status().value().device.starts_with("cuda:0"));
}

TEST_CASE("what a device keeps is served like what the CPU keeps", "[gpu][service]") {
  const TempDir cpu_dir, cuda_dir;
  const auto cpu = open_on("cpu", cpu_dir), cuda = open_on("cuda:0", cuda_dir);
  std::mt19937 random(5);
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF32}) {
    const Model on_cpu = cpu->register_model(tiny_model(dtype)).value();
    Model on_cuda = cuda->register_model(tiny_model(dtype)).value();
    for (const char* recipe : {"streaming_llm", "random", "keydiff", "ada_snapkv", "global_kvdiff",
                               "lagkv", "cake", "ada_kvpress"}) {
      CAPTURE(recipe);
      const auto tokens = random_tokens(random, kTokens);
      const Kv kv = random_kv(random, on_cpu.spec, 0, kTokens, 64);
      const auto stored = put_all(*cuda, on_cuda, tokens, kv, options_of(recipe, 600'000));
      INFO(stored.status().to_string());
      REQUIRE(stored.ok());
      const auto served = read_all(*cuda, on_cuda, tokens).value();
      CHECK(entries_of(served) == stored->entries);
      CHECK(rows_are_of(served, {&kv}));
      // Scores of these two are not sums, so everything is equal.
      if (recipe == std::string("streaming_llm") || recipe == std::string("random")) {
        REQUIRE(put_all(*cpu, on_cpu, tokens, kv, options_of(recipe, 600'000)).ok());
        CHECK(served == read_all(*cpu, on_cpu, tokens).value());
      }
    }
  }
}

TEST_CASE("layers of several puts at once keep to their puts", "[gpu][service]") {
  const TempDir dir;
  const auto client = open_on("cuda:0", dir);
  const Model model = client->register_model(tiny_model()).value();
  constexpr int kPuts = 4;
  std::mt19937 random(6);
  std::vector<std::vector<TokenId>> tokens;
  std::vector<Kv> kvs;
  for (int i = 0; i < kPuts; ++i) {
    tokens.push_back(random_tokens(random, kTokens));
    kvs.push_back(random_kv(random, model.spec, 0, kTokens, 64));
  }
  std::vector<Status> statuses(kPuts);
  std::vector<std::thread> threads;
  for (int i = 0; i < kPuts; ++i) {
    threads.emplace_back([&, i] {
      statuses[i] =
          put_all(*client, model, tokens[i], kvs[i], options_of("global_keydiff", 300'000))
              .status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kPuts; ++i) {
    INFO(statuses[i].to_string());
    REQUIRE(statuses[i].ok());
    CHECK(rows_are_of(read_all(*client, model, tokens[i]).value(), {&kvs[i]}));
  }
}

TEST_CASE("a value that is not finite ends its put and nothing else", "[gpu][service]") {
  const TempDir dir;
  const auto client = open_on("cuda:0", dir);
  const Model model = client->register_model(tiny_model()).value();
  std::mt19937 random(7);
  const auto tokens = random_tokens(random, kTokens);
  Kv kv = random_kv(random, model.spec, 0, kTokens);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(kv.layers[1].values.bytes.data() + 5 * sizeof nan, &nan, sizeof nan);
  const auto refused = put_all(*client, model, tokens, kv, options_of("keydiff", 500'000));
  CHECK(refused.status().code() == StatusCode::kInvalidArgument);
  CHECK_THAT(refused.status().to_string(), Catch::Matchers::Contains("values: NaN at head 0"));
  const Kv good = random_kv(random, model.spec, 0, kTokens);
  REQUIRE(put_all(*client, model, tokens, good, options_of("keydiff", 500'000)).ok());
  CHECK(rows_are_of(read_all(*client, model, tokens).value(), {&good}));
}

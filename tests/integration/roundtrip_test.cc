// Stored entries are read back: all of them, and any cut of them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <future>
#include <numeric>

#include "tests/integration/random_kv.h"
#include "tests/integration/service_process.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kSeed = 20250612;

PutOptions options_of(const std::string& recipe, const Budget& keep) {
  PutOptions options;
  options.recipe = recipe;
  options.keep = keep;
  return options;
}

TEST_CASE("every row pushed at keep 1.0 comes back, and a smaller budget is a fresh compression",
          "[integration]") {
  const bool unix_socket = GENERATE(true, false);
  const Dtype dtype = GENERATE(Dtype::kF32, Dtype::kBf16, Dtype::kF16, Dtype::kF8E4M3);
  CAPTURE(unix_socket, dtype, kSeed);
  const TempDir dir;
  ServiceProcess service(dir, unix_socket ? std::vector<std::string>{}
                                          : std::vector<std::string>{"--listen-unix", "off"});
  const auto client = service.connect();
  CHECK(client->status().value().transport ==
        (unix_socket ? "unix (shared, stream)" : "tcp (stream)"));
  Model model = client->register_model(tiny_model(dtype)).value();
  std::mt19937 random(kSeed);
  constexpr std::uint32_t kTokens = 700;
  for (const char* recipe : {"ada_keydiff", "snapkv", "lagkv", "streaming_llm", "global_keydiff",
                             "lava", "cake", "ada_pyramidkv"}) {
    CAPTURE(recipe);
    const auto tokens = random_tokens(random, kTokens);
    const Kv kv = random_kv(random, model.spec, 0, kTokens, 64);

    model.adapter = "all";
    const auto all =
        put_all(*client, model, tokens, kv, options_of(recipe, Budget::ratio_ppm(1'000'000)));
    INFO(all.status().to_string());
    REQUIRE(all.ok());
    CHECK(all->entries == std::uint64_t{kTokens} * 4 * 2);
    const auto whole = read_all(*client, model, tokens);
    REQUIRE(whole.ok());
    CHECK(entries_of(*whole) == all->entries);
    CHECK(rows_are_of(*whole, {&kv}));
    const auto cut = read_all(*client, model, tokens, Budget::ratio_ppm(300'000));
    REQUIRE(cut.ok());

    model.adapter = "part";
    const auto part =
        put_all(*client, model, tokens, kv, options_of(recipe, Budget::ratio_ppm(300'000)));
    REQUIRE(part.ok());
    const auto fresh = read_all(*client, model, tokens);
    REQUIRE(fresh.ok());
    CHECK(entries_of(*fresh) == part->entries);
    CHECK(*fresh == *cut);
    CHECK(rows_are_of(*fresh, {&kv}));
  }
}

TEST_CASE("bulk bytes move as the client and the service allow", "[integration]") {
  struct Way {
    bool by_path, share_memory;
    const char* listen_unix;
    const char* said;
  };
  const Way way =
      GENERATE(Way{true, true, "auto", "unix (shared, stream)"},
               Way{false, true, "auto", "unix (shared, stream)"},
               Way{false, false, "auto", "tcp (stream)"}, Way{false, true, "off", "tcp (stream)"});
  CAPTURE(way.by_path, way.share_memory, way.listen_unix);
  const TempDir dir;
  const ServiceProcess service(dir, {"--listen-unix", way.listen_unix});
  ConnectOptions options;
  options.share_memory = way.share_memory;
  const std::string path = "unix:" + dir.path("data/precisd.sock");
  const auto client = Client::connect(way.by_path ? path : service.address(), options).value();
  CHECK(client->status().value().transport == way.said);
  const Model model = client->register_model(tiny_model()).value();
  std::mt19937 random(kSeed);
  const auto tokens = random_tokens(random, 300);
  const Kv kv = random_kv(random, model.spec, 0, 300);
  REQUIRE(
      put_all(*client, model, tokens, kv, options_of("knorm", Budget::ratio_ppm(1'000'000))).ok());
  const auto whole = read_all(*client, model, tokens);
  REQUIRE(whole.ok());
  CHECK(rows_are_of(*whole, {&kv}));
}

TEST_CASE("a layer pushed in pieces is the layer pushed whole", "[integration]") {
  const TempDir dir;
  ServiceProcess service(dir);
  const auto client = service.connect();
  Model model = client->register_model(tiny_model()).value();
  std::mt19937 random(kSeed);
  const auto tokens = random_tokens(random, 300);
  const Kv kv = random_kv(random, model.spec, 0, 300);
  model.adapter = "whole";
  REQUIRE(put_all(*client, model, tokens, kv, options_of("ada_keydiff", Budget::entries(50))).ok());

  model.adapter = "pieces";
  Put put =
      client->begin_put(model, tokens, options_of("ada_keydiff", Budget::entries(50))).value();
  for (std::uint32_t l = model.spec.num_layers; l-- > 0;) {
    for (const std::uint32_t head : {1u, 0u}) {
      for (const std::uint32_t token : {0u, 100u, 200u}) {
        LayerPush push = kv.layers[l].push();
        for (HeadsView* view : {&push.keys, &push.values}) {
          view->data = view->row(head, token);
          view->num_heads = 1;
          view->num_tokens = 100;
        }
        push.head_begin = head;
        push.token_begin = token;
        REQUIRE(put.layer(l, push).ok());
      }
    }
  }
  REQUIRE(put.commit().ok());
  const auto pieces = read_all(*client, model, tokens);
  model.adapter = "whole";
  const auto whole = read_all(*client, model, tokens);
  REQUIRE(whole.ok());
  CHECK(*whole == pieces.value());
}

TEST_CASE("a put of what is already stored moves nothing and answers the same", "[integration]") {
  const TempDir dir;
  ServiceProcess service(dir);
  const auto client = service.connect();
  const Model model = client->register_model(tiny_model()).value();
  std::mt19937 random(kSeed);
  const auto tokens = random_tokens(random, 200);
  const Kv kv = random_kv(random, model.spec, 0, 200);
  PutOptions options = options_of("knorm", Budget::ratio_ppm(500'000));
  options.parent = SegmentId{};
  const auto first = put_all(*client, model, tokens, kv, options).value();
  const double pulled = stat(*client, "precis_pulled_bytes_total");
  CHECK(pulled == static_cast<double>(first.original_bytes));
  const auto second = put_all(*client, model, tokens, kv, options).value();
  CHECK(second.id == first.id);
  CHECK(second.plan == first.plan);
  CHECK(stat(*client, "precis_pulled_bytes_total") == pulled);
  CHECK(client->segments().value().size() == 1);
}

TEST_CASE("a segment says whether it is in memory", "[integration]") {
  const TempDir dir;
  std::mt19937 random(kSeed);
  const auto tokens = random_tokens(random, 200);
  SegmentId id;
  {
    ServiceProcess service(dir);
    const auto client = service.connect();
    const Model model = client->register_model(tiny_model()).value();
    const Kv kv = random_kv(random, model.spec, 0, 200);
    const auto stored =
        put_all(*client, model, tokens, kv, options_of("keydiff", Budget::ratio_ppm(500'000)));
    REQUIRE(stored.ok());
    CHECK(stored.value().in_memory);
    id = stored.value().id;
    service.stop();
  }
  ServiceProcess service(dir);
  const auto client = service.connect();
  const Model model = client->register_model(tiny_model()).value();
  CHECK_FALSE(client->segment(id).value().in_memory);
  REQUIRE(read_all(*client, model, tokens).ok());
  CHECK(client->segment(id).value().in_memory);
  CHECK(client->segments().value().front().in_memory);
}

TEST_CASE("several threads wait for layers of one prefix, and each has those it waited for",
          "[integration]") {
  constexpr std::uint32_t kTokens = 4000;  // a layer is more than the loop checks inline
  constexpr int kRounds = 20, kWaiters = 3;
  const TempDir dir;
  ServiceProcess service(dir);
  const auto client = service.connect();
  const Model model = client->register_model(tiny_model()).value();
  std::mt19937 random(kSeed);
  const auto tokens = random_tokens(random, kTokens);
  const Kv kv = random_kv(random, model.spec, 0, kTokens);
  REQUIRE(put_all(*client, model, tokens, kv, options_of("streaming_llm", Budget::all())).ok());
  const LookupMatch match = client->lookup(model, tokens).value();
  for (int round = 0; round < kRounds; ++round) {
    const Prefix prefix = client->get(match).value();
    std::vector<std::uint32_t> order(model.spec.num_layers);
    std::iota(order.begin(), order.end(), 0);
    std::vector<std::future<Status>> waiters;
    for (int i = 0; i < kWaiters; ++i) {
      std::shuffle(order.begin(), order.end(), random);
      waiters.push_back(std::async(std::launch::async, [&prefix, order]() -> Status {
        for (const std::uint32_t layer : order) {
          PRECIS_TRY(prefix.wait_layer(layer));
          if (prefix.head(layer, 1).positions.size() != kTokens) {
            return Status::corruption("entries of layer " + std::to_string(layer));
          }
        }
        return {};
      }));
    }
    CHECK(prefix.wait().ok());
    for (auto& waiter : waiters) CHECK(waiter.get() == Status());
  }
  CHECK(rows_are_of(read_all(*client, model, tokens).value(), {&kv}));
}

TEST_CASE("prefixes are streamed to many clients at once", "[integration]") {
  const TempDir dir;
  ServiceProcess service(dir);
  const auto client = service.connect();
  const Model model = client->register_model(tiny_model()).value();
  std::mt19937 random(kSeed);
  const auto tokens = random_tokens(random, 500);
  const Kv kv = random_kv(random, model.spec, 0, 500);
  REQUIRE(put_all(*client, model, tokens, kv, options_of("keydiff", Budget::entries(200))).ok());
  const PrefixCopy expected = read_all(*client, model, tokens).value();
  std::vector<std::shared_ptr<Client>> readers;
  std::vector<Prefix> prefixes;
  for (int i = 0; i < 4; ++i) {
    readers.push_back(service.connect());
    const LookupMatch match = readers.back()->lookup(model, tokens).value();
    for (int j = 0; j < 3; ++j) prefixes.push_back(readers.back()->get(match).value());
  }
  for (const Prefix& prefix : prefixes) CHECK(prefix.wait().ok());
  for (const auto& reader : readers) CHECK(read_all(*reader, model, tokens).value() == expected);
}

}  // namespace

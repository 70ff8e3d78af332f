// Layers pushed from memory that the client allocated: a service on the same host compresses them
// in place.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <future>
#include <limits>
#include <memory>

#include "tests/integration/random_kv.h"
#include "tests/integration/service_process.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kTokens = 320;

class InPlaceFixture {
 protected:
  TempDir dir;
  ServiceProcess service{dir};
  std::shared_ptr<Client> client = service.connect();
  Model model = client->register_model(tiny_model(Dtype::kBf16)).value();
  std::mt19937 random{20261122};
  Kv kv = random_kv(random, model.spec, 0, kTokens);

  std::uint64_t original_bytes() const { return model.spec.token_bytes() * kTokens; }
  double in_place() { return stat(*client, "precis_in_place_bytes_total"); }
  double pulled() { return stat(*client, "precis_pulled_bytes_total"); }
  PutOptions options(const std::string& recipe, double keep) {
    PutOptions options;
    options.recipe = recipe;
    options.keep = Budget::ratio(keep).value();
    return options;
  }
  PrefixCopy put_and_read(const Kv& from, const PutOptions& how) {
    const auto path = random_tokens(random, kTokens);
    const auto stored = put_all(*client, model, path, from, how);
    INFO(stored.status().to_string());
    REQUIRE(stored.ok());
    return read_all(*client, model, path).value();
  }
};

TEST_CASE_METHOD(InPlaceFixture,
                 "allocated memory is compressed where it lies, to the same records",
                 "[integration]") {
  const std::string recipe =
      GENERATE(as<std::string>{}, "streaming_llm", "keydiff", "keydiff(encoding=int8)", "lagkv",
               "ada_keydiff", "global_kvdiff");
  const double keep = GENERATE(1.0, 0.3);
  CAPTURE(recipe, keep);
  const PrefixCopy expected = put_and_read(kv, options(recipe, keep));
  CHECK(in_place() == 0);
  const double before = pulled();
  const AllocatedKv allocated(*client, kv);
  CHECK(put_and_read(allocated.kv(), options(recipe, keep)) == expected);
  CHECK(in_place() == before);  // all of it
  CHECK(pulled() == before);
}

TEST_CASE_METHOD(InPlaceFixture, "pieces, queries and recipes that take long are pulled",
                 "[integration]") {
  const AllocatedKv allocated(*client, random_kv(random, model.spec, 0, kTokens, 32));
  put_and_read(allocated.kv(), options("snapkv", 0.3));
  CHECK(in_place() == 0);
  CHECK(pulled() > 0);
}

TEST_CASE_METHOD(InPlaceFixture,
                 "a value that is not finite is named also where it is read in place",
                 "[integration]") {
  const std::string recipe = GENERATE(as<std::string>{}, "streaming_llm", "keydiff");
  const double keep = GENERATE(1.0, 0.2);
  CAPTURE(recipe, keep);
  AllocatedKv allocated(*client, kv);
  const HeadsView& values = allocated.kv().layers[1].values.view;
  const std::uint16_t nan = 0x7fc0;
  std::memcpy(const_cast<std::byte*>(values.row(1, 17)) + 6, &nan, sizeof nan);
  const auto path = random_tokens(random, kTokens);
  const auto stored = put_all(*client, model, path, allocated.kv(), options(recipe, keep));
  CHECK(stored.status().code() == StatusCode::kInvalidArgument);
  CHECK_THAT(stored.status().message(), Catch::Contains("layer 1 values: NaN at head 1, token 17"));
  CHECK(client->segments().value().empty());
}

TEST_CASE_METHOD(InPlaceFixture, "memory that is written to while it is read in place harms nobody",
                 "[integration]") {
  const AllocatedKv allocated(*client, kv);
  std::atomic<bool> over = false;
  // The lower byte of each bf16: values stay finite, and change all the time.
  auto writer = std::async(std::launch::async, [&] {
    std::mt19937_64 noise(1);
    const MutableBytes bytes = allocated.bytes();
    while (!over) bytes[noise() % (bytes.size() / 2) * 2] = static_cast<std::byte>(noise());
  });
  const std::shared_ptr<void> ends(nullptr, [&](void*) { over = true; });  // before `writer` waits
  for (int round = 0; round < 40; ++round) {
    const char* const recipes[] = {"streaming_llm", "lagkv", "keydiff", "ada_keydiff",
                                   "keydiff(encoding=int8)"};
    const auto path = random_tokens(random, kTokens);
    const auto stored = put_all(*client, model, path, allocated.kv(),
                                options(recipes[round % std::size(recipes)], 0.5));
    INFO(stored.status().to_string());
    REQUIRE(stored.ok());
    CHECK(client->check_segment(stored->id).value().damage.empty());
  }
  over = true;
  writer.get();
  CHECK(in_place() == 40 * static_cast<double>(original_bytes()));
  const PrefixCopy copy = put_and_read(kv, options("keydiff", 1.0));
  CHECK(rows_are_of(copy, {&kv}));
}

TEST_CASE_METHOD(InPlaceFixture, "a buffer is read in place by the service that comes after",
                 "[integration]") {
  const AllocatedKv allocated(*client, kv);
  put_and_read(allocated.kv(), options("keydiff", 1.0));
  REQUIRE(in_place() > 0);
  const std::string address = service.address();
  service.stop();
  ServiceProcess next(dir, {"--listen", address});
  const PrefixCopy copy = put_and_read(allocated.kv(), options("lagkv", 1.0));
  CHECK(rows_are_of(copy, {&kv}));
  CHECK(in_place() == static_cast<double>(original_bytes()));
  CHECK(pulled() == 0);
}

TEST_CASE_METHOD(InPlaceFixture,
                 "a buffer outlives its client and serves the puts after a new link",
                 "[integration]") {
  const AllocatedKv allocated(*client, kv);
  auto other = service.connect();
  client.swap(other);
  other.reset();
  CHECK(allocated.bytes().size() > 0);
  const PrefixCopy copy =
      put_and_read(allocated.kv(), options("keydiff", 1.0));  // another client's memory
  CHECK(rows_are_of(copy, {&kv}));
  CHECK(in_place() == 0);
  CHECK(client->allocate(0).status().code() == StatusCode::kInvalidArgument);
  CHECK(client->allocate(std::size_t{1} << 60).status().code() == StatusCode::kOutOfSpace);
}

}  // namespace

// A put that several connections write, each its heads, as tensor-parallel ranks do.
#include <catch2/catch.hpp>
#include <future>
#include <vector>

#include "tests/integration/options.h"
#include "tests/integration/random_kv.h"
#include "tests/integration/raw_peer.h"
#include "tests/integration/service_process.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kTokens = 300;

class JointFixture {
 protected:
  TempDir dir;
  ServiceProcess service{dir};
  std::shared_ptr<Client> client = service.connect();
  Model model = client->register_model(tiny_model()).value();
  std::mt19937 random{20261122};
  Kv kv = random_kv(random, model.spec, 0, kTokens);
  std::vector<TokenId> path = random_tokens(random, kTokens);

  static PutOptions options(std::uint32_t writers) {
    PutOptions options;
    options.recipe = "ada_keydiff";  // heads compete: all of a layer's heads decide the shares
    options.keep = Budget::ratio(0.4).value();
    options.writers = writers;
    return options;
  }
  Put begin(Client& writer, std::uint32_t writers) {
    return writer.begin_put(model, path, options(writers)).value();
  }
  // One head of one layer.
  Status push(Put& put, std::uint32_t layer, std::uint32_t head) {
    LayerPush piece = kv.layers[layer].push();
    for (HeadsView* view : {&piece.keys, &piece.values}) {
      view->data = view->row(head, 0);
      view->num_heads = 1;
    }
    piece.head_begin = head;
    return put.layer(layer, piece);
  }
  Status push_all(Put& put, std::uint32_t head) {
    for (std::uint32_t l = 0; l < model.spec.num_layers; ++l) PRECIS_TRY(push(put, l, head));
    return {};
  }
  using Stored = Result<msg::SegmentInfo>;
  std::future<Stored> commit(Put& put, Durability durability = Durability::kWal) {
    return std::async(std::launch::async, [&put, durability] { return put.commit(durability); });
  }
  // The first of two writers, whose commit has timed out.
  Put begin_and_give_up_waiting() {
    Put first = begin(*client->with_deadline(2000), 2);
    REQUIRE(push_all(first, 0).ok());
    CHECK(first.commit().status().code() == StatusCode::kTimedOut);
    return first;
  }
  // Completes a put of two writers, for which the second has pushed nothing yet.
  void finish(Put& first, Put& second) {
    REQUIRE(push_all(first, 0).ok());
    REQUIRE(push_all(second, 1).ok());
    auto first_done = commit(first);
    CHECK(second.commit().ok());
    CHECK(first_done.get().ok());
  }
  template <typename T>
  static bool waits(std::future<T>& future) {
    return future.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout;
  }
};

TEST_CASE_METHOD(JointFixture, "what ranks write together is what one client would have put",
                 "[integration]") {
  auto other = service.connect();
  Put first = begin(*client, 2), second = begin(*other, 2);
  CHECK(first.begun().segment == second.begun().segment);
  REQUIRE(push_all(first, 0).ok());
  auto first_done = commit(first, Durability::kFsync);
  CHECK(waits(first_done));
  CHECK(client->segments().value().empty());
  REQUIRE(push_all(second, 1).ok());
  const Stored second_stored = second.commit(Durability::kMemory);
  const Stored first_stored = first_done.get();
  REQUIRE(second_stored.ok());
  REQUIRE(first_stored.ok());
  CHECK(first_stored->id == second_stored->id);
  CHECK(first_stored->plan == second_stored->plan);

  const auto together = read_all(*client, model, path).value();
  REQUIRE(client->remove_segment(first_stored->id, false).ok());
  REQUIRE(put_all(*client, model, path, kv, options(1)).ok());
  CHECK(read_all(*client, model, path).value() == together);
}

TEST_CASE_METHOD(JointFixture, "a writer that leaves or gives up ends the put for the others",
                 "[integration]") {
  const bool leaves = GENERATE(true, false);
  CAPTURE(leaves);
  Put first = begin(*client, 2);
  REQUIRE(push_all(first, 0).ok());
  auto first_done = commit(first);
  auto other = service.connect();
  if (leaves) {  // disconnects without an abort
    RawPeer rank;
    REQUIRE(rank.connect(service.address()).ok());
    msg::BeginPut alike;
    alike.model = model.fingerprint;
    alike.tokens = path;
    alike.recipe = options(2).recipe;
    alike.budget = options(2).keep;
    alike.writers = 2;
    const auto begun = rank.call(alike);
    REQUIRE(begun.ok());
    CHECK(std::get<msg::PutBegun>(begun->body).segment == first.begun().segment);
    CHECK(waits(first_done));
  } else {
    Put second = begin(*other, 2);
    REQUIRE(push(second, 0, 1).ok());
    CHECK(waits(first_done));
    REQUIRE(second.abort().ok());
  }
  const Stored stored = first_done.get();
  CHECK(stored.status().code() == StatusCode::kUnavailable);
  CHECK_THAT(stored.status().message(),
             Catch::Contains("2 writers") && Catch::Contains("put again"));
  CHECK(client->segments().value().empty());

  // All writers put again.
  Put again = begin(*client, 2), second = begin(*other, 2);
  finish(again, second);
}

TEST_CASE_METHOD(JointFixture, "writers hear alike what is missing, push it, and commit again",
                 "[integration]") {
  auto other = service.connect();
  Put first = begin(*client, 2), second = begin(*other, 2);
  REQUIRE(push_all(first, 0).ok());
  REQUIRE(push(second, 0, 1).ok());
  auto first_done = commit(first);
  const Stored missing = second.commit();
  CHECK(missing.status().code() == StatusCode::kInvalidArgument);
  CHECK_THAT(missing.status().message(), Catch::Contains("layer 1"));
  CHECK(first_done.get().status() == missing.status());
  for (std::uint32_t l = 1; l < model.spec.num_layers; ++l) REQUIRE(push(second, l, 1).ok());
  first_done = commit(first);
  CHECK(second.commit().ok());
  CHECK(first_done.get().ok());
}

TEST_CASE_METHOD(JointFixture, "who comes to a put late finds it as it was begun",
                 "[integration]") {
  auto other = service.connect();
  Put first = begin(*client, 2);
  // Meanwhile a prefix of the path is stored, which a new put takes as its parent.
  const std::vector<TokenId> prefix(path.begin(), path.begin() + 128);
  const Kv prefix_kv = random_kv(random, model.spec, 0, 128);
  REQUIRE(put_all(*other, model, prefix, prefix_kv, options(1)).ok());
  Put second = begin(*other, 2);
  CHECK(second.begun().segment == first.begun().segment);
  CHECK(second.begun().begin == 0);
  Put third = begin(*other, 2);  // begins another put, on the stored prefix
  CHECK(third.begun().begin == 128);
  finish(first, second);
}

TEST_CASE_METHOD(JointFixture, "recipes and numbers of writers do not mix", "[integration]") {
  auto other = service.connect();
  Put first = begin(*client, 2), of_three = begin(*other, 3);
  PutOptions knorm = options(2);
  knorm.recipe = "knorm";
  Put of_another = other->begin_put(model, path, knorm).value();
  CHECK(of_another.begun().segment != first.begun().segment);
  REQUIRE(push_all(first, 0).ok());
  REQUIRE(push_all(of_three, 1).ok());
  auto first_done = commit(first);
  auto third_done = commit(of_three);
  CHECK(waits(first_done));
  CHECK(waits(third_done));
  Put second = begin(*other, 2);
  REQUIRE(push_all(second, 1).ok());
  CHECK(second.commit().ok());
  CHECK(first_done.get().ok());
  CHECK(waits(third_done));
  other.reset();
  service.stop();  // a service that stops answers those that still wait
  CHECK_FALSE(third_done.get().ok());
}

TEST_CASE_METHOD(JointFixture, "who waited too long for another writer may ask again",
                 "[integration]") {
  auto other = service.connect();
  Put second = begin(*other, 2), first = begin_and_give_up_waiting();
  REQUIRE(push_all(second, 1).ok());
  auto first_done = commit(first);
  CHECK(waits(first_done));  // the first writer counts once
  CHECK(second.commit().ok());
  CHECK(first_done.get().ok());
}

TEST_CASE_METHOD(JointFixture, "who waited too long is told of the put that others committed since",
                 "[integration]") {
  auto other = service.connect();
  Put second = begin(*other, 2), first = begin_and_give_up_waiting();
  REQUIRE(push_all(second, 1).ok());
  const auto stored = second.commit();
  REQUIRE(stored.ok());
  const auto again = first.commit(Durability::kFsync);
  INFO(again.status().to_string());
  REQUIRE(again.ok());
  CHECK(again->id == stored->id);
}

TEST_CASE_METHOD(JointFixture, "a deadline ends the wait for a writer that never comes",
                 "[integration]") {
  const auto hasty = client->with_deadline(2000);
  Put alone = begin(*hasty, 2);
  REQUIRE(push_all(alone, 0).ok());
  const Status late = alone.commit().status();
  CHECK(late.code() == StatusCode::kTimedOut);
  CHECK_THAT(late.message(), Catch::Contains("has 2 writers and is committed once each"));
  CHECK(client->segments().value().empty());
}

TEST_CASE_METHOD(JointFixture, "no writers, or too many, are refused by name", "[integration]") {
  for (const std::uint32_t writers : {0u, 1025u}) {
    const Status refused = client->begin_put(model, path, options(writers)).status();
    CHECK(refused.code() == StatusCode::kInvalidArgument);
    CHECK_THAT(refused.message(), Catch::Contains("writers is " + std::to_string(writers)));
  }
}

}  // namespace

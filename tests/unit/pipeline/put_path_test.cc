// Puts with little memory: its free pages lie apart, pieces wait or are pushed again, and writers
// commit together. The stored segment equals that of a put alone.
#include "cachesvc/pipeline/put_path.h"

#include <catch2/catch.hpp>
#include <functional>
#include <future>

#include "tests/unit/pipeline/pages_apart.h"
#include "tests/unit/pipeline/put_fixture.h"

namespace precis {
namespace {

using namespace testing;

}  // namespace

TEST_CASE("a put whose memory lies apart, page by page, is the put that has the arena to itself",
          "[unit][pipeline]") {
  const std::string recipe = GENERATE(kUniform, kCompeting, kObserving);
  PutFixture f;
  const msg::BeginPut half = f.request(recipe, Budget::ratio_ppm(500'000));
  const PutAlone alone(half);
  const PutPtr put = f.begin(half, f.one);
  f.others_have = leave_apart(*f.arena, Arena::taken_bytes(put->staged_bytes_max()));
  for (const PushedLayer& layer : f.layers) f.push(put, layer.heads(recipe, 0, kHeads), f.one);
  f.check_taken_in(kLayers);
  const auto& done = f.commit(put, f.one);
  f.settle();
  alone.check_is(f, done);
}

TEST_CASE("a put without its projections says so, also if other nodes' settings are not known",
          "[unit][pipeline]") {
  PutFixture f;
  msg::SetBudget defaults;
  defaults.recipe = "defensivekv";
  REQUIRE(f.catalog->set_budget(f.tenant.name, defaults).ok());
  int asked = 0;
  f.path.catch_up_by([&asked](Owner) -> Task<Status> {
    ++asked;
    co_return Status::rejected("etcd does not answer");
  });
  std::optional<Result<PutPtr>> begun;
  const auto ask = [&]() -> Task<void> {
    msg::BeginPut request = f.request("", Budget::ratio_ppm(500'000));
    begun.emplace(co_await f.path.begin(f.tenant, std::move(request), f.one));
  };
  spawn(ask());
  CHECK(f.answered(begun).status().code() == StatusCode::kNotFound);
  CHECK(asked == 1);
}

TEST_CASE("a layer is taken in among records that the store still writes", "[unit][pipeline]") {
  PutFixture f;
  const msg::BeginPut all = f.request(kUniform, Budget::all());
  const PutAlone alone(all);
  const PutPtr put = f.begin(all, f.one);
  const PutPtr among = f.begin(f.request(kUniform, Budget::entries(8), /*first=*/5000), f.other);
  f.store.hold();
  for (std::uint32_t layer = 0; layer + 1 < kLayers; ++layer) {
    for (const PutPtr& each : {put, among}) {
      f.push(each, f.layers[layer].heads(kUniform, 0, kHeads), each == put ? f.one : f.other);
      f.settle();
    }
  }
  REQUIRE(f.path.abort(*among).ok());
  f.settle();
  f.others_have = leave_apart(*f.arena, alone.layer_bytes_max);
  const auto& last = f.push(put, f.layers.back().heads(kUniform, 0, kHeads), f.one);
  f.settle();
  REQUIRE(last);
  CHECK(last->ok());
  CHECK(f.store.unchanged() == 2 * kLayers - 1);
  f.store.write_out();
  const auto& done = f.commit(put, f.one);
  f.settle();
  alone.check_is(f, done);
}

TEST_CASE("layers are read in place two at a time, and not behind one that was staged",
          "[unit][pipeline]") {
  PutFixture f;
  f.one.near = true;
  const msg::BeginPut all = f.request(kUniform, Budget::all());
  const PutPtr put = f.begin(all, f.one);
  std::promise<void> let_go;
  f.compute.post([held = let_go.get_future().share()] { held.wait(); });
  const auto push_from = [&](std::uint32_t first) {
    for (std::uint32_t layer = first; layer < kLayers; ++layer) {
      f.push(put, f.layers[layer].heads(kUniform, 0, kHeads), f.one);
    }
    f.turn_loop();
  };
  SECTION("read in place") {
    push_from(0);
    CHECK(f.one.read_now() == 2 * 2);  // keys and values
    let_go.set_value();
    f.check_taken_in(kLayers);
    CHECK(f.one.pulls() == 0);
    const auto& done = f.commit(put, f.one);
    f.settle();
    PutAlone(all).check_is(f, done);
  }
  SECTION("staged") {
    for (const std::uint32_t head : {0u, 1u})
      f.push(put, f.layers[0].heads(kUniform, head, 1), f.one);
    f.turn_loop();
    push_from(1);
    CHECK(f.one.read_now() == 0);
    let_go.set_value();
    f.check_taken_in(kLayers + 1);
    CHECK(f.one.pulls() > 0);
  }
  SECTION("given up") {
    push_from(0);
    REQUIRE(f.path.abort(*put).ok());
    let_go.set_value();
    f.settle();
    for (const auto& answer : f.pushes) {
      REQUIRE(answer);
      CHECK(answer->code() == StatusCode::kCanceled);
    }
    CHECK(f.arena->used_bytes() == 0);
  }
  CHECK(f.one.read_now() == 0);
}

TEST_CASE("waiters get what records shrink by, in turn", "[unit][pipeline]") {
  using Order = PutAlone::Order;
  const Order order = GENERATE(Order{0, 1, 2, 3}, Order{3, 2, 1, 0}, Order{2, 0, 3, 1});
  constexpr std::size_t kRead = 4096;
  PutFixture f;
  const msg::BeginPut quarter = f.request(kCompeting, Budget::ratio_ppm(250'000));
  const PutAlone alone(quarter, order);
  f.leave(alone.staged_bytes_max + kRead);
  // This buffer lies below all records until its reader releases it.
  HotTier::Lease read =
      f.hot_tier.insert("", SegmentId{}, 0, nullptr, f.arena->allocate(kRead).value());
  const PutPtr put = f.begin(quarter, f.one);
  const auto push = [&](std::uint32_t place) {
    f.push(put, f.layers[order[place]].heads(kCompeting, 0, kHeads), f.one);
  };
  push(0);
  f.settle();
  push(1);
  f.one.hold();
  push(2);
  // This request takes all memory that the three layers leave, to the last page.
  auto& rest = f.want(alone.staged_bytes_max + kRead - alone.held[2]);
  push(3);
  CHECK(f.memory.waiting() == 3);
  f.settle();
  CHECK(f.memory.waiting() == 2);
  CHECK_FALSE(rest);
  read.reset();
  f.one.let(3 * 2);  // keys, values and scores of each layer
  f.settle();
  REQUIRE(rest);
  REQUIRE(rest->ok());
  CHECK(f.memory.waiting() == 1);
  rest.reset();
  f.memory.retry();
  f.check_taken_in(kLayers);
  const auto& done = f.commit(put, f.one);
  f.settle();
  alone.check_is(f, done);
}

TEST_CASE("writers of one put commit together, whoever waits for memory meanwhile",
          "[unit][pipeline]") {
  PutFixture f;
  msg::BeginPut quarter = f.request(kCompeting, Budget::ratio_ppm(250'000));
  const PutAlone alone(quarter);
  f.leave(alone.staged_bytes_max);
  quarter.writers = 2;
  const PutPtr put = f.begin(quarter, f.one);
  REQUIRE(f.begin(quarter, f.other) == put);
  const auto push = [&](std::uint32_t layer, std::uint32_t head, NearWriter & from) -> auto& {
    return f.push(put, f.layers[layer].heads(kCompeting, head, 1), from);
  };
  f.other.hold();
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) push(layer, 0, f.one);
  for (std::uint32_t layer = 0; layer + 1 < kLayers; ++layer) push(layer, 1, f.other);
  // The other writer's last layer is being compressed when that writer asks for the commit.
  const auto& other_done =
      f.push_and_commit(put, f.layers[kLayers - 1].heads(kCompeting, 1, 1), f.other);
  const auto& one_done = f.commit(put, f.one);
  f.settle();
  CHECK(f.memory.waiting() == kLayers - 1);  // one piece of each layer waits
  CHECK_FALSE(one_done);
  f.other.let(3 * (kLayers - 1));  // keys, values and scores of each piece
  f.settle();
  CHECK(f.memory.waiting() == 0);
  CHECK_FALSE(one_done);
  CHECK(f.catalog->totals().segments == 0);
  auto& next = f.want(alone.staged_bytes_max);
  CHECK_FALSE(next);
  f.other.let(3);
  f.check_taken_in(2 * kLayers);
  REQUIRE((one_done && one_done->ok()));
  REQUIRE((other_done && other_done->ok()));
  CHECK((*one_done)->id == (*other_done)->id);
  REQUIRE(next);
  CHECK(next->ok());
  next.reset();
  alone.check_is(f, other_done);
}

TEST_CASE("a piece that found no memory in time may be pushed again, among others that did",
          "[unit][pipeline]") {
  PutFixture f(std::chrono::milliseconds(1));
  const msg::BeginPut half = f.request(kUniform, Budget::ratio_ppm(500'000));
  const PutPtr put = f.begin(half, f.one);
  const auto push = [&](std::uint32_t layer, std::uint32_t head, std::uint32_t begin,
                        std::uint32_t count) -> Status {
    return f.answered(f.push(put, f.layers[layer].piece(head, 1, begin, count), f.one));
  };
  for (const std::uint32_t head : {0u, 1u}) REQUIRE(push(0, head, 0, kTokens).ok());
  REQUIRE(push(2, 0, 0, kTokens).ok());
  f.settle();
  f.leave_nothing();
  // The second push waits for the first one's request for memory, then requests memory itself.
  auto& first = f.push(put, f.layers[1].piece(0, 1, 0, kTokens), f.one);
  auto& second = f.push(put, f.layers[1].piece(1, 1, 0, kTokens), f.one);
  CHECK(push(2, 1, 0, 20).ok());  // layer 2 has its memory
  for (auto* rejected : {&first, &second}) {
    const Status status = f.answered(*rejected);
    CHECK(status.code() == StatusCode::kRejected);
    CHECK(status.retry_after_ms() > 0);
    CHECK_THAT(status.message(), Catch::Contains("layer 1") && Catch::Contains("memory_bytes"));
  }
  CHECK(push(2, 1, 20, kTokens - 20).ok());
  f.others_have.clear();
  for (const std::uint32_t head : {1u, 0u}) CHECK(push(1, head, 0, kTokens).ok());
  for (const std::uint32_t head : {0u, 1u}) CHECK(push(3, head, 0, kTokens).ok());
  f.answered(f.commit(put, f.one));
  PutAlone(half).check_is(f, f.commits.back());
}

TEST_CASE("observations that found no memory in time may be pushed again", "[unit][pipeline]") {
  constexpr std::uint32_t kFirst = kTokens - kQueries;
  PutFixture f(std::chrono::milliseconds(1));
  const msg::BeginPut half = f.request(kObserving, Budget::ratio_ppm(500'000));
  const PutPtr put = f.begin(half, f.one);
  for (const PushedLayer& layer : f.layers) {
    msg::PushLayer rest = layer.piece(0, kHeads, kFirst, kQueries);
    layer.observe(rest);
    REQUIRE(f.answered(f.push(put, layer.piece(0, kHeads, 0, kFirst), f.one)).ok());
    f.settle();
    f.leave_nothing();
    CHECK(f.answered(f.push(put, rest, f.one)).code() == StatusCode::kRejected);
    f.others_have.clear();
    REQUIRE(f.answered(f.push(put, rest, f.one)).ok());
  }
  f.answered(f.commit(put, f.one));
  PutAlone(half).check_is(f, f.commits.back());
}

TEST_CASE("a push that does not fit the put is refused, and the put goes on", "[unit][pipeline]") {
  PutFixture f;
  const msg::BeginPut half = f.request(kUniform, Budget::ratio_ppm(500'000));
  const PutPtr put = f.begin(half, f.one);
  const auto push = [&](const msg::PushLayer& piece) -> Status {
    auto& answer = f.push(put, piece, f.one);
    f.settle();
    REQUIRE(answer);
    return *answer;
  };
  const auto check_refused = [&](const msg::PushLayer& piece, const std::string& why) {
    const Status status = push(piece);
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK_THAT(status.message(), Catch::Contains(why));
  };
  msg::PushLayer past = f.layers[0].piece(0, kHeads, 0, kTokens);
  past.layer = kLayers;
  check_refused(past, "layer is 4, the model has 4");
  for (const PushedLayer& layer : f.layers) {
    const std::string name = "layer " + std::to_string(layer.layer);
    const msg::PushLayer half_of_it = layer.piece(0, kHeads, 0, 20);
    REQUIRE(push(half_of_it).ok());
    check_refused(half_of_it, name + " head 0: tokens [0, 20) were pushed before");
    REQUIRE(push(layer.piece(0, kHeads, 20, kTokens - 20)).ok());
    check_refused(half_of_it, name + " is complete already");
  }
  const auto& done = f.commit(put, f.one);
  const auto& late = f.push(put, f.layers[0].piece(0, kHeads, 0, 20), f.one);
  f.settle();
  REQUIRE(late);
  CHECK(late->code() == StatusCode::kInvalidArgument);
  CHECK_THAT(late->message(), Catch::Contains("being committed"));
  PutAlone(half).check_is(f, done);
}

TEST_CASE("a put that is given up leaves its memory, whatever of it waits or is under way",
          "[unit][pipeline]") {
  PutFixture f;
  const msg::BeginPut quarter = f.request(kCompeting, Budget::ratio_ppm(250'000));
  const PutPtr put = f.begin(quarter, f.one);
  const std::size_t all = put->staged_bytes_max();
  f.leave(all);
  f.one.hold();
  const auto& pulled = f.push(put, f.layers[0].heads(kCompeting, 0, kHeads), f.one);
  const auto& waits = f.push(put, f.layers[1].heads(kCompeting, 0, kHeads), f.one);
  const auto& next = f.want(all);
  f.settle();
  CHECK_FALSE(waits);
  REQUIRE(f.path.abort(*put).ok());
  f.settle();
  REQUIRE(waits);
  CHECK(waits->code() == StatusCode::kCanceled);
  CHECK_FALSE(pulled);
  CHECK_FALSE(next);
  f.one.let(3);
  f.settle();
  REQUIRE(pulled);
  CHECK(pulled->code() == StatusCode::kCanceled);
  REQUIRE(next);
  CHECK(next->ok());
}

TEST_CASE("what a put keeps beside the arena counts in its room, and goes when it fails",
          "[unit][pipeline]") {
  PutFixture f;
  const PutPtr put = f.begin(f.request(kUniform, Budget::all()), f.one);
  const std::size_t blocks = kTokens / f.f.model.block_tokens;
  REQUIRE(put->row.blocks.size() == blocks);
  CHECK(put->kept_bytes() >= blocks * sizeof(Digest) + kLayers * sizeof(PutLayer));
  CHECK(f.room.taken_bytes() == put->staged_bytes_max() + put->kept_bytes());
  REQUIRE(f.path.abort(*put).ok());
  CHECK(f.room.taken_bytes() == 0);
  CHECK(put->row.blocks.capacity() == 0);
  CHECK(put->layers.empty());
}

TEST_CASE("pushed queries count in the put's room before they are pulled", "[unit][pipeline]") {
  const auto queries = [](const std::string& recipe) {
    PutFixture f;
    const PutPtr put = f.begin(f.request(recipe, Budget::all()), f.one);
    const std::size_t begun = f.room.taken_bytes();
    CHECK(begun == put->staged_bytes_max() + put->kept_bytes());
    f.one.hold();
    f.push(put, f.layers[0].heads(kObserving, 0, kHeads), f.one);
    f.push(put, f.layers[1].heads(kObserving, 0, kHeads), f.one);
    const std::size_t pushed = f.room.taken_bytes();
    CHECK(put->layers[0].rows->size_bytes(StagedLayer::Part::kObservations) ==
          put->layers[0].rows->read_observation_bytes() + pushed - begun);
    REQUIRE(f.path.abort(*put).ok());
    f.one.let(2 * 3);  // keys, values and queries of both layers
    f.settle();
    CHECK(f.room.taken_bytes() == 0);
    return std::pair(begun, pushed);
  };
  const auto [begun, pushed] = queries(kObserving);
  CHECK(pushed == begun);  // the recipe reads all of the queries
  const auto [begun_of_fewer, pushed_of_fewer] = queries("snapkv(window=2)");
  CHECK(begun_of_fewer < begun);
  CHECK(pushed_of_fewer > begun_of_fewer);
}

TEST_CASE("a put of what is stored already keeps nothing and takes no room", "[unit][pipeline]") {
  PutFixture f;
  const msg::BeginPut request = f.request(kUniform, Budget::all());
  const PutPtr first = f.begin(request, f.one);
  for (const PushedLayer& layer : f.layers) {
    f.push(first, layer.heads(kUniform, 0, kHeads), f.one);
    f.settle();
  }
  f.answered(f.commit(first, f.one));
  const std::size_t taken = f.room.taken_bytes();
  const PutPtr again = f.begin(request, f.other);
  REQUIRE(again->already_stored);
  CHECK(f.room.taken_bytes() == taken);
  CHECK(again->row.blocks.capacity() == 0);
  CHECK(again->layers.capacity() == 0);
  const auto& pushed = f.push(again, f.layers[0].heads(kUniform, 0, kHeads), f.other);
  f.settle();
  REQUIRE(pushed);
  CHECK(pushed->ok());
  CHECK(f.answered(f.commit(again, f.other)).ok());
}

}  // namespace precis

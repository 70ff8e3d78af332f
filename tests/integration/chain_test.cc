// Turns, partial hits and the sessions that name them.
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "tests/integration/random_kv.h"
#include "tests/integration/service_process.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kSeed = 20250613;

class ChainFixture {
 protected:
  TempDir dir;
  std::unique_ptr<ServiceProcess> service = std::make_unique<ServiceProcess>(dir);
  std::shared_ptr<Client> client = service->connect();
  Model model = client->register_model(tiny_model()).value();
  std::mt19937 random{kSeed};
  std::vector<TokenId> tokens = random_tokens(random, 640);

  PutOptions keep(double ratio) const {
    PutOptions options;
    options.recipe = "ada_keydiff";
    options.keep = Budget::ratio(ratio).value();
    return options;
  }
  std::vector<TokenId> first(std::size_t count) const {
    return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  void restart() {
    client.reset();
    CHECK(service->stop() == 0);
    service = std::make_unique<ServiceProcess>(dir);
    client = service->connect();
  }
};

TEST_CASE_METHOD(ChainFixture, "a second turn pushes its new tokens, and the chain is read as one",
                 "[integration]") {
  const Kv turn1 = random_kv(random, model.spec, 0, 300),
           turn2 = random_kv(random, model.spec, 300, 150);
  const auto root = put_all(*client, model, first(300), turn1, keep(1.0)).value();

  PutOptions options = keep(1.0);
  options.parent_read = Budget::ratio_ppm(500'000);
  Put put = client->begin_put(model, first(450), options).value();
  CHECK(put.begun().begin == 300);
  CHECK(put.begun().end == 450);
  CHECK(put.begun().parent == root.id);
  for (std::uint32_t l = 0; l < model.spec.num_layers; ++l) {
    REQUIRE(put.layer(l, turn2.layers[l].push()).ok());
  }
  const auto child = put.commit().value();
  CHECK(child.parent == root.id);
  CHECK(child.parent_read == options.parent_read);

  const LookupMatch match = client->lookup(model, tokens).value();
  REQUIRE(match.links.size() == 2);
  CHECK(match.matched_tokens == 450);
  CHECK(match.links[1].segment.id == child.id);
  const auto whole = read_all(*client, model, tokens).value();
  CHECK(entries_of(whole) == root.entries + child.entries);
  CHECK(rows_are_of(whole, {&turn1, &turn2}));
  const auto cut = read_all(*client, model, tokens, Budget::ratio_ppm(250'000)).value();
  CHECK(entries_of(cut) < entries_of(whole));
  CHECK(rows_are_of(cut, {&turn1, &turn2}));

  restart();
  CHECK(read_all(*client, model, tokens).value() == whole);
}

TEST_CASE_METHOD(ChainFixture, "an engine may push the KV of the whole path each turn",
                 "[integration]") {
  const Kv path = random_kv(random, model.spec, 0, 400);
  Kv turn1{0, 250, {}};
  {
    Put put = client->begin_put(model, first(250), keep(1.0)).value();
    for (std::uint32_t l = 0; l < model.spec.num_layers; ++l) {
      LayerPush push = path.layers[l].push();
      push.keys.num_tokens = push.values.num_tokens = 250;  // the heads are not contiguous
      REQUIRE(put.layer(l, push).ok());
    }
    REQUIRE(put.commit().ok());
  }
  const auto child = put_all(*client, model, first(400), path, keep(1.0));
  REQUIRE(child.ok());
  CHECK(child->begin == 250);
  const auto whole = read_all(*client, model, tokens).value();
  CHECK(entries_of(whole) == std::size_t{400} * 4 * 2);
  CHECK(rows_are_of(whole, {&path}));
}

TEST_CASE_METHOD(ChainFixture,
                 "a request that shares part of a segment gets its entries of that part",
                 "[integration]") {
  const Kv kv = random_kv(random, model.spec, 0, 640);
  REQUIRE(put_all(*client, model, tokens, kv, keep(0.5)).ok());
  auto other = tokens;
  other[200] ^= 1;  // shares 200 tokens: three whole blocks of 64
  const LookupMatch match = client->lookup(model, other).value();
  REQUIRE(match.matched_tokens == 192);
  CHECK(match.links.back().matched_end == 192);
  const Budget budget = GENERATE(Budget::all(), Budget::ratio_ppm(200'000));
  const auto part = read_all(*client, model, other, budget).value();
  auto expected = read_all(*client, model, tokens, budget).value();
  const std::size_t row_bytes = kv.layers[0].keys.view.row_bytes();
  for (auto& layer : expected) {
    for (HeadCopy& head : layer) {
      HeadCopy kept;
      for (std::size_t i = 0; i < head.positions.size(); ++i) {
        if (head.positions[i] >= 192) continue;
        const auto row = static_cast<std::ptrdiff_t>(i * row_bytes);
        const auto end = row + static_cast<std::ptrdiff_t>(row_bytes);
        kept.positions.push_back(head.positions[i]);
        kept.seats.push_back(head.seats[i]);
        kept.scores.push_back(head.scores[i]);
        kept.keys.insert(kept.keys.end(), head.keys.begin() + row, head.keys.begin() + end);
        kept.values.insert(kept.values.end(), head.values.begin() + row, head.values.begin() + end);
      }
      head = std::move(kept);
    }
  }
  CHECK(entries_of(part) > 0);
  CHECK(part == expected);

  other[0] ^= 1;
  CHECK_FALSE(client->lookup(model, other).value());
  CHECK(read_all(*client, model, other).status().code() == StatusCode::kNotFound);
}

TEST_CASE_METHOD(ChainFixture, "a get of more than a segment stores says what it stores",
                 "[integration]") {
  const Kv kv = random_kv(random, model.spec, 0, 640);
  REQUIRE(put_all(*client, model, tokens, kv, keep(0.25)).ok());
  const Status status = read_all(*client, model, tokens, Budget::ratio_ppm(500'000)).status();
  INFO(status.to_string());
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(status.message().find("0.25") != std::string::npos);
}

TEST_CASE_METHOD(ChainFixture, "a session follows its turns, forks, and outlives a restart",
                 "[integration]") {
  const auto root =
      put_all(*client, model, first(300), random_kv(random, model.spec, 0, 300), keep(0.5)).value();
  const auto child =
      put_all(*client, model, first(450), random_kv(random, model.spec, 300, 150), keep(0.5))
          .value();

  auto session = client->open_session("chat-42", 3600).value();
  CHECK(session.tip.is_null());
  CHECK(session.ttl_seconds == 3600);
  CHECK(client->advance_session("chat-42", root.id).value().tip_end == 300);
  REQUIRE(client->fork_session("chat-42", "chat-43").ok());
  session = client->advance_session("chat-42", child.id).value();
  CHECK(session.tip == child.id);
  CHECK(session.turns == 2);
  // Going back is not an advance.
  CHECK(client->advance_session("chat-42", root.id).status().code() ==
        StatusCode::kInvalidArgument);
  REQUIRE(client->pin_session("chat-42", true).ok());

  restart();
  session = client->session("chat-42").value();
  CHECK(session.tip == child.id);
  CHECK(session.pinned);
  CHECK(session.expires_unix_ms > session.updated_unix_ms);
  CHECK(client->session("chat-43").value().tip == root.id);
  CHECK(client->sessions().value().size() == 2);

  // A pinned tip and its ancestors stay; once unpinned they can be removed.
  CHECK(client->remove_segment(root.id, true).status().code() == StatusCode::kConflict);
  REQUIRE(client->pin_session("chat-42", false).ok());
  CHECK(client->remove_segment(root.id, false).status().code() == StatusCode::kConflict);
  CHECK(client->remove_segment(root.id, true).value().segments == 2);
  CHECK_FALSE(client->lookup(model, tokens).value());
  CHECK(client->session("chat-42").value().tip.is_null());

  CHECK(client->remove_session("chat-42").ok());
  CHECK(client->remove_session("chat-42").code() == StatusCode::kNotFound);
  CHECK(client->session("chat-42").status().code() == StatusCode::kNotFound);
}

TEST_CASE_METHOD(ChainFixture, "a lookup beside puts and removals finds or misses, and never fails",
                 "[integration]") {
  const Kv kv = random_kv(random, model.spec, 0, 64);
  std::atomic<bool> done{false};
  std::atomic<int> failed{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      const auto reader = service->connect();
      while (!done.load()) failed += reader->lookup(model, first(64)).ok() ? 0 : 1;
    });
  }
  for (int round = 0; round < 200; ++round) {
    const auto stored = put_all(*client, model, first(64), kv, keep(0.5));
    CHECK((stored.ok() && client->remove_segment(stored->id, false).ok()));
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(failed == 0);
}

}  // namespace

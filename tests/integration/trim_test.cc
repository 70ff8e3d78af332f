// Trimming: stored records cut at a smaller budget.
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <thread>

#include "tests/integration/options.h"
#include "tests/integration/stored_fixture.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kSeed = 20251122;
constexpr std::uint32_t kTokens = 500;

Budget ratio(double keep) { return Budget::ratio(keep).value(); }

PutOptions options(const std::string& recipe, double keep) {
  PutOptions options;
  options.recipe = recipe;
  options.keep = ratio(keep);
  return options;
}

using Sizes = std::array<std::uint64_t, 3>;
Sizes sizes(const msg::Trimmed& trimmed) {
  return {trimmed.entries, trimmed.stored_bytes, trimmed.freed_bytes};
}

class TrimFixture : protected StoredFixture {
 protected:
  TrimFixture() : StoredFixture(kSeed) {}
  Kv kv = random_kv(random, model.spec, 0, kTokens, 32);

  msg::SegmentInfo put(const std::vector<TokenId>& path, const PutOptions& how,
                       Durability durability = Durability::kWal) {
    return StoredFixture::put(path, kv, how, durability);
  }
};

TEST_CASE_METHOD(TrimFixture, "what trimming leaves is what a put at that budget stores",
                 "[integration]") {
  const std::string recipe =
      GENERATE(as<std::string>{}, "ada_keydiff", "global_kvdiff", "streaming_llm", "lava", "cake");
  CAPTURE(recipe);
  const auto path = random_tokens(random, kTokens), fresh_path = random_tokens(random, kTokens);
  const auto before = put(path, options(recipe, 0.6));
  const auto fresh = put(fresh_path, options(recipe, 0.25));

  const auto trimmed = client->trim_segment(before.id, ratio(0.25));
  INFO(trimmed.status().to_string());
  REQUIRE(trimmed.ok());
  const auto after = client->segment(before.id).value();
  CHECK(after.plan == fresh.plan);
  CHECK(after.stored_bytes == fresh.stored_bytes);
  CHECK(sizes(*trimmed) ==
        Sizes{fresh.entries, fresh.stored_bytes, before.stored_bytes - fresh.stored_bytes});
  REQUIRE(trimmed->kept_mass.size() == model.spec.num_layers);
  for (const float mass : trimmed->kept_mass) CHECK((mass >= 0 && mass <= 1));
  // Its id and its put's budget stay.
  CHECK(after.budget == ratio(0.6));
  CHECK(after.trimmed == ratio(0.25));
  CHECK(client->check_segment(before.id).value().damage.empty());

  const PrefixCopy expected = read(fresh_path);
  CHECK(read(path) == expected);
  CHECK(read(path, ratio(0.1)) == read(fresh_path, ratio(0.1)));
  service->kill();
  restart();
  CHECK(read(path) == expected);
  CHECK(client->segment(before.id).value().trimmed == ratio(0.25));
}

TEST_CASE_METHOD(TrimFixture, "a cut of another implementation's is trimmed to what it served",
                 "[integration]") {
  const auto path = random_tokens(random, kTokens);
  const auto before = put(path, options("keydiff_kvpress", 0.6));
  const PrefixCopy served = read(path, ratio(0.2));
  REQUIRE(client->trim_segment(before.id, ratio(0.2)).ok());
  CHECK(read(path) == served);
}

TEST_CASE_METHOD(TrimFixture, "trimming is refused above what is stored, and again changes nothing",
                 "[integration]") {
  const auto path = random_tokens(random, kTokens);
  const auto before = put(path, options("ada_keydiff", 0.6));
  const PrefixCopy stored = read(path);

  const auto above = client->trim_segment(before.id, ratio(0.7)).status();
  CHECK(above.code() == StatusCode::kConflict);
  CHECK(above.message().find("stores " + std::to_string(before.entries)) != std::string::npos);
  CHECK(client->trim_segment(before.id, Budget::loss(0.05).value()).status().code() ==
        StatusCode::kInvalidArgument);
  CHECK(client->trim_segment(SegmentId{{1}}, ratio(0.5)).status().code() == StatusCode::kNotFound);
  CHECK(client->trim_segment(before.id, ratio(0.6)).value().freed_bytes == 0);
  CHECK_FALSE(client->segment(before.id).value().trimmed);

  const auto dry = client->trim_segment(before.id, ratio(0.3), Durability::kWal, /*dry_run=*/true);
  CHECK(client->segment(before.id).value().entries == before.entries);
  CHECK(read(path) == stored);
  CHECK(client->trim_segment(before.id, ratio(0.3)).value() == dry.value());
  CHECK(dry->freed_bytes > 0);
  CHECK(sizes(client->trim_segment(before.id, ratio(0.3)).value()) ==
        Sizes{dry->entries, dry->stored_bytes, 0});
  CHECK(client->trim_segment(before.id, Budget::entries(20)).value().entries == 20u * 8);
  const auto gone = read_all(*client, model, path, ratio(0.3)).status();
  CHECK(gone.code() == StatusCode::kInvalidArgument);
  CHECK(gone.message().find("20 entries") != std::string::npos);
  CHECK(stat(*client, "precis_staged_bytes") == 0);
  CHECK(stat(*client, "precis_stored_bytes") == client->segment(before.id).value().stored_bytes);
}

TEST_CASE_METHOD(TrimFixture, "what stands on a trimmed segment stays, and a put again restores it",
                 "[integration]") {
  auto path = random_tokens(random, kTokens);
  const auto parent = put(path, options("ada_keydiff", 0.6));
  const PrefixCopy stored = read(path);
  auto longer = path;
  for (const TokenId token : random_tokens(random, 200)) longer.push_back(token);
  const Kv more = random_kv(random, model.spec, kTokens, 200);
  REQUIRE(put_all(*client, model, longer, more, options("ada_keydiff", 0.5)).ok());
  const PrefixCopy whole = read(longer);

  REQUIRE(client->trim_segment(parent.id, ratio(0.2)).ok());
  CHECK(client->segment(parent.id).value().children == 1);
  CHECK(client->lookup(model, longer).value().matched_tokens == longer.size());
  CHECK(read(longer, ratio(0.2)).size() == whole.size());
  CHECK(rows_are_of(read(longer), {&kv, &more}));

  auto again = client->begin_put(model, path, options("ada_keydiff", 0.6)).value();
  CHECK_FALSE(again.begun().already_stored);
  CHECK(again.begun().segment == parent.id);
  for (std::uint32_t l = 0; l < model.spec.num_layers; ++l) {
    REQUIRE(again.layer(l, kv.layers[l].push()).ok());
  }
  const auto restored = again.commit().value();
  CHECK(restored.plan == parent.plan);
  CHECK_FALSE(restored.trimmed);
  CHECK(read(path) == stored);
  CHECK(read(longer) == whole);
  CHECK(client->begin_put(model, path, options("ada_keydiff", 0.6)).value().begun().already_stored);
  service->kill();
  restart();
  CHECK(read(longer) == whole);
}

TEST_CASE_METHOD(TrimFixture, "a reader gets its cut of a segment that is trimmed, or a clear no",
                 "[integration]") {
  const auto path = random_tokens(random, kTokens);
  const auto how = options("ada_keydiff", 0.6);
  const auto id = put(path, how).id;
  const std::vector<Budget> budgets = {Budget::all(), ratio(0.5), ratio(0.3), ratio(0.1)};
  std::vector<PrefixCopy> expected;
  for (const Budget& budget : budgets) expected.push_back(read(path, budget));
  const LookupMatch match = client->lookup(model, path).value();  // the reader's knowledge

  std::atomic<bool> done{false};
  std::atomic<int> served{0}, refused{0}, wrong{0};
  const auto read_on = [&](std::uint32_t seed) {
    const auto reader = service->connect();
    std::mt19937 dice(seed);
    while (!done.load()) {
      const std::size_t which = dice() % budgets.size();
      const auto prefix = reader->get(match, budgets[which]);
      Status status = prefix.status();
      if (status.ok()) status = prefix->wait();
      if (!status.ok()) {
        const bool clear =
            status.code() == StatusCode::kNotFound || status.code() == StatusCode::kInvalidArgument;
        // Every trim leaves a tenth, but a new put may come in between.
        ++(clear ? refused : wrong);
        continue;
      }
      ++(copy_of(*prefix) == expected[which] ? served : wrong);
    }
  };
  std::vector<std::thread> readers;
  for (const std::uint32_t seed : {1u, 2u}) readers.emplace_back(read_on, seed);
  for (int round = 0; round < 30; ++round) {
    for (const double keep : {0.4, 0.2}) CHECK(client->trim_segment(id, ratio(keep)).ok());
    CHECK(put_all(*client, model, path, kv, how).ok());
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(wrong == 0);
  CHECK(served > 0);
  CHECK(stat(*client, "precis_quarantined_segments") == 0);
  CHECK(stat(*client, "precis_corrupt_layers_total") == 0);
  CHECK(read(path) == expected[0]);
}

TEST_CASE_METHOD(TrimFixture, "trims alone disturb no reader of a budget that they leave",
                 "[integration]") {
  const auto path = random_tokens(random, kTokens);
  const auto id = put(path, options("ada_keydiff", 1.0)).id;
  const PrefixCopy expected = read(path, ratio(0.1));
  const LookupMatch match = client->lookup(model, path).value();
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::thread reader([&] {
    const auto other = service->connect();
    while (!done.load()) {
      const auto prefix = other->get(match, ratio(0.1));
      if (!prefix.ok() || !prefix->wait().ok() || copy_of(*prefix) != expected) ++wrong;
    }
  });
  for (int keep = 99; keep > 10; --keep) CHECK(client->trim_segment(id, ratio(keep / 100.)).ok());
  done = true;
  reader.join();
  CHECK(wrong == 0);
}

TEST_CASE_METHOD(TrimFixture, "a SIGKILL around a trim leaves what was or what will be, whole",
                 "[integration]") {
  constexpr int kKills = 8;
  const auto path = random_tokens(random, kTokens);
  const auto how = options("ada_keydiff", 0.6);
  const auto id = put(path, how).id;
  const PrefixCopy was = read(path), will_be = read(path, ratio(0.2));
  for (int i = 0; i < kKills; ++i) {
    const auto spin = std::chrono::microseconds(random() % 4000);
    CAPTURE(i, spin.count());
    Status answered = Status::internal("not asked");
    const auto asker = service->connect(only_once());
    std::thread trimmer([&] { answered = asker->trim_segment(id, ratio(0.2)).status(); });
    const auto until = std::chrono::steady_clock::now() + spin;
    while (std::chrono::steady_clock::now() < until) {
    }
    service->kill();
    trimmer.join();
    restart();
    const PrefixCopy now = read(path);
    if (answered.ok()) {
      CHECK(now == will_be);
    } else {
      CHECK((now == was || now == will_be));
    }
    CHECK(client->check_segment(id).value().damage.empty());
    REQUIRE(put_all(*client, model, path, kv, how).ok());
    CHECK(read(path) == was);
  }
}

TEST_CASE("to another tenant there is nothing to trim", "[integration]") {
  const TempDir dir;
  std::ofstream(dir.path("precisd.toml")) << "[[tenant]]\nname = \"red\"\ntoken = \"r\"\n"
                                             "[[tenant]]\nname = \"blue\"\ntoken = \"b\"\n";
  ServiceProcess service(dir, {"--config", dir.path("precisd.toml")});
  ConnectOptions as;
  as.tenant = "red";
  as.token = "r";
  const auto red = service.connect(as);
  const Model model = red->register_model(tiny_model()).value();
  std::mt19937 random(kSeed);
  const auto path = random_tokens(random, 200);
  const Kv kv = random_kv(random, model.spec, 0, 200);
  const auto stored = put_all(*red, model, path, kv, options("ada_keydiff", 0.6)).value();
  as.tenant = "blue";
  as.token = "b";
  const auto refused = service.connect(as)->trim_segment(stored.id, ratio(0.2)).status();
  CHECK(refused.code() == StatusCode::kNotFound);
  CHECK(red->segment(stored.id).value().entries == stored.entries);
}

}  // namespace

// Splitting: a put whose path leaves a stored segment shares the segment's first part.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "tests/integration/options.h"
#include "tests/integration/stored_fixture.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kSeed = 20261126;
constexpr std::uint32_t kShared = 256, kTokens = 500;  // the model's blocks have 64 tokens

PutOptions options(const std::string& recipe = "ada_keydiff", double keep = 0.5) {
  PutOptions options;
  options.recipe = recipe;
  options.keep = Budget::ratio(keep).value();
  return options;
}

class SplitFixture : protected StoredFixture {
 protected:
  SplitFixture() : StoredFixture(kSeed) {}
  // Two paths with kShared tokens in common, and their KV.
  std::vector<TokenId> first = random_tokens(random, kTokens), second = leaves(first, kShared, 150);
  Kv first_kv = random_kv(random, model.spec, 0, kTokens, 32);
  Kv rest_kv = random_kv(random, model.spec, kShared, 150, 32);

  std::vector<TokenId> leaves(const std::vector<TokenId>& path, std::uint32_t at,
                              std::uint32_t more) {
    std::vector<TokenId> other(path.begin(), path.begin() + at);
    for (const TokenId token : random_tokens(random, more)) other.push_back(token);
    return other;
  }
  msg::SegmentInfo put(const std::vector<TokenId>& path, const Kv& kv,
                       const PutOptions& how = options()) {
    return StoredFixture::put(path, kv, how);
  }
};

TEST_CASE_METHOD(SplitFixture, "a put that leaves a stored segment shares the part before it",
                 "[integration]") {
  const std::string recipe = GENERATE(as<std::string>{}, "ada_keydiff", "global_kvdiff", "lava",
                                      "streaming_llm", "snapkv");
  CAPTURE(recipe);
  const auto whole = put(first, first_kv, options(recipe));
  const PrefixCopy stored = by_position(read(first));

  const auto added = put(second, rest_kv, options(recipe));
  CHECK(added.begin == kShared);
  const auto part = client->segment(added.parent).value();
  const auto tail = client->segment(whole.id).value();
  CHECK(part.begin == 0);
  CHECK(part.end == kShared);
  CHECK(part.children == 2);
  CHECK(tail.begin == kShared);
  CHECK(tail.parent == part.id);
  CHECK(part.entries + tail.entries == whole.entries);
  CHECK(part.original_bytes + tail.original_bytes == whole.original_bytes);
  CHECK(stat(*client, "precis_stored_bytes") ==
        part.stored_bytes + tail.stored_bytes + added.stored_bytes);
  CHECK(stat(*client, "precis_splits_total") == 1);
  for (const SegmentId& id : {part.id, tail.id, added.id}) {
    CHECK(client->check_segment(id).value().damage.empty());
  }

  CHECK(by_position(read(first)) == stored);
  CHECK(rows_are_of(read(second), {&first_kv, &rest_kv}));
  // A reader at the stored budget gets all, and a smaller budget reads its share of each part.
  CHECK(by_position(*read_all(*client, model, first, *options().keep)) == stored);
  const auto fifth = read_all(*client, model, first, Budget::ratio(0.1).value());
  REQUIRE(fifth.ok());
  // Each head's count is rounded down.
  CHECK(entries_of(*fifth) * 5 <= whole.entries);
  CHECK(entries_of(*fifth) * 5 + 100 >= whole.entries);
  const PrefixCopy other = read(second);
  for (std::size_t l = 0; l < other.size(); ++l) {
    for (std::size_t h = 0; h < other[l].size(); ++h) {
      const auto shared = [](std::uint32_t position) { return position < kShared; };
      CHECK(std::ranges::count_if(other[l][h].positions, shared) ==
            std::ranges::count_if(stored[l][h].positions, shared));
    }
  }
  service->kill();
  restart();
  CHECK(by_position(read(first)) == stored);
  CHECK(read(second) == other);
}

TEST_CASE_METHOD(SplitFixture, "a split path is put again without storing anything",
                 "[integration]") {
  const auto whole = put(first, first_kv);
  put(second, rest_kv);
  const auto again = client->begin_put(model, first, options()).value();
  CHECK(again.begun().already_stored);
  CHECK(again.begun().segment == whole.id);
  auto other = options();
  other.parent = SegmentId{};  // as the whole was put
  CHECK(client->begin_put(model, first, other).value().begun().already_stored);
}

TEST_CASE_METHOD(SplitFixture, "sessions and later turns keep a segment that is split",
                 "[integration]") {
  const auto whole = put(first, first_kv);
  auto longer = first;
  for (const TokenId token : random_tokens(random, 90)) longer.push_back(token);
  const Kv turn = random_kv(random, model.spec, kTokens, 90, 32);
  const auto child = put(longer, turn);
  REQUIRE(client->open_session("talk", std::nullopt).ok());
  REQUIRE(client->advance_session("talk", whole.id).ok());
  const PrefixCopy stored = by_position(read(longer));

  put(second, rest_kv);
  CHECK(by_position(read(longer)) == stored);
  CHECK(client->segment(child.id).value().parent == whole.id);
  CHECK(client->session("talk").value().tip == whole.id);
  CHECK(client->advance_session("talk", child.id).ok());
}

TEST_CASE_METHOD(SplitFixture, "the second part is trimmed and restored like a segment",
                 "[integration]") {
  const auto whole = put(first, first_kv);
  put(second, rest_kv);
  const auto tail = client->segment(whole.id).value();
  REQUIRE(client->trim_segment(whole.id, Budget::ratio(0.1).value()).ok());
  CHECK(client->segment(whole.id).value().entries < tail.entries);
  CHECK(rows_are_of(read(first), {&first_kv}));
  // A put of the whole path from the root stores the whole segment again.
  auto from_root = options();
  from_root.parent = SegmentId{};
  const auto again = put(first, first_kv, from_root);
  CHECK(again.id == whole.id);
  CHECK(again.begin == 0);
  CHECK(again.entries == whole.entries);
  CHECK(rows_are_of(read(second), {&first_kv, &rest_kv}));
}

TEST_CASE_METHOD(SplitFixture, "parts read at a budget what the whole would", "[integration]") {
  const std::string recipe = GENERATE(as<std::string>{}, "global_kvdiff(min_entries=128)",
                                      "ada_keydiff", "knorm(min_entries=64)");
  CAPTURE(recipe);
  const auto whole = put(first, first_kv, options(recipe, 0.6));
  const std::vector<Budget> budgets = {Budget::ratio(0.3).value(), Budget::ratio(0.05).value(),
                                       Budget::entries(100), Budget::bytes(40'000)};
  std::vector<std::size_t> entries;
  for (const Budget& budget : budgets) {
    entries.push_back(entries_of(*read_all(*client, model, first, budget)));
  }
  for (const std::uint32_t end : {64u, 192u, 320u, 448u}) {
    auto named = options(recipe, 0.6);
    named.parent = whole.id;
    named.parent_end = end;
    REQUIRE(client->begin_put(model, leaves(first, end, 10), named).ok());
  }
  REQUIRE(client->lookup(model, first).value().links.size() == 5);
  for (std::size_t i = 0; i < budgets.size(); ++i) {
    CAPTURE(budgets[i].to_string());
    const std::size_t read = entries_of(*read_all(*client, model, first, budgets[i]));
    CHECK(read <= entries[i]);
    CHECK(read + 5 * 8 >= entries[i]);  // each part's counts are rounded down
  }
  const auto trimmed = client->trim_segment(whole.id, Budget::ratio(0.3).value()).value();
  CHECK(trimmed.freed_bytes > 0);
  CHECK(client->trim_segment(whole.id, Budget::ratio(0.3).value()).value().freed_bytes == 0);
}

TEST_CASE_METHOD(SplitFixture, "a put restores parts that were trimmed, and can be split again",
                 "[integration]") {
  auto from_root = options();
  from_root.parent = SegmentId{};
  const auto whole = put(first, first_kv, from_root);
  const PrefixCopy stored = by_position(read(first));
  const auto added = put(second, rest_kv);
  REQUIRE(client->begin_put(model, first, from_root).value().begun().already_stored);
  REQUIRE(client->trim_segment(added.parent, Budget::ratio(0.1).value()).ok());
  CHECK_FALSE(client->begin_put(model, first, from_root).value().begun().already_stored);
  CHECK(put(first, first_kv, from_root).id == whole.id);
  CHECK(by_position(read(first)) == stored);

  auto named = options();
  named.parent = whole.id;
  named.parent_end = kShared;
  const auto again = client->begin_put(model, leaves(first, kShared, 20), named);
  INFO(again.status().to_string());
  REQUIRE(again.ok());
  CHECK(again->begun().parent == added.parent);
  CHECK(by_position(read(first)) == stored);
  CHECK(rows_are_of(read(second), {&first_kv, &rest_kv}));
}

TEST_CASE_METHOD(SplitFixture, "a segment is not split unasked for a small part of it",
                 "[integration]") {
  const auto path = random_tokens(random, 1024);
  put(path, random_kv(random, model.spec, 0, 1024));
  const auto other = leaves(path, 64, 100);
  const auto root = client->begin_put(model, other, options()).value();
  CHECK(root.begun().begin == 0);
  CHECK(stat(*client, "precis_splits_total") == 0);

  auto named = options();
  named.parent = client->lookup(model, path).value().links.front().segment.id;
  named.parent_end = 64;
  CHECK(client->begin_put(model, other, named).value().begun().begin == 64);
  CHECK(stat(*client, "precis_splits_total") == 1);
}

TEST_CASE_METHOD(SplitFixture, "a put names the token of its parent at which it begins",
                 "[integration]") {
  const auto whole = put(first, first_kv);
  auto named = options();
  named.parent = whole.id;
  const auto refused = [&](std::uint32_t end, const std::vector<TokenId>& path) {
    named.parent_end = end;
    const Status status = client->begin_put(model, path, named).status();
    CHECK(status.code() == StatusCode::kInvalidArgument);
    return status.message();
  };
  CHECK(refused(100, second).find("multiple of 64 tokens") != std::string::npos);
  CHECK(refused(kTokens + 1, second).find("ends at token 500") != std::string::npos);
  CHECK(refused(320, second).find("does not hold tokens [0, 320)") != std::string::npos);
  CHECK(refused(kShared, std::vector(first.begin(), first.begin() + kShared))
            .find("needs tokens past") != std::string::npos);
  named.parent = std::nullopt;
  CHECK(refused(64, second).find("names no parent") != std::string::npos);
  CHECK(stat(*client, "precis_splits_total") == 0);

  named.parent = whole.id;
  for (const std::uint32_t end : {kShared, 128u, kShared, 192u}) {
    named.parent_end = end;
    const auto begun = client->begin_put(model, second, named).value().begun();
    CHECK(begun.begin == end);
    CHECK(client->segment(begun.parent).value().end == end);
  }
  CHECK(stat(*client, "precis_splits_total") == 3);
  CHECK(client->lookup(model, first).value().links.size() == 4);
  CHECK(rows_are_of(read(first), {&first_kv}));
}

TEST_CASE_METHOD(SplitFixture, "a get of a segment that is split gets all of it or a clear no",
                 "[integration]") {
  put(first, first_kv);
  const PrefixCopy stored = read(first);
  const LookupMatch match = client->lookup(model, first).value();
  std::atomic<bool> done{false};
  std::atomic<int> served{0}, wrong{0};
  std::thread reader([&] {
    const auto other = service->connect();
    while (!done.load()) {
      const auto prefix = other->get(match);
      Status status = prefix.status();
      if (status.ok()) status = prefix->wait();
      if (status.ok()) {
        ++(copy_of(*prefix) == stored ? served : wrong);
      } else if (status.code() != StatusCode::kNotFound) {
        ++wrong;
      }
    }
  });
  while (served == 0 && wrong == 0) std::this_thread::yield();
  put(second, rest_kv);
  done = true;
  reader.join();
  CHECK(wrong == 0);
  const auto later = client->get(match);
  CHECK((later.ok() ? later->wait() : later.status()).code() == StatusCode::kNotFound);
}

TEST_CASE_METHOD(SplitFixture, "a lease keeps a segment that is split readable", "[integration]") {
  put(first, first_kv);
  const PrefixCopy stored = read(first);
  LookupOptions leased;
  leased.lease = std::chrono::seconds(20);
  const LookupMatch held = client->lookup(model, first, leased).value();
  REQUIRE(held.lease_ms > 0);
  put(second, rest_kv);
  const auto prefix = client->get(held).value();
  REQUIRE(prefix.wait().ok());
  CHECK(copy_of(prefix) == stored);
}

TEST_CASE_METHOD(SplitFixture, "a SIGKILL around a split leaves one segment or its two parts",
                 "[integration]") {
  put(first, first_kv);
  const PrefixCopy stored = by_position(read(first));
  std::uint32_t position = 448;
  for (int i = 0; i < 6; ++i, position -= 64) {
    const auto path = leaves(first, position, 30);
    const auto spin = std::chrono::microseconds(random() % 6000);
    CAPTURE(i, spin.count());
    auto named = options();
    named.parent = client->lookup(model, first).value().links.front().segment.id;
    named.parent_end = position;
    const auto asker = service->connect(only_once());
    std::thread putter([&] { (void)asker->begin_put(model, path, named); });
    const auto until = std::chrono::steady_clock::now() + spin;
    while (std::chrono::steady_clock::now() < until) {
    }
    service->kill();
    putter.join();
    restart();
    CHECK(by_position(read(first)) == stored);
    const auto segments = client->segments().value();
    for (const auto& info : segments) {
      CHECK(client->check_segment(info.id).value().damage.empty());
    }
  }
}

}  // namespace

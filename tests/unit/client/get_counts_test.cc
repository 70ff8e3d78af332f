// Gets of counted matches, and of some heads.
#include <catch2/catch.hpp>
#include <cstring>

#include "tests/unit/client/fake_server.h"
#include "tests/unit/client/serving.h"
#include "tests/unit/client/stored_prefix.h"

namespace {

using namespace precis;
using namespace precis::testing;

LookupMatch counted_match(const Serving& serving, std::uint64_t entries) {
  LookupMatch match = match_of(serving.model, serving.segments);
  count_all(match, serving.segments, entries);
  return match;
}

void check_same(const HeadEntries& head, const HeadEntries& expected) {
  CHECK(std::ranges::equal(head.positions, expected.positions));
  CHECK(std::ranges::equal(head.seats, expected.seats));
  REQUIRE(head.keys.size_bytes() == expected.keys.size_bytes());
  CHECK(std::memcmp(head.keys.data, expected.keys.data, head.keys.size_bytes()) == 0);
  CHECK(std::memcmp(head.values.data, expected.values.data, head.values.size_bytes()) == 0);
}

TEST_CASE("a get of a counted match brings exactly the first entries of every segment",
          "[client]") {
  const Serving serving = three_segments(small_model(), GENERATE(false, true));
  FakeServer server(serving);
  const auto client = server.connect().value();
  LookupMatch match = counted_match(serving, 500);
  match.links[0].counts[3] = 2;  // a count that no cut has
  match.plan.counts[3] = 2 + match.links[1].counts[3] + match.links[2].counts[3];
  match.links[2].counts[4] = 0;
  match.plan.counts[4] = match.links[0].counts[4] + match.links[1].counts[4];
  const Prefix prefix = client->get(match).value();
  REQUIRE(prefix.wait().ok());
  CHECK(prefix.plan() == match.plan);
  for (std::uint32_t l = 0; l < 3; ++l) {
    for (std::uint32_t h = 0; h < 2; ++h) {
      std::vector<std::uint32_t> seats;
      for (std::size_t link = 0; link < 3; ++link) {
        for (std::uint32_t i = 0; i < match.links[link].counts[2 * l + h]; ++i) {
          seats.push_back(serving.segments[link].entries[l][h][i].seat);
        }
      }
      CHECK(std::ranges::equal(prefix.head(l, h).seats, seats));
    }
  }
}

TEST_CASE("a service that serves other counts than were asked for is found out", "[client]") {
  Serving serving = three_segments(small_model());
  const Serving other = serving;
  serving.damage = [&](ServedBytes& served) {
    if (served.message.layer != 1) return;
    msg::Get get;
    get.links.resize(3);
    ServedBytes more = other.serve(get, 1);  // all that is stored
    more.message.id = served.message.id;
    more.message.offset = served.message.offset;
    served.message = more.message;
  };
  FakeServer server(serving);
  const auto client = server.connect().value();
  const Prefix prefix = client->get(counted_match(serving, 300)).value();
  const Status status = prefix.wait();
  CHECK(status.code() == StatusCode::kCorruption);
  CHECK_THAT(status.message(), Catch::Contains("were asked for"));
}

TEST_CASE("some heads of a prefix are as they are in the whole", "[client]") {
  const Serving serving = three_segments(small_model(), GENERATE(false, true));
  FakeServer server(serving);
  const auto client = server.connect().value();
  LookupMatch match = match_of(serving.model, serving.segments);
  const bool counted = GENERATE(false, true);
  if (counted) match = counted_match(serving, 900);
  match.links.back().matched_end = match.matched_tokens = GENERATE(500u, 400u);
  const Prefix whole = client->get(match).value();
  REQUIRE(whole.wait().ok());
  for (std::uint32_t h = 0; h < 2; ++h) {
    GetOptions options;
    options.head_begin = h;
    options.head_count = 1;
    const Prefix prefix = client->get(match, Budget::all(), options).value();
    const Status status = prefix.wait();
    INFO(status.to_string());
    REQUIRE(status.ok());
    CHECK(prefix.num_heads() == 1);
    CHECK(prefix.plan().num_kv_heads == 1);
    CHECK(prefix.bytes() < whole.bytes());
    for (std::uint32_t l = 0; l < 3; ++l) {
      CHECK(prefix.plan().at(l, 0) == whole.plan().at(l, h));
      check_same(prefix.head(l, 0), whole.head(l, h));
    }
  }
}

TEST_CASE("a service that serves other heads than were asked for is found out", "[client]") {
  Serving serving = one_segment(small_model(), 600, 600);
  serving.damage = [](ServedBytes& served) {
    served.message.counts.push_back(1);
    served.message.tail_checksums.emplace_back();
  };
  FakeServer server(serving);
  const auto client = server.connect().value();
  GetOptions options;
  options.head_begin = 1;
  const auto prefix =
      client->get(match_of(serving.model, serving.segments), Budget::all(), options).value();
  CHECK(prefix.wait().code() == StatusCode::kCorruption);
}

TEST_CASE("a lookup that asks for counts is told where the service does not count", "[client]") {
  const Serving serving = one_segment(small_model(), 600, 600);
  FakeServer server([&](FakeServer& self, const msg::Request& request) {
    self.reply(request.id,
               static_cast<const msg::Match&>(match_of(serving.model, serving.segments)));
  });
  const auto client = server.connect().value();
  Model model;
  model.spec = serving.model;
  const std::vector<TokenId> tokens(400);
  CHECK(client->lookup(model, tokens).ok());
  CHECK(client->lookup(model, tokens, {.align = 16}).status().code() == StatusCode::kUnsupported);
  CHECK_THAT(client->lookup(model, tokens, {.align = 0}).status().message(),
             Catch::Contains("align is 0, must be in [1, 4096]"));
  CHECK_THAT(client->lookup(model, tokens, {.keep = Budget::loss(0.5).value()}).status().message(),
             Catch::Contains("keep is loss 0.5, and a loss is for puts"));
}

}  // namespace

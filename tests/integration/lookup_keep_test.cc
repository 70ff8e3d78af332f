// Lookups that return the exact counts of a get, and gets of these entries or of some heads.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/integration/random_kv.h"
#include "tests/integration/service_process.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kSeed = 20250928;

// A chain of three segments; the second one stores the least.
class CountedFixture {
 protected:
  TempDir dir;
  std::unique_ptr<ServiceProcess> service = std::make_unique<ServiceProcess>(dir);
  std::shared_ptr<Client> client = service->connect();
  Model model = client->register_model(tiny_model()).value();
  std::mt19937 random{kSeed};
  std::vector<TokenId> tokens = random_tokens(random, 640);
  std::vector<msg::SegmentInfo> segments{put(0, 300, 0.6), put(300, 420, 0.2), put(420, 640, 0.5)};

  msg::SegmentInfo put(std::uint32_t begin, std::uint32_t end, double keep) {
    PutOptions options;
    options.recipe = "global_kvdiff";
    options.keep = Budget::ratio(keep).value();
    const Kv kv = random_kv(random, model.spec, begin, end - begin);
    return put_all(*client, model, first(end), kv, options).value();
  }
  std::vector<TokenId> first(std::size_t count) const {
    return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  // A path that ends in the last segment: 512 of its tokens match.
  std::vector<TokenId> in_part() const {
    auto other = tokens;
    other[550] ^= 1;
    return other;
  }
  void restart() {
    client.reset();
    CHECK(service->stop() == 0);
    service = std::make_unique<ServiceProcess>(dir);
    client = service->connect();
  }
  LookupMatch find(const std::vector<TokenId>& path, const LookupOptions& options = {}) {
    auto match = client->lookup(model, path, options);
    INFO(match.status().to_string());
    REQUIRE(match.ok());
    return std::move(match).value();
  }
  Prefix get(const LookupMatch& match, const Budget& keep = Budget::all(),
             const GetOptions& options = {}) {
    auto prefix = client->get(match, keep, options);
    const Status status = prefix.ok() ? prefix->wait() : prefix.status();
    INFO(status.to_string());
    REQUIRE(status.ok());
    return std::move(prefix).value();
  }
  // Checks that the match serves the first counted entries of each segment.
  void check_first_entries(const LookupMatch& match, const std::vector<TokenId>& path) {
    const Prefix all = get(find(path));
    const Prefix prefix = get(match);
    CHECK(prefix.plan() == match.plan);
    for (std::uint32_t l = 0; l < model.spec.num_layers; ++l) {
      for (std::uint32_t h = 0; h < model.spec.num_kv_heads; ++h) {
        const HeadEntries whole = all.head(l, h), part = prefix.head(l, h);
        std::size_t at = 0, i = 0;
        for (const msg::MatchLink& link : match.links) {
          const std::uint32_t count = link.counts[l * model.spec.num_kv_heads + h];
          std::uint32_t taken = 0;
          for (; at < whole.positions.size() && whole.positions[at] < link.segment.end; ++at) {
            if (i >= part.positions.size() || part.positions[i] != whole.positions[at]) continue;
            CHECK(part.seats[i] == whole.seats[at]);
            CHECK(taken == at - begin_of(whole, link.segment.begin));  // without a gap
            ++taken;
            ++i;
          }
          CHECK(taken <= count);
          if (link.matched_end == link.segment.end) CHECK(taken == count);
        }
        CHECK(i == part.positions.size());
      }
    }
  }
  static std::size_t begin_of(const HeadEntries& head, std::uint32_t token) {
    std::size_t at = 0;
    while (at < head.positions.size() && head.positions[at] < token) ++at;
    return at;
  }
};

TEST_CASE_METHOD(CountedFixture, "a lookup at a budget says the plan of a get at it",
                 "[integration]") {
  const bool cold = GENERATE(false, true);
  const bool partial = GENERATE(false, true);
  CAPTURE(cold, partial);
  const auto path = partial ? in_part() : tokens;
  for (const Budget& keep :
       {Budget::ratio_ppm(100'000), Budget::ratio_ppm(200'000), Budget::entries(5)}) {
    if (cold) restart();
    const LookupMatch match = find(path, {.keep = keep});
    CHECK(match.counted());
    CHECK(match.matched_tokens == (partial ? 512 : 640));
    const Prefix expected = get(find(path), keep);
    CHECK(match.plan == expected.plan());
    const Prefix prefix = get(match);
    CHECK(prefix.plan() == match.plan);
    CHECK(prefix.bytes() <= match.bytes);
    CHECK(copy_of(prefix) == copy_of(expected));
  }
  // A segment that stores less than asked for gives what it stores.
  CHECK(find(path, {.keep = Budget::all()}).plan == get(find(path)).plan());
  const LookupMatch most = find(tokens, {.keep = Budget::ratio_ppm(500'000)});
  CHECK(most.links[1].counts == client->segment(segments[1].id).value().plan->counts);
  CHECK(client->get(find(tokens), Budget::ratio_ppm(500'000)).status().code() ==
        StatusCode::kInvalidArgument);
  check_first_entries(most, tokens);
}

TEST_CASE_METHOD(CountedFixture, "a lookup in pages gives every head whole pages",
                 "[integration]") {
  const std::uint32_t align = GENERATE(2u, 16u, 64u, 256u);
  const bool partial = GENERATE(false, true);
  CAPTURE(align, partial);
  const auto path = partial ? in_part() : tokens;
  const Plan stored = get(find(path)).plan();
  for (const auto& keep : {std::optional<Budget>(), std::optional(Budget::ratio_ppm(100'000))}) {
    const Plan at_cut = find(path, {.keep = keep ? *keep : Budget::all()}).plan;
    const LookupMatch match = find(path, {.keep = keep, .align = align});
    for (std::size_t i = 0; i < stored.counts.size(); ++i) {
      const std::uint32_t most = stored.counts[i] / align * align;
      const std::uint32_t nearest = (at_cut.counts[i] + align / 2) / align * align;
      CHECK(match.plan.counts[i] == (most == 0 ? 0 : std::clamp(nearest, align, most)));
    }
    check_first_entries(match, path);
  }
}

TEST_CASE_METHOD(CountedFixture, "some heads of a prefix are as they are in the whole",
                 "[integration]") {
  const auto options = GENERATE(LookupOptions{}, LookupOptions{{}, 16});
  const bool partial = GENERATE(false, true);
  const LookupMatch match = find(partial ? in_part() : tokens, options);
  const Budget keep = match.counted() ? Budget::all() : Budget::ratio_ppm(150'000);
  const PrefixCopy whole = copy_of(get(match, keep));
  for (std::uint32_t h = 0; h < model.spec.num_kv_heads; ++h) {
    GetOptions heads;
    heads.head_begin = h;
    heads.head_count = 1;
    const Prefix prefix = get(match, keep, heads);
    REQUIRE(prefix.num_heads() == 1);
    for (std::uint32_t l = 0; l < model.spec.num_layers; ++l) {
      const HeadEntries head = prefix.head(l, 0);
      CHECK(std::ranges::equal(head.positions, whole[l][h].positions));
      CHECK(std::ranges::equal(head.seats, whole[l][h].seats));
      REQUIRE(head.keys.size_bytes() == whole[l][h].keys.size());
      CHECK(std::equal(whole[l][h].keys.begin(), whole[l][h].keys.end(), head.keys.data));
      CHECK(std::equal(whole[l][h].values.begin(), whole[l][h].values.end(), head.values.data));
    }
  }
}

TEST_CASE_METHOD(CountedFixture, "a match that another client handed on can be got",
                 "[integration]") {
  const LookupMatch match = find(tokens, {.keep = Budget::ratio_ppm(150'000), .align = 8});
  const auto other = service->connect();
  const LookupMatch passed = match_from_bytes(to_bytes(match)).value();
  const Prefix prefix = other->get(passed).value();
  REQUIRE(prefix.wait().ok());
  CHECK(copy_of(prefix) == copy_of(get(match)));
}

TEST_CASE_METHOD(CountedFixture, "a counted match outlives trims that leave what it counts",
                 "[integration]") {
  const LookupMatch match = find(tokens, {.keep = Budget::ratio_ppm(150'000)});
  const PrefixCopy before = copy_of(get(match));
  REQUIRE(client->trim_segment(segments[0].id, Budget::ratio_ppm(150'000)).ok());
  CHECK(copy_of(get(match)) == before);
  REQUIRE(client->trim_segment(segments[0].id, Budget::ratio_ppm(100'000)).ok());
  const Status gone = client->get(match).value().wait();
  CHECK(gone.code() == StatusCode::kNotFound);
  CHECK(gone.message().find("look the path up again") != std::string::npos);
  REQUIRE(client->remove_segment(segments[0].id, true).ok());
  CHECK(client->get(match).value().wait().code() == StatusCode::kNotFound);
  CHECK_FALSE(find(tokens, {.keep = Budget::ratio_ppm(150'000)}));
}

TEST_CASE_METHOD(CountedFixture, "a lookup at what is no budget says what is wrong",
                 "[integration]") {
  const auto refused = [&](const LookupOptions& options) {
    const Status status = client->lookup(model, tokens, options).status();
    CHECK(status.code() == StatusCode::kInvalidArgument);
    return status.message();
  };
  CHECK_THAT(refused({.align = 0}), Catch::Contains("align is 0"));
  CHECK_THAT(refused({.align = 5000}), Catch::Contains("align is 5000, must be in [1, 4096]"));
  CHECK_THAT(refused({.keep = Budget::entries(0)}), Catch::Contains("keep is 0"));
  CHECK_THAT(refused({.keep = Budget::loss(0.05).value()}), Catch::Contains("a loss is for puts"));
  LookupMatch match = find(tokens, {.align = 4});
  CHECK_THAT(
      client->get(match, Budget::entries(3)).status().message(),
      Catch::Contains("the match was made at keep all and align 4: get it without a budget"));
  match.links[0].counts[0] = 300;  // more than the head has
  const auto served = client->get(match);
  CHECK_FALSE((served.ok() && served->wait().ok()));
}

}  // namespace

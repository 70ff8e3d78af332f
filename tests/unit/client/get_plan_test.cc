#include "client/src/get_plan.h"

#include <catch2/catch.hpp>
#include <utility>

#include "precis/block_digest.h"
#include "precis/served_layout.h"
#include "tests/unit/client/stored_prefix.h"

namespace {

using namespace precis;
using namespace precis::testing;

LookupMatch two_links(std::mt19937& random, const ModelSpec& model) {
  return match_of(model, {random_segment(random, model, 0, 100, 300),
                          random_segment(random, model, 100, 160, 200)});
}

std::size_t capacity_of(const ModelSpec& model, std::vector<std::uint64_t> entries,
                        std::uint32_t num_heads) {
  const std::vector<EntryForm> rows(entries.size(), EntryForm::of(model));
  return served_capacity_bytes(entries, rows, model.num_layers, num_heads);
}

TEST_CASE("a get of all asks for what every link stores and for memory that holds it", "[client]") {
  std::mt19937 random(3);
  const ModelSpec model = small_model();
  const auto plan = plan_get(two_links(random, model), Budget::all());
  REQUIRE(plan.ok());
  REQUIRE(plan->links.size() == 2);
  CHECK(plan->links[0].entries == 300);
  CHECK(plan->links[1].entries == 200);
  CHECK(plan->capacity_bytes == capacity_of(model, {300, 200}, model.num_kv_heads));
  CHECK(plan->decoded_bytes == 0);
}

TEST_CASE("a budget is worked out link by link", "[client]") {
  std::mt19937 random(3);
  const ModelSpec model = small_model();
  const auto plan = plan_get(two_links(random, model), Budget::entries(20));
  REQUIRE(plan.ok());
  CHECK(plan->links[0].entries == 20 * model.num_layers * model.num_kv_heads);
  CHECK(plan->links[1].entries == 20 * model.num_layers * model.num_kv_heads);
}

TEST_CASE("a get of more than is stored names the segment, what it stores and what to do",
          "[client]") {
  std::mt19937 random(3);
  const ModelSpec model = small_model();
  const LookupMatch match = two_links(random, model);
  const auto plan = plan_get(match, Budget::entries(40));  // 240 entries: too many for the second
  REQUIRE(plan.status().code() == StatusCode::kInvalidArgument);
  const std::string& message = plan.status().message();
  INFO(message);
  CHECK(message.find(match.links[1].segment.id.hex()) != std::string::npos);
  CHECK(message.find("240") != std::string::npos);
  CHECK(message.find("200") != std::string::npos);
  CHECK(message.find("all of it") != std::string::npos);
}

TEST_CASE("a keep outside (0, 1] is refused", "[client]") {
  std::mt19937 random(3);
  const ModelSpec model = small_model();
  const std::uint32_t ppm = GENERATE(0u, 1'000'001u);
  CHECK(plan_get(two_links(random, model), Budget::ratio_ppm(ppm)).status().code() ==
        StatusCode::kInvalidArgument);
}

TEST_CASE("a match whose links form no chain is refused", "[client]") {
  std::mt19937 random(3);
  const ModelSpec model = small_model();
  LookupMatch match = two_links(random, model);
  REQUIRE(plan_get(match, Budget::all()).ok());
  SECTION("nothing matched") { match.links.clear(); }
  SECTION("a gap") { match.links[1].segment.begin = 101; }
  SECTION("not from the root") { match.links.erase(match.links.begin()); }
  SECTION("empty") { match.links[1].segment.end = 100; }
  SECTION("past its end") { match.links[1].matched_end = 161; }
  SECTION("partial in the middle") { match.links[0].matched_end = 64; }
  SECTION("more entries than tokens") { match.links[1].segment.entries = 60 * 6 + 1; }
  SECTION("no entries") { match.links[1].segment.entries = 0; }
  SECTION("endless") { match.links[1].segment.end = match.links[1].matched_end = 1u << 31; }
  SECTION("a model that is none") { match.model.spec.head_dim = 0; }
  CHECK(plan_get(match, Budget::all()).status().code() == StatusCode::kInvalidArgument);
}

LookupMatch counted_match(std::mt19937& random, const ModelSpec& model) {
  const std::vector<StoredSegment> segments{random_segment(random, model, 0, 100, 300),
                                            random_segment(random, model, 100, 160, 200)};
  LookupMatch match = match_of(model, segments);
  match.model.fingerprint = model_fingerprint(model);
  count_all(match, segments, 150);
  match.options = {Budget::entries(25), 1};
  return match;
}

TEST_CASE("a get of a counted match asks for its counts and for exactly their memory", "[client]") {
  std::mt19937 random(3);
  const ModelSpec model = small_model();
  const LookupMatch match = counted_match(random, model);
  const auto plan = plan_get(match, Budget::all());
  REQUIRE(plan.ok());
  CHECK(plan->links[0].served_max == 150);
  CHECK(plan->links[0].counts == match.links[0].counts);
  const std::vector<EntryForm> rows(2, EntryForm::of(model));
  CHECK(plan->capacity_bytes ==
        served_counts_bytes(match.links, model.num_layers, model.num_kv_heads, rows));
  const msg::Get request = get_request(*plan, {});
  CHECK(request.links[1].counts == match.links[1].counts);
  CHECK(request.links[1].entries == 0);

  const auto refused = plan_get(match, Budget::entries(10)).status();
  CHECK(refused.code() == StatusCode::kInvalidArgument);
  CHECK(refused.message() ==
        "the match was made at keep 25 entries and align 1: get it without a budget");
}

TEST_CASE("a get of some heads asks for their counts, and for no more than they can hold",
          "[client]") {
  std::mt19937 random(3);
  const ModelSpec model = small_model();  // 2 heads
  const LookupMatch match = counted_match(random, model);
  GetOptions options;
  options.head_begin = 1;
  const auto counted = plan_get(match, Budget::all(), options);
  REQUIRE(counted.ok());
  REQUIRE(counted->links[1].counts.size() == model.num_layers);
  for (std::uint32_t l = 0; l < model.num_layers; ++l) {
    CHECK(counted->links[1].counts[l] == match.links[1].counts[2 * l + 1]);
  }
  const msg::Get request = get_request(*counted, {});
  CHECK(request.head_begin == 1);
  CHECK(request.head_count == 1);

  // 60 tokens of one head in 3 layers hold 180 of the 200 entries.
  const auto plan = plan_get(two_links(random, model), Budget::all(), options);
  REQUIRE(plan.ok());
  CHECK(plan->capacity_bytes == capacity_of(model, {300, 180}, 1));
  for (const auto& [begin, count] : {std::pair{2u, 0u}, {0u, 3u}, {1u, 2u}, {~0u, ~0u}}) {
    options.head_begin = begin;
    options.head_count = count;
    const Status refused = plan_get(match, Budget::all(), options).status();
    CHECK(refused.code() == StatusCode::kInvalidArgument);
    CHECK(refused.message().find("the model has 2") != std::string::npos);
  }
}

TEST_CASE("a get of coded rows has memory for them as they are served and as they are decoded",
          "[client]") {
  std::mt19937 random(3);
  const ModelSpec model = small_model();
  const auto plan =
      plan_get(match_of(model, {random_segment(random, model, 0, 100, 300),
                                random_segment(random, model, 100, 160, 200, Encoding::kInt8)}),
               Budget::all());
  REQUIRE(plan.ok());
  const std::vector<EntryForm> forms = {EntryForm::of(model),
                                        EntryForm::of(model, Encoding::kInt8)};
  CHECK(plan->forms == forms);
  const std::vector<std::uint64_t> entries = {300, 200};
  CHECK(plan->capacity_bytes ==
        served_capacity_bytes(entries, forms, model.num_layers, model.num_kv_heads));
  CHECK(plan->decoded_bytes >= 500 * EntryForm::of(model).bytes());
  CHECK(plan->memory_bytes() >= plan->capacity_bytes + plan->decoded_bytes);
  // A form that the model's rows can't have comes from a wrong service.
  ModelSpec odd = model;
  odd.head_dim = 7;
  auto match = match_of(odd, {random_segment(random, odd, 0, 100, 300)});
  match.links[0].segment.encoding = Encoding::kInt4;
  CHECK(plan_get(match, Budget::all()).status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("a match is the same after it was handed on, and is checked then", "[client]") {
  std::mt19937 random(3);
  LookupMatch match = counted_match(random, small_model());
  match.model.adapter = "lora";
  std::vector<TokenId> path(160, 7), tokens;
  const auto again = match_from_bytes(to_bytes(match, path), &tokens);
  INFO(again.status().to_string());
  REQUIRE(again.ok());
  CHECK(tokens == path);
  CHECK(static_cast<const msg::Match&>(*again) == match);
  CHECK(again->model.adapter == "lora");
  CHECK(again->options.keep == match.options.keep);
  CHECK(match_from_bytes(to_bytes(match), &tokens).ok());
  CHECK(tokens.empty());
  LookupMatch none;
  none.model = match.model;
  none.plan = {3, 2, std::vector<std::uint32_t>(6)};
  CHECK_FALSE(match_from_bytes(to_bytes(none)).value());

  SECTION("another model") { match.model.fingerprint.bytes[0] ^= 1; }
  SECTION("no chain") { match.links[1].segment.begin = 101; }
  SECTION("matched elsewhere") { match.matched_tokens = 159; }
  SECTION("a plan of another shape") { match.plan = {2, 2, std::vector<std::uint32_t>(4)}; }
  SECTION("a plan that is not the counts'") { ++match.plan.counts[3]; }
  SECTION("counts of one link") { match.links[1].counts.clear(); }
  SECTION("too few counts") { match.links[1].counts.pop_back(); }
  SECTION("more than is stored") {
    match.links[0].counts[0] += 200;
    match.plan.counts[0] += 200;
  }
  const auto bytes = to_bytes(match);
  CHECK(match_from_bytes(bytes).status().code() == StatusCode::kInvalidArgument);
  CHECK(match_from_bytes(Bytes(bytes).first(bytes.size() / 2)).status().code() ==
        StatusCode::kInvalidArgument);
}

}  // namespace

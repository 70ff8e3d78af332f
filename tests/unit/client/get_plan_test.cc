#include "client/src/get_plan.h"

#include <catch2/catch.hpp>

#include "precis/served_layout.h"
#include "tests/unit/client/stored_prefix.h"

namespace {

using namespace precis;
using namespace precis::testing;

LookupMatch two_links(std::mt19937& random, const ModelSpec& model) {
  return match_of(model, {random_segment(random, model, 0, 100, 300),
                          random_segment(random, model, 100, 160, 200)});
}

TEST_CASE("a get of all asks for what every link stores and for memory that holds it", "[client]") {
  std::mt19937 random(3);
  const ModelSpec model = small_model();
  const auto plan = plan_get(two_links(random, model), Budget::all());
  REQUIRE(plan.ok());
  REQUIRE(plan->links.size() == 2);
  CHECK(plan->links[0].entries == 300);
  CHECK(plan->links[1].entries == 200);
  CHECK(plan->capacity_bytes == served_capacity_bytes(500, model.num_layers, model.num_kv_heads,
                                                      model.head_dim, model.dtype));
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

}  // namespace

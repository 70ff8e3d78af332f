// Which recipes are refused, and why (policies.md section 3, D14).
#include <catch2/catch.hpp>

#include "precis/limits.h"
#include "precis/recipe.h"

namespace precis {
namespace {

using Catch::Matchers::Contains;

std::string refusal(const std::string& text) {
  const auto recipe = parse_recipe(text);
  CAPTURE(text);
  REQUIRE(recipe.status().code() == StatusCode::kInvalidArgument);
  return recipe.status().message();
}

TEST_CASE("ada is refused over scores that heads do not share a scale for", "[unit][schema]") {
  CHECK_THAT(refusal("streaming_llm(heads=ada)"), Contains("the same in every head"));
  CHECK_THAT(refusal("knorm(heads=ada)"), Contains("those of scorer knorm only rank"));
  CHECK_THAT(refusal("lagkv_kvpress(heads=ada, ada_mode=guarantee_incl_window)"),
             Contains("those of scorer lagkv as ranks only rank"));
}

TEST_CASE("ada is accepted over scores that can be compared", "[unit][schema]") {
  for (const char* text : {"keydiff(heads=ada)", "snapkv(heads=ada)", "external(heads=ada)",
                           "lagkv(selector=topk, heads=ada)", "ada_keydiff(ada_mode=paper_blend)",
                           "ada_keydiff(ada_mode=repo_blend)", "ada_snapkv(alpha=0)",
                           "ada_snapkv(alpha=1, ada_mode=guarantee_incl_window)"}) {
    CAPTURE(text);
    CHECK(parse_recipe(text).status() == Status());
  }
}

TEST_CASE("blends and kvpress counting are cuts, guarantees are orders", "[unit][schema]") {
  CHECK(parse_recipe("ada_keydiff(ada_mode=paper_blend)")->is_cut());
  CHECK(parse_recipe("ada_keydiff(ada_mode=repo_blend)")->is_cut());
  CHECK_FALSE(parse_recipe("ada_keydiff(ada_mode=guarantee_incl_window)")->is_cut());
  CHECK(parse_recipe("knorm_kvpress")->is_cut());
  CHECK_FALSE(parse_recipe("lagkv")->is_cut());
}

TEST_CASE("partition_topk is refused without partitions and with uneven heads", "[unit][schema]") {
  CHECK_THAT(refusal("keydiff(selector=partition_topk)"),
             Contains("needs the partitions of scorer lagkv"));
  CHECK_THAT(refusal("external(selector=partition_topk)"), Contains("not scorer external"));
  CHECK_THAT(refusal("lagkv(heads=ada)"), Contains("heads=ada would give heads different counts"));
  CHECK_THAT(refusal("lagkv(lag_kvpress_ranks=true)"), Contains("lag_kvpress_ranks is for topk"));
}

TEST_CASE("window attention is refused with a window, kernel or protection that cannot work",
          "[unit][schema]") {
  CHECK_THAT(refusal("snapkv(window=0)"), Contains("window is 0, must be in [1, 4096]"));
  CHECK_THAT(refusal("snapkv(window=4097)"), Contains("window is 4097"));
  CHECK_THAT(refusal("snapkv(kernel=6)"), Contains("kernel is 6, must be odd"));
  CHECK_THAT(refusal("snapkv(kernel=0)"), Contains("kernel is 0, must be in [1, 1023]"));
  CHECK_THAT(refusal("snapkv(recent=31)"), Contains("recent is 31, must be at least window 32"));
  CHECK(parse_recipe("snapkv(window=1, kernel=1)").ok());
}

TEST_CASE("lagkv is refused without a lag", "[unit][schema]") {
  CHECK_THAT(refusal("lagkv(lag=0)"), Contains("lag is 0, must be in [1, "));
}

TEST_CASE("counts past a path's length are refused", "[unit][schema]") {
  const std::string over = std::to_string(limits::kPathTokensMax + 1);
  CHECK_THAT(refusal("keydiff(sinks=" + over + ")"), Contains("sinks is 16777217"));
  CHECK_THAT(refusal("keydiff(recent=" + over + ")"), Contains("recent is 16777217"));
  CHECK_THAT(refusal("keydiff(min_entries=" + over + ")"), Contains("min_entries is 16777217"));
}

TEST_CASE("kvpress counting is refused with what kvpress does not do", "[unit][schema]") {
  CHECK_THAT(refusal("lagkv(count_rule=kvpress_double)"), Contains("no selector=partition_topk"));
  CHECK_THAT(refusal("ada_snapkv(count_rule=kvpress_double)"),
             Contains("whose ada_mode is guarantee_incl_window, not guarantee_excl_window"));
  CHECK_THAT(refusal("knorm_kvpress(min_entries=5)"), Contains("knows no min_entries (5)"));
  CHECK(parse_recipe("external(count_rule=kvpress_double)").ok());
}

TEST_CASE("a recipe built in code is checked like one that was written", "[unit][schema]") {
  Recipe recipe;
  REQUIRE(validate_recipe(recipe) == Status());
  recipe.protect_tail = true;
  CHECK_THAT(validate_recipe(recipe).message(), Contains("belong to scorer lagkv, not keydiff"));
  recipe = Recipe{};
  recipe.scorer = Scorer::kLagkv;
  CHECK_THAT(validate_recipe(recipe).message(), Contains("must protect the tail"));
  recipe.protect_tail = true;
  recipe.recent = 3;
  CHECK_THAT(validate_recipe(recipe).message(), Contains("recent is 3, must be 0"));
  recipe = Recipe{};
  recipe.heads = HeadAllocator::kAda;
  recipe.ada_alpha_ppm = 1000001;
  CHECK_THAT(validate_recipe(recipe).message(), Contains("alpha in parts per million is 1000001"));
}

}  // namespace
}  // namespace precis

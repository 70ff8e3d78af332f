// Refused recipes and the reasons (policies.md, "Refused combinations"; D14).
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

TEST_CASE("scores are compared no further than they go: heads, layers", "[unit][schema]") {
  CHECK_THAT(refusal("tova(heads=flat)"), Contains("the same in every head"));
  CHECK_THAT(refusal("knorm(heads=flat)"), Contains("only rank entries inside a head"));
  for (const char* text : {"lava(layers=global_flat)", "cake(heads=flat, layers=global_flat)",
                           "expected_attention(heads=flat, layers=global_flat)",
                           "vatp(heads=ada, layers=global_flat)"}) {
    CAPTURE(text);
    CHECK_THAT(refusal(text), Contains("needs scores that can be compared across layers"));
  }
  CHECK_THAT(refusal("snapkv(layers=global_flat)"), Contains("choose heads=flat, or heads=ada"));
  for (const char* text :
       {"snapkv(heads=flat, layers=global_flat)", "keydiff(heads=ada, layers=global_flat)",
        "external(heads=flat, layers=global_flat)", "h2o_window(heads=flat, layers=global_flat)",
        "random(heads=flat, layers=global_flat)", "lava(layers=uniform)", "kvzip(layers=uniform)",
        "defensivekv(layers=global_flat)"}) {
    CAPTURE(text);
    CHECK(parse_recipe(text).status() == Status());
  }
}

TEST_CASE("layers claim by attention only where a scorer computes some", "[unit][schema]") {
  CHECK_THAT(refusal("keydiff(layers=preference)"), Contains("scorer keydiff does not compute"));
  CHECK_THAT(refusal("kvzip(heads=flat, layers=preference)"), Contains("does not compute"));
  CHECK_THAT(refusal("cake(tau1=0)"), Contains("tau1 and tau2 must be above 0"));
  CHECK_THAT(refusal("knorm(layers=entropy)"), Contains("those of scorer knorm are not"));
  CHECK_THAT(refusal("lagkv(layers=entropy)"), Contains("those of scorer lagkv are not"));
  CHECK_THAT(refusal("pyramidkv(beta=0)"), Contains("beta is 0, must be in [1, "));
  for (const char* text : {"snapkv(layers=preference)", "h2o_window(layers=entropy)",
                           "expected_attention(layers=entropy)", "external(layers=entropy)"}) {
    CAPTURE(text);
    CHECK(parse_recipe(text).status() == Status());
  }
}

TEST_CASE("a table is over layers and heads at once", "[unit][schema]") {
  CHECK_THAT(refusal("snapkv(heads=table)"),
             Contains("heads=table and layers=table come together"));
  CHECK_THAT(refusal("keydiff(layers=table)"), Contains("come together"));
  CHECK_THAT(refusal("headkv(layers=pyramid)"), Contains("come together"));
}

TEST_CASE("a blend needs its layer's budget at once", "[unit][schema]") {
  for (const char* layers : {"entropy", "preference", "global_flat"}) {
    CHECK_THAT(refusal("ada_snapkv(ada_mode=repo_blend, layers=" + std::string(layers) + ")"),
               Contains("ada_mode=repo_blend is defined at one layer budget"));
  }
  CHECK(parse_recipe("ada_snapkv(ada_mode=repo_blend, layers=pyramid)").status() == Status());
}

TEST_CASE("two_stage is refused where value norms count already or no attention is computed",
          "[unit][schema]") {
  for (const char* preset : {"vatp", "lava", "defensivekv"}) {
    CHECK_THAT(refusal(std::string(preset) + "(selector=two_stage)"),
               Contains("they would count twice"));
  }
  CHECK_THAT(refusal("expected_attention(selector=two_stage)"),
             Contains("set ea_value_norm=false"));
  CHECK_THAT(refusal("keydiff(selector=two_stage)"), Contains("scorer keydiff computes none"));
  CHECK_THAT(refusal("lagkv(selector=two_stage)"), Contains("scorer lagkv computes none"));
  for (const char* text : {"tova(selector=two_stage)", "kvzip(selector=two_stage)",
                           "cake(selector=two_stage)", "external(selector=two_stage)",
                           "expected_attention(selector=two_stage, ea_value_norm=false)"}) {
    CAPTURE(text);
    CHECK(parse_recipe(text).status() == Status());
  }
}

TEST_CASE("kvprobe is refused with a second table, and a probe as budgets", "[unit][schema]") {
  CHECK_THAT(refusal("lukv(kvprobe)"), Contains("need a profile each"));
  CHECK_THAT(refusal("kvprobe(table=curves)"), Contains("needs table=probe"));
  CHECK_THAT(refusal("lukv(keydiff, table=probe)"), Contains("not budgets"));
}

TEST_CASE("chunk and threshold are refused where they mean nothing", "[unit][schema]") {
  CHECK_THAT(refusal("snapkv(selector=chunk, chunk=0)"), Contains("chunk is 0, must be in [1, "));
  CHECK_THAT(refusal("ada_snapkv(selector=chunk)"), Contains("heads=ada would give heads"));
  CHECK_THAT(refusal("snapkv(selector=threshold)"),
             Contains("needs the mean attention of scorer defensive"));
  CHECK_THAT(refusal("defensivekv(mass=0)"), Contains("mass in parts per million is 0"));
  CHECK(parse_recipe("keydiff(selector=chunk)").status() == Status());
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
             Contains("needs scores of partitions (lagkv, localkv, knorm), not scorer keydiff"));
  CHECK_THAT(refusal("external(selector=partition_topk)"), Contains("not scorer external"));
  CHECK_THAT(refusal("lagkv(heads=ada)"), Contains("heads=ada would give heads different counts"));
  CHECK_THAT(refusal("lagkv(lag_kvpress_ranks=true)"), Contains("lag_kvpress_ranks is for topk"));
}

TEST_CASE("window attention is refused with a window, kernel or protection that cannot work",
          "[unit][schema]") {
  CHECK_THAT(refusal("snapkv(window=0)"), Contains("window is 0, must be at least 1"));
  CHECK_THAT(refusal("snapkv(window=65537)"), Contains("window is 65537"));
  CHECK_THAT(refusal("snapkv(kernel=6)"), Contains("kernel is 6, must be odd"));
  CHECK_THAT(refusal("snapkv(kernel=0)"), Contains("kernel is 0, must be in [1, 1023]"));
  CHECK_THAT(refusal("snapkv(recent=31)"), Contains("recent is 31, must be at least window 32"));
  CHECK(parse_recipe("snapkv(window=1, kernel=1)").ok());
  CHECK_THAT(refusal("tova(window=0)"), Contains("window is 0, must be at least 1"));
  // Scorers that score the queries' own tokens too accept window=0 (all queries) without
  // protection.
  CHECK(parse_recipe("kvzip(window=0)").ok());
  CHECK(parse_recipe("h2o_window(window=0, recent=0)").ok());
}

TEST_CASE("lagkv is refused without a lag", "[unit][schema]") {
  CHECK_THAT(refusal("lagkv(lag=0)"), Contains("lag is 0, must be in [1, "));
  CHECK_THAT(refusal("l2_recursive(lag=0)"), Contains("lag is 0, must be in [1, "));
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
  CHECK_THAT(refusal("ada_kvpress(layers=pyramid)"), Contains("layers=pyramid is not reproduced"));
  CHECK_THAT(refusal("snapkv_kvpress(selector=chunk)"), Contains("knows no selector=chunk"));
  CHECK(parse_recipe("external(count_rule=kvpress_double)").ok());
}

TEST_CASE("a recipe built in code is checked like one that was written", "[unit][schema]") {
  Recipe recipe;
  REQUIRE(validate_recipe(recipe) == Status());
  recipe.protect_tail = true;
  CHECK_THAT(validate_recipe(recipe).message(),
             Contains("which scorer keydiff with selector=topk does not have"));
  recipe = Recipe{};
  recipe.scorer = Scorer::kLagkv;
  CHECK_THAT(validate_recipe(recipe).message(), Contains("must protect the tail"));
  recipe.protect_tail = true;
  recipe.recent = 3;
  CHECK_THAT(validate_recipe(recipe).message(), Contains("recent is 3, must be 0"));
  recipe.recent = 0;
  recipe.recent_share_ppm = 500'000;
  CHECK_THAT(validate_recipe(recipe).message(),
             Contains("recent_share has no meaning with partitions, which protect their tail"));
  recipe = Recipe{};
  recipe.recent_share_ppm = 1'000'001;
  CHECK_THAT(validate_recipe(recipe).message(), Contains("must be in [0, 1000000]"));
  recipe = Recipe{};
  recipe.heads = HeadAllocator::kAda;
  recipe.ada_alpha_ppm = 1000001;
  CHECK_THAT(validate_recipe(recipe).message(), Contains("alpha in parts per million is 1000001"));
}

}  // namespace
}  // namespace precis

// Recipes as text: the grammar and the canonical form.
#include <algorithm>
#include <catch2/catch.hpp>

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

Recipe without_preset(Recipe r) {
  r.preset.clear();
  return r;
}

TEST_CASE("every preset parses, keeps its name and round-trips through its canonical text",
          "[unit][schema]") {
  const std::vector<std::string> names = preset_names();
  REQUIRE(std::ranges::is_sorted(names));
  for (const std::string& name : names) {
    CAPTURE(name);
    const Recipe recipe = parse_recipe(name).value();
    CHECK(recipe.preset == name);
    CHECK(validate_recipe(recipe).ok());
    const std::string canonical = canonical_recipe(recipe);
    CAPTURE(canonical);
    const auto again = parse_recipe(canonical);
    REQUIRE(again.status() == Status());
    CHECK(*again == without_preset(recipe));
    CHECK(canonical_recipe(*again) == canonical);
  }
}

TEST_CASE("a recipe's text names its encoding only if rows are coded", "[unit][schema]") {
  const auto canonical = [](const std::string& text) {
    return canonical_recipe(parse_recipe(text).value());
  };
  CHECK(canonical("keydiff(encoding=raw)") == canonical("keydiff"));
  const std::string coded = canonical("keydiff(encoding=int4)");
  CHECK(coded.find(R"("encoding":"int4")") != std::string::npos);
  CHECK(recipe_call(coded, "keydiff") == "keydiff(encoding=int4)");
  CHECK(parse_recipe(coded)->encoding == Encoding::kInt4);
  CHECK(canonical("lukv(keydiff, encoding=int8)").find("int8") != std::string::npos);
}

TEST_CASE("canonical texts name what matters to the recipe and nothing else", "[unit][schema]") {
  // Segment ids contain hashes of these texts: a change here renames every stored segment.
  CHECK(canonical_recipe(parse_recipe("keydiff").value()) ==
        R"({"count_rule":"exact_floor","heads":"uniform","layers":"uniform","min_entries":0,)"
        R"("recent":0,"scorer":"keydiff","selector":"topk","sinks":0,"version":1})");
  CHECK(canonical_recipe(parse_recipe("ada_snapkv").value()) ==
        R"({"ada_mode":"guarantee_excl_window","alpha":0.2,"count_rule":"exact_floor",)"
        R"("group_reduce":"mean","heads":"ada","kernel":7,"layers":"uniform","min_entries":0,)"
        R"("order":"rows_group_pool","pool":"max","recent":32,"row_reduce":"mean",)"
        R"("scorer":"window_attn","selector":"topk","sinks":0,"version":1,"window":32})");
  CHECK(canonical_recipe(parse_recipe("lagkv").value()) ==
        R"({"count_rule":"exact_floor","heads":"uniform","lag":128,"lag_kvpress_ranks":false,)"
        R"("layers":"uniform","min_entries":0,"partition_keep":0,"scorer":"lagkv",)"
        R"("selector":"partition_topk",)"
        R"("sinks":16,"version":1})");
}

TEST_CASE("parameters change a preset, spaces and line ends do not", "[unit][schema]") {
  const Recipe recipe =
      parse_recipe("  ada_snapkv ( alpha = 0.05,\n\twindow=16 , kernel=5 ) ").value();
  CHECK(recipe.preset == "ada_snapkv");
  CHECK(recipe.ada_alpha_ppm == 50000);
  CHECK(recipe.window == 16);
  CHECK(recipe.kernel == 5);
  CHECK(recipe == parse_recipe("ada_snapkv(kernel=5,window=16,alpha=0.05)").value());
  CHECK(parse_recipe("keydiff()").value() == parse_recipe("keydiff").value());
}

TEST_CASE("JSON says the same as the short form", "[unit][schema]") {
  CHECK(parse_recipe(R"({"preset": "ada_snapkv", "alpha": 0.05, "window": 16})").value() ==
        parse_recipe("ada_snapkv(alpha=0.05, window=16)").value());
  const Recipe bare = parse_recipe(R"({"scorer": "external", "heads": "ada", "alpha": 1})").value();
  CHECK(bare.preset.empty());
  CHECK(bare.ada_alpha_ppm == 1000000);
  CHECK(without_preset(parse_recipe("external(heads=ada, alpha=1)").value()) == bare);
}

TEST_CASE("the protected window follows the observation window unless it is named",
          "[unit][schema]") {
  CHECK(parse_recipe("snapkv(window=64)").value().recent == 64);
  CHECK(parse_recipe("snapkv(window=8)").value().recent == 8);
  CHECK(parse_recipe("snapkv(window=8, recent=40)").value().recent == 40);
  CHECK(parse_recipe(R"({"scorer": "window_attn"})").value().recent == 32);
}

TEST_CASE("what a recipe does not use leaves no trace in it", "[unit][schema]") {
  const Recipe changed = parse_recipe("snapkv_kvpress(scorer=keydiff, recent=0)").value();
  CHECK(without_preset(changed) == without_preset(parse_recipe("keydiff_kvpress").value()));
  const Recipe uniform = parse_recipe("ada_keydiff(heads=uniform, sinks=0, recent=0)").value();
  CHECK(canonical_recipe(uniform) == canonical_recipe(parse_recipe("keydiff").value()));
  const Recipe observing = parse_recipe("global_kvdiff(scorer=window_attn)").value();
  CHECK(observing.recent_share_ppm == Recipe().recent_share_ppm);
}

TEST_CASE("what a scorer, allocator or selector does not use has no meaning in a recipe",
          "[unit][schema]") {
  for (const char* text :
       {"keydiff(seed=1)", "keydiff(skip_layers=1)", "keydiff(lag=8)", "snapkv(gamma=3)",
        "snapkv(beta=3)", "snapkv(tau1=2)", "snapkv(epsilon=0.1)", "snapkv(chunk=3)",
        "snapkv(mass=0.5)", "snapkv(ea_epsilon=0.1)", "snapkv(alpha=0.1)", "snapkv(profile=x)",
        "defensivekv(value_norm=v_l1)", "knorm(lag_kvpress_ranks=true)", "localkv(recent=1)",
        "snapkv(recent_share=0.5)", "lagkv(recent_share=1)"}) {
    CAPTURE(text);
    CHECK_THAT(refusal(text), Contains("has no meaning in this recipe"));
  }
  for (const char* text :
       {"random(seed=1)", "knorm(skip_layers=1)", "l2_recursive(lag=8, skip_layers=2)",
        "cake(gamma=3.5, tau1=1.6, tau2=0.4)", "pyramidkv(beta=3)",
        "criticalkv(epsilon=0.1, first_stage=0.25, value_norm=v_l1)",
        "snapkv(selector=chunk, chunk=3)", "defensivekv(mass=0.5)",
        "expected_attention(ea_epsilon=0.1, ea_value_norm=false)", "headkv(profile=x)",
        "snapkv(row_reduce=sumsq, order=pool_rows_group)",
        "keydiff(recent=9, recent_share=0.25)"}) {
    CAPTURE(text);
    const Recipe recipe = parse_recipe(text).value();
    CHECK(*parse_recipe(canonical_recipe(recipe)) == without_preset(recipe));
  }
}

TEST_CASE("a stored recipe is told as somebody would write it", "[unit][schema]") {
  const auto told = [](const std::string& text) {
    const Recipe recipe = parse_recipe(text).value();
    std::string call = recipe_call(canonical_recipe(recipe), recipe.preset);
    CHECK(parse_recipe(call).value() == recipe);
    return call;
  };
  CHECK(told("snapkv") == "snapkv");
  CHECK(told(" snapkv( kernel=9,window=64 )") == "snapkv(kernel=9, window=64)");
  CHECK(told("snapkv(window=32)") == "snapkv");
  CHECK(told("snapkv(recent=40)") == "snapkv(recent=40)");
  CHECK(told("criticalkv(tova)") == "criticalkv(tova)");
  CHECK(told("criticalkv(tova, first_stage=0.25)") == "criticalkv(tova, first_stage=0.25)");
  CHECK(told("global_kvdiff(min_entries=128)") == "global_kvdiff(min_entries=128)");
  CHECK(told("global_kvdiff(recent_share=1)") == "global_kvdiff(recent_share=1)");
  for (const std::string& name : preset_names()) CHECK(told(name) == name);
  // No preset, or one that this build does not know.
  const std::string canonical = canonical_recipe(parse_recipe("knorm(skip_layers=1)").value());
  CHECK(recipe_call(canonical, "") == canonical);
  CHECK(recipe_call(canonical, "to_come") == canonical);
}

TEST_CASE("alpha is kept in parts per million and written as the shortest decimal",
          "[unit][schema]") {
  const auto alpha = [](const std::string& text) {
    const Recipe r = parse_recipe("ada_keydiff(alpha=" + text + ")").value();
    const std::string canonical = canonical_recipe(r);
    const std::size_t at = canonical.find("\"alpha\":") + 8;
    CHECK(parse_recipe(canonical)->ada_alpha_ppm == r.ada_alpha_ppm);
    return std::to_string(r.ada_alpha_ppm) + " " +
           canonical.substr(at, canonical.find(',', at) - at);
  };
  CHECK(alpha("0") == "0 0");
  CHECK(alpha("1") == "1000000 1");
  CHECK(alpha("1.0") == "1000000 1");
  CHECK(alpha("0.2") == "200000 0.2");
  CHECK(alpha(".05") == "50000 0.05");
  CHECK(alpha("5e-2") == "50000 0.05");
  CHECK(alpha("0.000001") == "1 0.000001");
  CHECK(alpha("0.1234567") == "123457 0.123457");
}

TEST_CASE("names that are not known are refused with the choices", "[unit][schema]") {
  CHECK_THAT(refusal("snapvk"),
             Contains("preset 'snapvk' is unknown, choose ada_keydiff, ada_pyramidkv, ada_snapkv, "
                      "cake") &&
                 Contains("; to compare with kvpress: ada_kvpress, critical_ada_kvpress, "));
  CHECK_THAT(
      refusal("keydiff(widow=3)"),
      Contains("parameter 'widow' is unknown, choose from count_rule, encoding, heads, layers"));
  CHECK_THAT(refusal("keydiff(window=3)"),
             Contains("parameter 'window' has no meaning in this recipe"));
  CHECK_THAT(refusal("lagkv(recent=3)"), Contains("parameter 'recent' has no meaning"));
  CHECK_THAT(refusal("keydiff(heads=fair)"),
             Contains("heads: 'fair' must be one of uniform, ada, flat, table"));
  CHECK_THAT(refusal("snapkv(pool=min)"), Contains("pool: 'min' must be one of avg, max"));
}

TEST_CASE("values of the wrong type are refused with what they must be", "[unit][schema]") {
  CHECK_THAT(refusal("snapkv(window=wide)"), Contains("window: 'wide' must be a whole number"));
  CHECK_THAT(refusal("snapkv(window=3.5)"), Contains("must be a whole number"));
  CHECK_THAT(refusal("snapkv(window=-3)"), Contains("must be a whole number"));
  CHECK_THAT(refusal("snapkv(window=99999999999)"), Contains("must be a whole number"));
  CHECK_THAT(refusal("snapkv(window=)"), Contains("window: '' must be a whole number"));
  CHECK_THAT(refusal(R"({"preset": "snapkv", "window": "32"})"),
             Contains("must be a whole number"));
  CHECK_THAT(refusal(R"({"preset": "snapkv", "window": true})"),
             Contains("must be a whole number"));
  CHECK_THAT(refusal(R"({"preset": "snapkv", "pool": 1})"), Contains("must be one of avg, max"));
  CHECK_THAT(refusal(R"({"preset": "snapkv", "window": [32]})"), Contains("'window' is array"));
  CHECK_THAT(refusal(R"({"preset": "snapkv", "window": {"a": 1}})"),
             Contains("'window' is object"));
  CHECK_THAT(refusal(R"({"preset": "snapkv", "window": null})"), Contains("'window' is null"));
  CHECK_THAT(refusal("lagkv_kvpress(lag_kvpress_ranks=1)"), Contains("must be true or false"));
  for (const char* alpha : {"-0.1", "1.1", "nan", "inf", "x", ""}) {
    CHECK_THAT(refusal("ada_keydiff(alpha=" + std::string(alpha) + ")"),
               Contains("a number in [0, 1]"));
  }
}

TEST_CASE("texts that are not recipes are refused with the reason", "[unit][schema]") {
  CHECK_THAT(refusal(""), Contains("recipe is empty"));
  CHECK_THAT(refusal(" \n"), Contains("recipe is empty"));
  CHECK_THAT(refusal("snapkv(window=8"), Contains("closing ')' is missing"));
  CHECK_THAT(refusal("snapkv(window=8) x"), Contains("closing ')' is missing"));
  CHECK_THAT(refusal("snapkv(kernel=5, window)"), Contains("'window' is not name=value"));
  CHECK_THAT(refusal("snapkv(window)"), Contains("preset 'window' is unknown"));
  CHECK_THAT(refusal("snapkv(window=8,)"), Contains("missing after the last ','"));
  CHECK_THAT(refusal("snapkv(window=8, window=9)"), Contains("'window' is given twice"));
  CHECK_THAT(refusal("(window=8)"), Contains("neither a preset nor a scorer"));
  CHECK_THAT(refusal("{"), Contains("is not a JSON object"));
  CHECK_THAT(refusal("{} x"), Contains("is not a JSON object"));
  CHECK_THAT(refusal("{}"), Contains("neither a preset nor a scorer"));
  CHECK_THAT(refusal(R"({"scorer": "knorm", "sinks": 1, "sinks": 2})"), Contains("given twice"));
  CHECK_THAT(refusal(std::string(20000, 'x')), Contains("has 20000 bytes, maximum 16384"));
  // Quoted input is cut, so a message stays readable and below its maximum size.
  CHECK(refusal(std::string(16000, 'x')).size() < 1000);
  CHECK(refusal("keydiff(sinks=" + std::string(16000, '1') + ")").size() < 1000);
}

TEST_CASE("a profile's name is refused where a recipe's text could not hold it", "[unit][schema]") {
  const std::string name =
      GENERATE(as<std::string>{}, "a\\\\b", "a\\\"b", "a\\nb", " a", "a ", "a,b");
  CAPTURE(name);
  CHECK_THAT(refusal(R"({"preset": "lukv", "profile": ")" + name + "\"}"),
             Contains("cannot be used in a recipe's text"));
  CHECK_THAT(refusal("lukv(keydiff, profile=a\xff)"),
             Contains("cannot be used in a recipe's text"));
}

TEST_CASE("a recipe of another grammar version is a version mismatch", "[unit][schema]") {
  CHECK(parse_recipe(R"({"scorer": "knorm", "version": 1})").ok());
  CHECK(parse_recipe(R"({"scorer": "knorm", "version": 2})").status().code() ==
        StatusCode::kVersionMismatch);
}

}  // namespace
}  // namespace precis

// The presets: each equals its row of policies.md, "Presets", reports the inputs that its policy
// reads, and may take scores from another preset.
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

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

TEST_CASE("presets hold the parameters of policies.md", "[unit][schema]") {
  const Recipe streaming = parse_recipe("streaming_llm").value();
  CHECK(streaming.scorer == Scorer::kStreamingLlm);
  CHECK(streaming.sinks == 4);

  const Recipe ada = parse_recipe("ada_keydiff").value();
  CHECK(ada.heads == HeadAllocator::kAda);
  CHECK(ada.ada_mode == AdaMode::kGuaranteeExclWindow);
  CHECK(ada.ada_alpha_ppm == 50000);
  CHECK(ada.sinks == 4);
  CHECK(ada.recent == 1);

  const Recipe press = parse_recipe("ada_kvpress").value();
  CHECK(press.window == 64);
  CHECK(press.recent == 64);
  CHECK(press.kernel == 5);
  CHECK(press.pool == Pool::kAvg);
  CHECK(press.pool_order == PoolOrder::kRowsPoolGroup);
  CHECK(press.ada_mode == AdaMode::kGuaranteeInclWindow);
  CHECK(press.ada_alpha_ppm == 200000);
  CHECK(press.count_rule == CountRule::kKvpressDouble);
  CHECK(press.is_cut());

  const Recipe lag = parse_recipe("lagkv_kvpress").value();
  CHECK(lag.sinks == 4);
  CHECK(lag.lag == 128);
  CHECK(lag.lag_kvpress_ranks);
  CHECK(lag.protect_tail);
  CHECK(lag.selector == Selector::kTopk);

  CHECK(parse_recipe("external").value().needs_scores());
  CHECK(parse_recipe("snapkv").value().needs_queries());
  CHECK_FALSE(parse_recipe("snapkv").value().is_cut());
}

TEST_CASE("each preset is the scorer, allocators and selector of its row in the table of presets",
          "[unit][schema]") {
  using S = Scorer;
  using H = HeadAllocator;
  using L = LayerAllocator;
  const auto topk = Selector::kTopk, two_stage = Selector::kTwoStage;
  const auto partition_topk = Selector::kPartitionTopk, threshold = Selector::kThreshold;
  const struct {
    const char* name;
    Scorer scorer;
    std::uint32_t sinks, recent;
    HeadAllocator heads;
    LayerAllocator layers;
    Selector selector;
  } rows[] = {
      {"streaming_llm", S::kStreamingLlm, 4, 0, H::kUniform, L::kUniform, topk},
      {"knorm", S::kKnorm, 0, 0, H::kUniform, L::kUniform, topk},
      {"keydiff", S::kKeydiff, 0, 0, H::kUniform, L::kUniform, topk},
      {"ada_keydiff", S::kKeydiff, 4, 1, H::kAda, L::kUniform, topk},
      {"global_keydiff", S::kKeydiff, 4, 1, H::kAda, L::kGlobalFlat, topk},
      {"kvdiff", S::kKvdiff, 4, 1, H::kUniform, L::kUniform, topk},
      {"global_kvdiff", S::kKvdiff, 4, 64, H::kAda, L::kGlobalFlat, topk},
      {"kvprobe", S::kKvprobe, 4, 1, H::kUniform, L::kUniform, topk},
      {"global_kvprobe", S::kKvprobe, 4, 64, H::kAda, L::kGlobalFlat, topk},
      {"tova", S::kTova, 0, 1, H::kUniform, L::kUniform, topk},
      {"snapkv", S::kWindowAttention, 0, 32, H::kUniform, L::kUniform, topk},
      {"pyramidkv", S::kWindowAttention, 0, 32, H::kUniform, L::kPyramid, topk},
      {"ada_snapkv", S::kWindowAttention, 0, 32, H::kAda, L::kUniform, topk},
      {"ada_pyramidkv", S::kWindowAttention, 0, 32, H::kAda, L::kPyramid, topk},
      {"headkv", S::kWindowAttention, 0, 32, H::kTable, L::kTable, topk},
      {"criticalkv", S::kWindowAttention, 0, 32, H::kUniform, L::kUniform, two_stage},
      {"criticalkv_ada", S::kWindowAttention, 0, 32, H::kAda, L::kUniform, two_stage},
      {"criticalkv_headkv", S::kWindowAttention, 0, 32, H::kTable, L::kTable, two_stage},
      {"vatp", S::kVatp, 20, 32, H::kUniform, L::kUniform, topk},
      {"cake", S::kCake, 0, 32, H::kUniform, L::kPreference, topk},
      {"lava", S::kLava, 0, 32, H::kFlat, L::kEntropy, topk},
      {"lagkv", S::kLagkv, 16, 0, H::kUniform, L::kUniform, partition_topk},
      {"localkv", S::kLocalkv, 16, 0, H::kUniform, L::kUniform, partition_topk},
      {"l2_recursive", S::kKnorm, 16, 0, H::kUniform, L::kUniform, partition_topk},
      {"expected_attention", S::kExpectedAttention, 4, 0, H::kUniform, L::kUniform, topk},
      {"defensivekv", S::kDefensive, 0, 32, H::kFlat, L::kUniform, threshold},
      {"kvzip", S::kKvzip, 4, 0, H::kFlat, L::kGlobalFlat, topk},
      {"lukv", S::kKeydiff, 4, 1, H::kTable, L::kTable, topk},
      {"h2o_window", S::kH2o, 0, 32, H::kUniform, L::kUniform, topk},
      {"observed_mean", S::kObservedMean, 0, 0, H::kUniform, L::kUniform, topk},
      {"random", S::kRandom, 0, 0, H::kUniform, L::kUniform, topk},
      {"external", S::kExternal, 0, 0, H::kUniform, L::kUniform, topk},
      {"snapkv_kvpress", S::kWindowAttention, 0, 64, H::kUniform, L::kUniform, topk},
      {"ada_kvpress", S::kWindowAttention, 0, 64, H::kAda, L::kUniform, topk},
      {"critical_kvpress", S::kWindowAttention, 0, 64, H::kUniform, L::kUniform, two_stage},
      {"critical_ada_kvpress", S::kWindowAttention, 0, 64, H::kAda, L::kUniform, two_stage},
      {"knorm_kvpress", S::kKnorm, 0, 0, H::kUniform, L::kUniform, topk},
      {"keydiff_kvpress", S::kKeydiff, 0, 0, H::kUniform, L::kUniform, topk},
      {"lagkv_kvpress", S::kLagkv, 4, 0, H::kUniform, L::kUniform, topk},
      {"ea_kvpress", S::kExpectedAttention, 4, 0, H::kUniform, L::kUniform, topk},
      {"tova_kvpress", S::kTova, 0, 1, H::kUniform, L::kUniform, topk},
      {"observed_kvpress", S::kObservedMean, 0, 0, H::kUniform, L::kUniform, topk},
  };
  REQUIRE(std::size(rows) == preset_names().size());
  for (const auto& row : rows) {
    CAPTURE(row.name);
    const Recipe r = parse_recipe(row.name).value();
    CHECK(r.scorer == row.scorer);
    CHECK(r.sinks == row.sinks);
    CHECK(r.recent == row.recent);
    CHECK(r.heads == row.heads);
    CHECK(r.layers == row.layers);
    CHECK(r.selector == row.selector);
    CHECK(r.protect_tail == r.is_partitioned());
    const bool parity = std::string(row.name).ends_with("_kvpress");
    CHECK((r.count_rule == CountRule::kKvpressDouble) == parity);
  }
}

TEST_CASE("global_kvdiff and global_kvprobe protect one recent token for each 125 tokens, up to 64",
          "[unit][schema]") {
  for (const std::string& name : preset_names()) {
    const Recipe r = parse_recipe(name).value();
    const bool global = name == "global_kvdiff" || name == "global_kvprobe";
    CAPTURE(name);
    CHECK(r.recent_share_ppm == (global ? 8'000 : 1'000'000));
    if (!global) continue;
    CHECK(r.recent_tokens(1) == 1);
    CHECK(r.recent_tokens(249) == 1);
    CHECK(r.recent_tokens(250) == 2);
    CHECK(r.recent_tokens(1024) == 8);
    CHECK(r.recent_tokens(4096) == 32);
    CHECK(r.recent_tokens(7999) == 63);
    CHECK(r.recent_tokens(8000) == 64);
    CHECK(r.recent_tokens(16'000'000) == 64);
  }
  CHECK(parse_recipe("global_kvdiff(recent_share=1)")->recent_tokens(100) == 64);
  CHECK(parse_recipe("global_kvdiff(recent_share=0)")->recent_tokens(100'000) == 1);
  CHECK(parse_recipe("global_kvdiff(recent=0)")->recent_tokens(100'000) == 0);
  CHECK(parse_recipe("snapkv")->recent_tokens(20) == 20);
}

TEST_CASE("attention scorers begin with their paper's window, pool, order and reductions",
          "[unit][schema]") {
  const auto attention = [](const std::string& preset) {
    const Recipe r = parse_recipe(preset).value();
    const std::string json = canonical_recipe(r);
    std::string text = std::to_string(r.window) + "/" + std::to_string(r.kernel);
    for (const std::string field : {"pool", "row_reduce", "group_reduce", "order"}) {
      const std::size_t at = json.find("\"" + field + "\":\"") + field.size() + 4;
      text += "/" + json.substr(at, json.find('"', at) - at);
    }
    return text;
  };
  CHECK(attention("snapkv") == "32/7/max/mean/mean/rows_group_pool");
  CHECK(attention("snapkv_kvpress") == "64/5/avg/mean/mean/rows_pool_group");
  CHECK(attention("tova") == "1/1/avg/mean/mean/rows_group_pool");
  CHECK(attention("vatp") == "32/1/avg/mean/mean/rows_group_pool");
  CHECK(attention("cake") == "32/5/avg/mean_variance/mean/rows_pool_group");
  CHECK(attention("lava") == "32/7/max/mean/max/rows_pool_group");
  CHECK(attention("defensivekv") == "32/5/avg/max/max/pool_group_rows");
  CHECK(attention("kvzip") == "0/1/avg/max/max/rows_group_pool");
  CHECK(attention("h2o_window") == "256/1/avg/sum/mean/rows_group_pool");
  CHECK(attention("observed_mean") == "0/1/avg/mean/mean/rows_group_pool");
  CHECK(parse_recipe("cake")->gamma_ppm == 200'000'000);
}

TEST_CASE("a recipe says what must be pushed for it", "[unit][schema]") {
  const auto needs = [](const std::string& text) {
    const Recipe r = parse_recipe(text).value();
    std::string all;
    if (r.needs_queries()) all += "queries ";
    if (r.needs_lse()) all += "lse ";
    if (r.needs_query_stats()) all += "stats ";
    if (r.needs_o_proj()) all += "o_proj ";
    if (r.needs_profile()) all += "profile ";
    if (r.needs_scores()) all += "scores ";
    return all;
  };
  CHECK(needs("knorm").empty());
  CHECK(needs("random").empty());
  CHECK(needs("l2_recursive").empty());
  CHECK(needs("observed_mean") == "queries ");
  CHECK(needs("kvzip") == "queries lse ");
  CHECK(needs("vatp") == "queries ");
  CHECK(needs("criticalkv") == "queries o_proj ");
  CHECK(needs("criticalkv(value_norm=v_l1)") == "queries ");
  CHECK(needs("criticalkv(value_norm=l2_gram)") == "queries o_proj ");
  CHECK(needs("criticalkv_headkv(profile=p)") == "queries o_proj profile ");
  CHECK(needs("defensivekv") == "queries o_proj ");
  CHECK(needs("expected_attention") == "stats ");
  CHECK(needs("criticalkv(expected_attention)") == "stats o_proj ");
  CHECK(needs("global_kvprobe") == "profile ");
  CHECK(needs("lukv(external, profile=p)") == "profile scores ");
}

TEST_CASE("presets that allocate or select build on another's scores", "[unit][schema]") {
  const Recipe critical = parse_recipe("criticalkv(tova)").value();
  CHECK(critical.preset == "criticalkv(tova)");
  CHECK(critical.scorer == Scorer::kTova);
  CHECK(critical.selector == Selector::kTwoStage);
  CHECK(critical.recent == 1);

  const Recipe lukv = parse_recipe("lukv(snapkv, profile=mine, window=16)").value();
  CHECK(lukv.scorer == Scorer::kWindowAttention);
  CHECK(lukv.heads == HeadAllocator::kTable);
  CHECK(lukv.layers == LayerAllocator::kTable);
  CHECK(lukv.profile == "mine");
  CHECK(lukv.sinks == 4);
  CHECK(lukv.recent == 16);
  CHECK(without_preset(parse_recipe("lukv(global_kvdiff)").value()) ==
        without_preset(parse_recipe("lukv(kvdiff)").value()));
  CHECK(without_preset(parse_recipe("lukv(keydiff)").value()) ==
        without_preset(parse_recipe("lukv").value()));
  // The second stage multiplies by value norms, so the scores must not contain them.
  CHECK(parse_recipe("expected_attention")->ea_value_norm);
  CHECK_FALSE(parse_recipe("criticalkv(expected_attention)")->ea_value_norm);

  CHECK_THAT(refusal("snapkv(tova)"),
             Contains("preset snapkv can't build on another; those that can are criticalkv"));
  CHECK_THAT(refusal("lukv(nothing)"), Contains("preset 'nothing' is unknown"));
  CHECK_THAT(refusal("criticalkv(knorm)"), Contains("scorer knorm computes none"));
}

TEST_CASE("every parameter and word of a preset stands in the table of schema/README.md",
          "[unit][schema]") {
  std::ifstream file(std::string(PRECIS_SCHEMA_DIR) + "/README.md");
  const std::string readme(std::istreambuf_iterator<char>(file), {});
  REQUIRE(readme.size() > 1000);
  for (const std::string& preset : preset_names()) {
    const auto recipe = nlohmann::json::parse(canonical_recipe(*parse_recipe(preset)));
    for (const auto& [name, value] : recipe.items()) {
      CAPTURE(preset, name);
      if (name != "version") CHECK(readme.find("`" + name + "`") != std::string::npos);
      if (!value.is_string() || name == "profile") continue;
      CAPTURE(value);
      CHECK(readme.find("`" + value.get<std::string>() + "`") != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace precis

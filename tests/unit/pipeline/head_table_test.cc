// Tables of shares and entries by layer and KV head.
#include <catch2/catch.hpp>
#include <numeric>
#include <string>

#include "cachesvc/pipeline/head_table.h"

namespace precis {
namespace {

using Catch::Matchers::Contains;

// Four layers of two KV heads.
ModelSpec small_model() {
  ModelSpec model;
  model.name = "test/small";
  model.num_layers = 4;
  model.num_q_heads = model.num_kv_heads = 2;
  model.head_dim = 64;
  return model;
}

Result<HeadTable> table(const std::string& text, const std::string& recipe = "keydiff") {
  return parse_head_table(text, Digest{}, small_model(), recipe);
}
std::string error(const std::string& text, const std::string& recipe = "keydiff") {
  const Status status = table(text, recipe).status();
  CHECK(status.code() == StatusCode::kInvalidArgument);
  return status.message();
}

TEST_CASE("a table of entries has their weights and their mean", "[unit][pipeline]") {
  const HeadTable entries = table("0=320,1-3=80,2.1=200").value();
  CHECK(entries.keep == Budget::entries(155));
  CHECK(entries.profile.table == std::vector<float>{1, 1, .25f, .25f, .25f, .625f, .25f, .25f});
  CHECK(head_counts(entries, small_model(), 400, 0, entries.keep, {}).value() ==
        std::vector<std::uint32_t>{320, 320, 80, 80, 80, 200, 80, 80});
  // 1 is a share: all entries.
  CHECK(table("0-3=1").value().keep == Budget::ratio_ppm(1'000'000));
  CHECK(table("0-3=25%").value().keep == Budget::ratio_ppm(250'000));
  CHECK_THAT(error("0=1,1-3=64"), Contains("'0=1' and '1-3=64' mix shares and entries"));
  CHECK_THAT(error("0-3=64,0.0=0.5"), Contains("mix shares and entries"));
  for (const char* wrong : {"0", "-1", "1.5", "2.5", "1e9", "nan", "0%", "101%"}) {
    CHECK_THAT(error(std::string("0-3=") + wrong),
               Contains("give a share in (0, 1], or a whole number of entries per head"));
  }
}

TEST_CASE("a table's counts are those that a put deals", "[unit][pipeline]") {
  const auto counts = [](const std::string& recipe, const Budget& keep, std::uint32_t tokens,
                         std::optional<Budget> limit = {}) {
    const HeadTable made = table("0=0.8,1-3=0.2", recipe).value();
    return head_counts(made, small_model(), tokens, 0, keep, limit).value();
  };
  using Counts = std::vector<std::uint32_t>;
  CHECK(counts("keydiff", Budget::ratio_ppm(350'000), 100) ==
        Counts{80, 80, 20, 20, 20, 20, 20, 20});
  // The rest goes to the first heads.
  CHECK(counts("keydiff", Budget::entries(34), 100) == Counts{78, 78, 20, 20, 19, 19, 19, 19});
  // A head of a layer with a window has no more entries than that, and the others get them.
  ModelSpec narrow = small_model();
  narrow.windows = {0, 10, 0, 0};
  const HeadTable made = table("0=0.8,1-3=0.2", "keydiff").value();
  CHECK(head_counts(made, narrow, 100, 0, Budget::ratio_ppm(350'000), {}).value() ==
        Counts{86, 86, 10, 10, 22, 22, 22, 22});
  // A head has no more entries than tokens, and the others get them.
  CHECK(counts("keydiff", Budget::ratio_ppm(700'000), 100) ==
        Counts{100, 100, 60, 60, 60, 60, 60, 60});
  // Protected tokens, the recipe's min_entries, and a limit.
  CHECK(counts("keydiff(sinks=4, recent=1)", Budget::entries(5), 100) == Counts(8, 5));
  CHECK(counts("keydiff(sinks=4, recent=64, recent_share=0.02)", Budget::entries(20), 100) ==
        Counts{38, 38, 14, 14, 14, 14, 14, 14});
  const Counts floor = counts("keydiff(min_entries=70)", Budget::ratio_ppm(350'000), 100);
  CHECK(std::accumulate(floor.begin(), floor.end(), 0u) == 8 * 70u);
  CHECK(counts("keydiff", Budget::ratio_ppm(700'000), 100, Budget::ratio_ppm(350'000)) ==
        counts("keydiff", Budget::ratio_ppm(350'000), 100));
}

TEST_CASE("a table has its parts in any order, on one line or several", "[unit][pipeline]") {
  const HeadTable read = table("# ours\n2.1 = 0.4\r\n\n0=0.8  # most\n1-2=0.2, 3=0.2").value();
  CHECK(read.profile.name == table("0=0.8,1-3=0.2,2.1=0.4").value().profile.name);
  CHECK(read.profile.name != table("0=0.8,1-3=0.2").value().profile.name);
  CHECK(read.recipe.profile == read.profile.name);
}

TEST_CASE("an error of a table names the part, and the line if there are several",
          "[unit][pipeline]") {
  CHECK_THAT(error("0-3=0.5\n\n0.2=0.5\n"), Contains("line 3: '0.2=0.5'"));
  CHECK_THAT(error("# x\n0-3\n"), Contains("line 2: '0-3' is wrong: a part has the form"));
  CHECK_THAT(error("0-3=0.5\n1-2=0.5\n"), Contains("line 2: layer 1 is given twice"));
  CHECK_THAT(error("0-3=0.5,1-2=0.5"), Contains("layer 1 is given twice") && !Contains("line"));
  CHECK_THAT(error("0-2=0.5"), Contains("nothing for heads of layer 3"));
  CHECK_THAT(error("# nothing"), Contains("nothing for heads of layer 0, 1, 2, 3"));
  CHECK_THAT(error("0-4=0.5"), Contains("layers 0 to 3"));
  CHECK_THAT(error("2-1=0.5"), Contains("the first layer is above the last"));
  CHECK_THAT(error("0-3=0.5,0.0=0.1,0.0=0.9"), Contains("head 0.0 is given twice"));
  CHECK_THAT(error("0-3=0.5", "kvprobe"), Contains("name another recipe, such as kvdiff"));
  CHECK(error(std::string(1 << 20, '7') + "=1").size() < 300);
}

}  // namespace
}  // namespace precis

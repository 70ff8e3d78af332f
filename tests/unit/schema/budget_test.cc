// Budget arithmetic (policies.md, D2 and D3) compared with sums computed by hand.
#include <catch2/catch.hpp>
#include <random>

#include "precis/reader_budget.h"
#include "precis/recipe.h"
#include "precis/record_format.h"

namespace precis {
namespace {

ModelSpec model(std::uint32_t num_layers, std::uint32_t num_kv_heads) {
  ModelSpec m;
  m.num_layers = num_layers;
  m.num_q_heads = m.num_kv_heads = num_kv_heads;
  m.head_dim = 64;
  m.dtype = Dtype::kBf16;
  return m;
}

std::uint64_t entries(const Recipe& recipe, std::uint32_t num_tokens, const Budget& budget) {
  return budget_entries(recipe, model(1, 1), num_tokens, budget).value();
}

Recipe recipe_of(const char* text) { return parse_recipe(text).value(); }

TEST_CASE("a ratio is the exact floor of n * ppm / 10^6 for every head", "[unit][schema]") {
  const Recipe keydiff = recipe_of("keydiff");
  CHECK(entries(keydiff, 1000, Budget::ratio_ppm(200000)) == 200);
  CHECK(entries(keydiff, 1000, Budget::ratio_ppm(100000)) == 100);
  CHECK(entries(keydiff, 10, Budget::ratio_ppm(100000)) == 1);
  CHECK(entries(keydiff, 9, Budget::ratio_ppm(999999)) == 8);
  CHECK(entries(keydiff, 9, Budget::ratio_ppm(1000000)) == 9);
  CHECK(budget_entries(keydiff, model(30, 3), 1001, Budget::ratio_ppm(300000)).value() == 90 * 300);
  // n * ppm does not fit into 32 bits.
  CHECK(entries(keydiff, 1u << 24, Budget::ratio_ppm(999999)) == 16777199);
}

TEST_CASE("every head keeps at least one entry, and never more than there are", "[unit][schema]") {
  const Recipe keydiff = recipe_of("keydiff");
  const ModelSpec m = model(4, 2);
  CHECK(budget_entries(keydiff, m, 5, Budget::ratio_ppm(1)).value() == 8);
  CHECK(budget_entries(keydiff, m, 5, Budget::bytes(1)).value() == 8);
  CHECK(budget_entries(keydiff, m, 5, Budget::all()).value() == 40);
  CHECK(budget_entries(keydiff, m, 5, Budget::entries(6)).value() == 40);
  CHECK(budget_entries(keydiff, m, 5, Budget::entries(~std::uint64_t{0})).value() == 40);
  CHECK(budget_entries(keydiff, m, 5, Budget::bytes(~std::uint64_t{0})).value() == 40);
}

TEST_CASE("layers with a window have no entries outside it, and budgets count all tokens",
          "[unit][schema]") {
  const Recipe keydiff = recipe_of("keydiff");
  ModelSpec m = model(4, 2);
  m.windows = {0, 10, 0, 200};
  CHECK(m.entries_max(100) == 2 * (100 + 10 + 100 + 100));
  CHECK(budget_entries(keydiff, m, 100, Budget::all()).value() == 620);
  CHECK(budget_entries(keydiff, m, 100, Budget::ratio_ppm(900'000)).value() == 620);
  CHECK(budget_entries(keydiff, m, 100, Budget::ratio_ppm(500'000)).value() == 400);
  const Recipe many = recipe_of("keydiff(min_entries=90)");
  CHECK(budget_entries(many, m, 100, Budget::entries(1)).value() == 620);
  CHECK(m.hides_tokens(11));
  CHECK_FALSE(m.hides_tokens(10));
}

TEST_CASE("entries are per head on average, bytes divide by what an entry costs",
          "[unit][schema]") {
  const Recipe keydiff = recipe_of("keydiff");
  const ModelSpec m = model(4, 2);
  CHECK(budget_entries(keydiff, m, 100, Budget::entries(7)).value() == 56);
  const std::uint64_t each = record_entry_bytes({m.head_dim, m.dtype});
  CHECK(each == 12 + 2 * 64 * 2);
  CHECK(budget_entries(keydiff, m, 100, Budget::bytes(each * 57)).value() == 57);
  CHECK(budget_entries(keydiff, m, 100, Budget::bytes(each * 57 - 1)).value() == 56);
}

TEST_CASE("a budget of bytes holds more coded entries", "[unit][schema]") {
  const ModelSpec m = model(3, 2);  // of 64 elements in bf16
  const auto entries = [&](const char* encoding) {
    const std::string text = "keydiff(encoding=" + std::string(encoding) + ")";
    const Recipe r = recipe_of(text.c_str());
    return budget_entries(r, m, 1000, Budget::bytes(100'000)).value();
  };
  CHECK(entries("raw") == 100'000 / (12 + 2 * 128));
  CHECK(entries("int8") == 100'000 / (12 + 2 * 66));
  CHECK(entries("int4") == 100'000 / (12 + 2 * 34));
  CHECK(entries("k8v4") == 100'000 / (12 + 66 + 34));
  CHECK(entries("k6v4") == 100'000 / (12 + 50 + 34));
  ModelSpec odd = m;
  odd.head_dim = 63;
  const auto refused =
      budget_entries(recipe_of("keydiff(encoding=int4)"), odd, 1000, Budget::all()).status();
  CHECK(refused.code() == StatusCode::kInvalidArgument);
}

TEST_CASE("records within a share of the bytes take at most that, however the heads share them",
          "[unit][schema]") {
  const std::uint64_t seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  ModelSpec m = model(1, 2);
  m.head_dim = GENERATE(8u, 64u, 128u);
  Recipe r = recipe_of("keydiff");
  r.encoding = GENERATE(from_range(kEncodings));
  const EntryForm form = EntryForm::of(m, r.encoding);
  for (int round = 0; round < 200; ++round) {
    const auto n = static_cast<std::uint32_t>(1 + random() % 5000);
    const auto ppm = 1 + random() % 1'000'000;
    CAPTURE(m.head_dim, n, ppm);
    const auto kept = budget_entries(r, m, n, {Budget::Kind::kByteShare, ppm}).value();
    REQUIRE(kept % 2 == 0);  // as many for each of the two heads
    REQUIRE(kept <= 2 * n);
    if (kept == 2) continue;  // a record has at least one entry
    const auto first =
        static_cast<std::uint32_t>(kept - random() % std::min<std::uint64_t>(n, kept));
    const auto size = [&](std::uint64_t entries) {
      return RecordLayout::of(static_cast<std::uint32_t>(entries), form).size;
    };
    const std::uint64_t most = std::uint64_t{n} * 2 * form.raw().bytes() * ppm / 1'000'000;
    REQUIRE(size(first) + size(kept - first) <= most);
    // The size is near the budget: 64 more entries of each head would exceed it.
    if (kept < 2 * n) REQUIRE(size(kept / 2 + 64) * 2 > most);
  }
}

TEST_CASE("a default recipe leaves rows as they are if all entries are kept", "[unit][schema]") {
  const Recipe recipe = recipe_of("keydiff(encoding=int8)");
  const auto used = [&](const Budget& keep, const std::optional<Budget>& limit = {}) {
    return default_for(recipe, keep, limit).encoding;
  };
  CHECK(used(Budget::all()) == Encoding::kRaw);
  CHECK(used(Budget::ratio_ppm(1'000'000)) == Encoding::kRaw);
  CHECK(used(Budget::ratio_ppm(999'999)) == Encoding::kInt8);
  CHECK(used(Budget::byte_share(1).value()) == Encoding::kInt8);
  CHECK(used(Budget::entries(1000)) == Encoding::kInt8);
  CHECK(used(Budget::all(), Budget::ratio_ppm(500'000)) == Encoding::kInt8);
  CHECK(used(Budget::all(), Budget::ratio_ppm(1'000'000)) == Encoding::kRaw);
  CHECK(default_for(recipe, Budget::entries(1), {}) == recipe);
}

TEST_CASE("a default recipe of 8 bits takes the rows that suit the budget and the model",
          "[unit][schema]") {
  const auto used = [&](const char* encoding, const Budget& keep, std::uint32_t head_dim = 64,
                        Dtype dtype = Dtype::kBf16) {
    ModelSpec m = model(3, 2);
    m.head_dim = head_dim;
    m.dtype = dtype;
    const std::string text = "keydiff(encoding=" + std::string(encoding) + ")";
    return with_fitting_rows(recipe_of(text.c_str()), m, keep, 1000).encoding;
  };
  const Budget tenth = Budget::byte_share(0.1).value();
  CHECK(used("int8", tenth) == Encoding::kK6V4);
  CHECK(used("int8", tenth, 62) == Encoding::kInt8);  // no rows of 6 bits
  for (const char* encoding : {"raw", "int4", "k8v4"}) {
    CHECK(encoding_name(used(encoding, tenth)) == encoding);
  }
  CHECK(used("int8", Budget::loss(0.05).value()) == Encoding::kK6V4);
  for (const Budget& other :
       {Budget::all(), Budget::ratio_ppm(100'000), Budget::entries(9), Budget::bytes(1'000'000)}) {
    CHECK(used("int8", other) == Encoding::kInt8);
  }
  // An entry takes 144 and 16/64 of 256 bytes in 8 bits, so 56.35% of the bytes hold all entries.
  CHECK(used("int8", Budget::byte_share(0.563).value()) == Encoding::kK6V4);
  CHECK(used("int8", Budget::byte_share(0.564).value()) == Encoding::kInt8);
  CHECK(used("int8", Budget::byte_share(1).value()) == Encoding::kInt8);
  CHECK(used("int8", Budget::entries(9), 2) == Encoding::kRaw);  // the step takes as much
  // Two of three layers see a tenth of 1,000 tokens, so 40% of the entries are all.
  ModelSpec narrow = model(3, 2);
  narrow.windows = {100, 0, 100};
  const auto of_tokens = [&](double share, std::uint32_t tokens) {
    return with_fitting_rows(recipe_of("keydiff(encoding=int8)"), narrow,
                             Budget::byte_share(share).value(), tokens)
        .encoding;
  };
  CHECK(of_tokens(0.225, 1000) == Encoding::kK6V4);
  CHECK(of_tokens(0.226, 1000) == Encoding::kInt8);
  CHECK(of_tokens(0.226, 100) == Encoding::kK6V4);
  // Rows of 8 bits already.
  CHECK(used("int8", Budget::ratio_ppm(100'000), 64, Dtype::kF8E4M3) == Encoding::kRaw);
  CHECK(used("int4", Budget::ratio_ppm(100'000), 64, Dtype::kF8E4M3) == Encoding::kInt4);
  CHECK(used("int8", tenth, 64, Dtype::kF8E4M3) == Encoding::kK6V4);
  CHECK(used("int8", tenth, 62, Dtype::kF8E4M3) == Encoding::kRaw);
  CHECK(used("int8", Budget::byte_share(1).value(), 64, Dtype::kF8E4M3) == Encoding::kK6V4);
}

TEST_CASE("min_entries is a floor of every budget, capped at the segment", "[unit][schema]") {
  const Recipe r = recipe_of("keydiff(min_entries=128)");
  const ModelSpec m = model(3, 2);
  CHECK(budget_entries(r, m, 1000, Budget::ratio_ppm(100000)).value() == 6 * 128);
  CHECK(budget_entries(r, m, 1000, Budget::ratio_ppm(200000)).value() == 6 * 200);
  CHECK(budget_entries(r, m, 1000, Budget::entries(1)).value() == 6 * 128);
  CHECK(budget_entries(r, m, 1000, Budget::bytes(1)).value() == 6 * 128);
}

TEST_CASE("min_entries never makes records larger than the KV, however the heads share them",
          "[unit][schema]") {
  const std::uint64_t seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  ModelSpec m = model(1, 2);
  m.head_dim = GENERATE(8u, 64u, 80u, 128u);
  m.dtype = GENERATE(Dtype::kBf16, Dtype::kF32);
  Recipe r = recipe_of("keydiff(min_entries=128)");
  r.encoding = GENERATE(from_range(kEncodings));
  const EntryForm form = EntryForm::of(m, r.encoding);
  const std::uint64_t kv_entry = form.raw().bytes();
  for (std::uint32_t n = 1; n <= 128; ++n) {
    CAPTURE(m.head_dim, n);
    const auto kept = budget_entries(r, m, n, Budget::ratio_ppm(1)).value();
    CHECK(kept <= 2 * n);
    if (kept == 2) continue;  // a record has at least one entry
    const auto first =
        static_cast<std::uint32_t>(kept - std::min<std::uint64_t>(n, random() % kept));
    const auto size = [&](std::uint64_t entries) {
      return RecordLayout::of(static_cast<std::uint32_t>(entries), form).size;
    };
    CHECK(size(first) + size(kept - first) <= 2 * n * kv_entry);
  }
  m.head_dim = 64;
  m.dtype = Dtype::kBf16;
  r.encoding = Encoding::kRaw;
  CHECK(budget_entries(r, m, 30, Budget::ratio_ppm(1)).value() == 2 * 27);
  CHECK(budget_entries(r, m, 128, Budget::ratio_ppm(1)).value() == 2 * 120);
  CHECK(budget_entries(r, m, 30, Budget::all()).value() == 2 * 30);
}

TEST_CASE("min_entries counts from the beginning of the path", "[unit][schema]") {
  const Recipe r = recipe_of("keydiff(min_entries=128)");
  const ModelSpec m = model(3, 2);
  const auto kept = [&](std::uint32_t begin, std::uint32_t n, const Budget& keep) {
    return budget_entries(r, m, n, keep, begin).value() / 6;
  };
  CHECK(kept(100, 1000, Budget::ratio_ppm(10000)) == 28);
  CHECK(kept(100, 20, Budget::ratio_ppm(10000)) == 17);  // what takes no more than the KV
  CHECK(kept(128, 1000, Budget::ratio_ppm(10000)) == 10);
  CHECK(kept(2000, 30, Budget::ratio_ppm(300000)) == 9);
  CHECK(kept(2000, 3, Budget::ratio_ppm(300000)) == 1);
  // A limit bounds the floor here, too.
  const Recipe within = with_floor_within(r, m, 100, 100, Budget::ratio_ppm(100000)).value();
  CHECK(within.min_entries == 110);
  CHECK(budget_entries(within, m, 100, Budget::entries(1), 100).value() == 6 * 10);
}

TEST_CASE("kvpress_double keeps what kvpress keeps, off by one and all", "[unit][schema]") {
  const Recipe r = recipe_of("knorm_kvpress");
  CHECK(entries(r, 1000, Budget::ratio_ppm(200000)) == 199);
  CHECK(entries(r, 1000, Budget::ratio_ppm(100000)) == 99);
  CHECK(entries(r, 10, Budget::ratio_ppm(100000)) == 1);  // trunc gives 0, kvpress 0.5.5 clamps
  CHECK(entries(r, 1000, Budget::ratio_ppm(500000)) == 500);
  CHECK(entries(r, 1000, Budget::ratio_ppm(1000000)) == 1000);
  CHECK(entries(r, 1000, Budget::all()) == 1000);
  // A budget in entries needs no rounding.
  CHECK(entries(r, 1000, Budget::entries(200)) == 200);
}

TEST_CASE("budgets outside their range are refused with the value", "[unit][schema]") {
  const Recipe r = recipe_of("keydiff");
  for (const Budget& bad :
       {Budget::ratio_ppm(0), Budget::ratio_ppm(1000001), Budget::entries(0), Budget::bytes(0),
        Budget{Budget::Kind::kByteShare, 0}, Budget{Budget::Kind::kByteShare, 1000001}}) {
    CAPTURE(bad.to_string());
    CHECK(budget_entries(r, model(1, 1), 10, bad).status().code() == StatusCode::kInvalidArgument);
  }
  CHECK_FALSE(budget_entries(r, model(1, 1), 0, Budget::all()).ok());
}

TEST_CASE("a larger budget never keeps less", "[unit][schema]") {
  const std::uint64_t seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const Recipe r = recipe_of(GENERATE("keydiff", "keydiff_kvpress", "keydiff(min_entries=20)"));
  for (int round = 0; round < 500; ++round) {
    const auto n = static_cast<std::uint32_t>(1 + random() % 5000);
    const auto a = static_cast<std::uint32_t>(1 + random() % 1000000);
    const auto b = static_cast<std::uint32_t>(1 + random() % 1000000);
    CAPTURE(n, a, b);
    const auto small = entries(r, n, Budget::ratio_ppm(std::min(a, b)));
    const auto large = entries(r, n, Budget::ratio_ppm(std::max(a, b)));
    REQUIRE(1 <= small);
    REQUIRE(small <= large);
    REQUIRE(large <= n);
  }
}

TEST_CASE("the incremental form keeps a share of every ranked partition, at most the budget",
          "[unit][schema]") {
  const ModelSpec m = model(2, 3);
  const Recipe r = recipe_of("lagkv(lag=8, sinks=4, partition_keep=0.3)");
  const auto kept = [&](std::uint32_t n, const Budget& keep, std::uint32_t begin = 0) {
    return budget_entries(r, m, n, keep, begin).value();
  };
  // 4 sinks; partitions of 8, whose last is protected with the remainder; the others keep 2 of 8.
  CHECK(kept(4 + 8 * 5 + 3, Budget::all()) == 6 * (4 + 4 * 2 + 8 + 3));
  CHECK(kept(4 + 8 * 2, Budget::all()) == 6 * (4 + 2 + 8));
  CHECK(kept(4 + 8 * 2 - 1, Budget::all()) == 6 * (4 + 8 * 2 - 1));  // nothing is ranked
  CHECK(kept(8 * 5, Budget::all(), 100) == 6 * (4 * 2 + 8));         // no sinks at this position
  CHECK(kept(4 + 8 * 5 + 3, Budget::entries(10)) == 6 * 10);
  const Recipe l2 = recipe_of("l2_recursive(lag=8, sinks=0, skip_layers=1, partition_keep=0.5)");
  CHECK(budget_entries(l2, m, 40, Budget::all()).value() == 3 * (40 + 4 * 4 + 8));
  // A layer with a window of 24 tokens has 3 partitions and no sinks.
  ModelSpec narrow = model(2, 3);
  narrow.windows = {24, 0};
  CHECK(budget_entries(r, narrow, 4 + 8 * 5 + 3, Budget::all()).value() ==
        3 * ((2 * 2 + 8) + (4 + 4 * 2 + 8 + 3)));
  CHECK(recipe_of("lagkv(partition_keep=0)") == recipe_of("lagkv"));
  CHECK_FALSE(parse_recipe("keydiff(partition_keep=0.5)").ok());
  CHECK_FALSE(parse_recipe("lagkv(partition_keep=1.5)").ok());
}

}  // namespace
}  // namespace precis

// Segments whose rows are coded: readers get the rows that were pushed, as their code keeps them.
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "tests/integration/coded_kv.h"
#include "tests/integration/options.h"
#include "tests/integration/stored_fixture.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kSeed = 20261128;
constexpr std::uint32_t kTokens = 500;

Encoding encoding_of(const std::string& name) {
  for (const Encoding each : kEncodings) {
    if (encoding_name(each) == name) return each;
  }
  throw std::invalid_argument(name);
}

PutOptions options(const std::string& recipe, const Budget& keep) {
  PutOptions options;
  options.recipe = recipe;
  options.keep = keep;
  return options;
}

class CodedFixture : protected StoredFixture {
 protected:
  CodedFixture() : StoredFixture(kSeed) {}

  // `recipe` takes its encoding as its last parameter.
  msg::SegmentInfo put(const std::vector<TokenId>& path, const Kv& kv, const std::string& encoding,
                       const std::string& recipe = "ada_keydiff(",
                       const Budget& keep = Budget::ratio_ppm(500'000)) {
    return StoredFixture::put(path, kv, options(recipe + "encoding=" + encoding + ")", keep));
  }
  std::vector<TokenId> longer(std::vector<TokenId> path, std::uint32_t more) {
    for (const TokenId token : random_tokens(random, more)) path.push_back(token);
    return path;
  }
};

TEST_CASE_METHOD(CodedFixture, "coded rows come back as their code keeps them, at every budget",
                 "[integration]") {
  const std::string encoding = GENERATE(as<std::string>{}, "int8", "int4", "k8v4", "k6v4");
  const Dtype dtype = GENERATE(Dtype::kF32, Dtype::kBf16, Dtype::kF16, Dtype::kF8E4M3);
  // The rows of the first are sealed layer by layer, those of the second are staged until all
  // layers have come, and those of the third are cut at the budget.
  const std::string recipe = GENERATE(as<std::string>{}, "ada_keydiff(", "global_keydiff(",
                                      "ada_snapkv(ada_mode=paper_blend, ");
  CAPTURE(encoding, dtype, recipe);
  ModelSpec spec = tiny_model(dtype);
  spec.name = "test/coded";
  model = client->register_model(spec).value();
  const auto path = random_tokens(random, kTokens);
  const Kv kv = random_kv(random, model.spec, 0, kTokens, 64);
  const Kv read_kv = as_read(kv, encoding_of(encoding));

  model.adapter = "raw";
  const auto raw = put(path, kv, "raw", recipe);
  const PrefixCopy raw_rows = read(path);
  model.adapter = "coded";
  const auto coded = put(path, kv, encoding, recipe);
  CHECK(coded.entries == raw.entries);
  // Rows of int8 have a step beside their 8 bits.
  const bool is_larger = dtype == Dtype::kF8E4M3 && encoding == "int8";
  CHECK((coded.stored_bytes > raw.stored_bytes) == is_larger);
  const PrefixCopy rows = read(path);
  CHECK(rows_are_of(rows, {&read_kv}));
  for (std::size_t l = 0; l < rows.size(); ++l) {
    for (std::size_t h = 0; h < rows[l].size(); ++h) {
      CHECK(rows[l][h].positions == raw_rows[l][h].positions);
      CHECK(rows[l][h].scores == raw_rows[l][h].scores);
    }
  }
  if (recipe.starts_with("ada_snapkv")) return;  // has no smaller budgets
  CHECK(rows_are_of(read(path, Budget::ratio_ppm(130'000)), {&read_kv}));
  // A trim, a restart and a check keep the rows.
  const auto trimmed = client->trim_segment(coded.id, Budget::ratio_ppm(200'000));
  REQUIRE(trimmed.ok());
  const PrefixCopy left = read(path);
  CHECK(service->stop() == 0);
  restart();
  CHECK(client->check_segment(coded.id).value().damage.empty());
  CHECK(read(path) == left);
  CHECK(rows_are_of(left, {&read_kv}));
}

TEST_CASE_METHOD(CodedFixture, "a budget in bytes counts coded rows", "[integration]") {
  const auto path = random_tokens(random, kTokens);
  const Kv kv = random_kv(random, model.spec, 0, kTokens, 64);
  const Budget bytes = Budget::bytes(200'000);
  model.adapter = "raw";
  const auto raw = put(path, kv, "raw", "ada_keydiff(", bytes);
  model.adapter = "int8";
  const auto coded = put(path, kv, "int8", "ada_keydiff(", bytes);
  CHECK(coded.entries > 3 * raw.entries);  // 80 B for an entry instead of 268
  CHECK(coded.stored_bytes < 220'000);
}

TEST_CASE_METHOD(CodedFixture, "segments of different encodings are read as one prefix",
                 "[integration]") {
  const std::string first = GENERATE(as<std::string>{}, "raw", "int4", "k8v4", "k6v4");
  CAPTURE(first);
  const auto parent = random_tokens(random, 300);
  const auto path = longer(parent, 200);
  const Kv parent_kv = random_kv(random, model.spec, 0, 300, 32);
  const Kv kv = random_kv(random, model.spec, 300, 200, 32);
  put(parent, parent_kv, first);
  const auto child = put(path, kv, "int8");
  CHECK(child.begin == 300);
  const Kv parent_read = as_read(parent_kv, encoding_of(first));
  const Kv kv_read = as_read(kv, Encoding::kInt8);
  const PrefixCopy whole = read(path);
  CHECK(rows_are_of(whole, {&parent_read, &kv_read}));
  // A path that leaves the second segment reads it in part.
  auto other = path;
  other.resize(448);
  other = longer(other, 50);
  const auto match = client->lookup(model, other).value();
  CHECK(match.matched_tokens == 448);
  const PrefixCopy part = read(other);
  CHECK(entries_of(part) < entries_of(whole));
  CHECK(rows_are_of(part, {&parent_read, &kv_read}));
  // A get of some heads with exact counts works for both encodings, too.
  LookupOptions lookup;
  lookup.keep = Budget::ratio_ppm(200'000);
  const auto counted = client->lookup(model, path, lookup).value();
  GetOptions heads;
  heads.head_begin = 1;
  const Prefix of_one = client->get(counted, Budget::all(), heads).value();
  REQUIRE(of_one.wait().ok());
  CHECK(of_one.head(0, 0).keys.num_tokens == counted.plan.at(0, 1));
}

TEST_CASE_METHOD(CodedFixture, "a split and a consolidation copy coded rows", "[integration]") {
  const std::string encoding = GENERATE(as<std::string>{}, "int8", "int4", "k8v4", "k6v4");
  CAPTURE(encoding);
  const auto first = random_tokens(random, kTokens);
  auto second = first;
  second.resize(256);
  second = longer(second, 150);
  const Kv first_kv = random_kv(random, model.spec, 0, kTokens, 32);
  const Kv rest_kv = random_kv(random, model.spec, 256, 150, 32);
  const Kv first_read = as_read(first_kv, encoding_of(encoding));
  const Kv rest_read = as_read(rest_kv, encoding_of(encoding));
  put(first, first_kv, encoding);
  const PrefixCopy before = by_position(read(first));
  const auto added = put(second, rest_kv, encoding);
  CHECK(added.begin == 256);
  CHECK(by_position(read(first)) == before);
  CHECK(rows_are_of(read(second), {&first_read, &rest_read}));

  // Many small turns become fewer segments.
  std::vector<Kv> turns;
  auto path = second;
  for (int turn = 0; turn < 30; ++turn) {
    const auto begin = static_cast<std::uint32_t>(path.size());
    path = longer(path, 40);
    const Kv kv = random_kv(random, model.spec, begin, 40, 32);
    put(path, kv, encoding);
    turns.push_back(as_read(kv, encoding_of(encoding)));
  }
  std::vector<const Kv*> all = {&first_read, &rest_read};
  for (const Kv& turn : turns) all.push_back(&turn);
  for (int tries = 0; stat(*client, "precis_consolidations_total") == 0; ++tries) {
    REQUIRE(tries < 3000);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  CHECK(rows_are_of(read(path), all));
}

TEST_CASE_METHOD(CodedFixture, "a share of the bytes is filled, and never exceeded",
                 "[integration]") {
  const std::string encoding = GENERATE(as<std::string>{}, "raw", "int8", "int4", "k8v4", "k6v4");
  CAPTURE(encoding);
  const auto path = random_tokens(random, 2000);
  const Kv kv = random_kv(random, model.spec, 0, 2000, 64);
  const Kv expected = as_read(kv, encoding_of(encoding));
  const auto full = static_cast<double>(model.spec.token_bytes() * path.size());
  const auto share = [](double of_bytes) { return Budget::byte_share(of_bytes).value(); };
  const auto fills = [&](std::uint64_t bytes, double of_bytes) {
    CHECK(static_cast<double>(bytes) <= of_bytes * full);
    CHECK(static_cast<double>(bytes) >= 0.9 * of_bytes * full);
  };
  const auto stored = put(path, kv, encoding, "global_keydiff(", share(0.15));
  CHECK(stored.budget == share(0.15));
  fills(stored.stored_bytes, 0.15);
  CHECK(rows_are_of(read(path), {&expected}));
  // Readers and trims count the bytes of the stored encoding.
  const PrefixCopy less = read(path, share(0.1));
  CHECK(entries_of(less) < entries_of(read(path)));
  CHECK(client->get(client->lookup(model, path).value(), share(0.5)).status().code() ==
        StatusCode::kInvalidArgument);
  const auto trimmed = client->trim_segment(stored.id, share(0.1));
  REQUIRE(trimmed.ok());
  fills(trimmed->stored_bytes, 0.1);
  CHECK(entries_of(read(path)) == entries_of(less));
  // A lookup with a larger budget gets what is stored.
  LookupOptions lookup;
  lookup.keep = share(0.5);
  CHECK(client->lookup(model, path, lookup)->plan.total() == entries_of(less));
}

TEST_CASE_METHOD(CodedFixture, "a limit that is a share of the bytes lowers one", "[integration]") {
  const auto share = [](double of_bytes) { return Budget::byte_share(of_bytes).value(); };
  msg::SetBudget change;
  change.keep = share(0.3);
  change.limit = share(0.1);
  CHECK(client->set_budget(change).status().message().find("above the limit") != std::string::npos);
  change.keep = share(0.05);
  REQUIRE(client->set_budget(change).ok());
  const auto path = random_tokens(random, 2000);
  const Kv kv = random_kv(random, model.spec, 0, 2000, 64);
  const auto stored = StoredFixture::put(path, kv, PutOptions{});
  CHECK(stored.budget == share(0.05));
  CHECK(stored.encoding == Encoding::kK6V4);
  model.adapter = "above";
  CHECK(put(path, kv, "int8", "ada_keydiff(", share(0.2)).budget == share(0.1));
}

TEST_CASE_METHOD(CodedFixture, "a default put at a share of the bytes stores fewer bits",
                 "[integration]") {
  const auto path = random_tokens(random, 2000);
  const Kv kv = random_kv(random, model.spec, 0, 2000, 64);
  PutOptions share;
  share.keep = Budget::byte_share(0.3).value();
  const auto fewer = StoredFixture::put(path, kv, share);
  CHECK(fewer.encoding == Encoding::kK6V4);
  const Kv coded = as_read(kv, Encoding::kK6V4);
  CHECK(rows_are_of(read(path), {&coded}));
  // A dry run counts in the same encoding.
  msg::SetBudget change;
  change.keep = share.keep;
  change.dry_run = true;
  CHECK(client->set_budget(change)->next_put->stored_bytes == fewer.stored_bytes);
  // A recipe that somebody has set stays as it is.
  change.recipe = "global_kvdiff(encoding=int8)";
  change.dry_run = false;
  REQUIRE(client->set_budget(change).ok());
  model.adapter = "set";
  const auto set = StoredFixture::put(path, kv, PutOptions{});
  CHECK(set.encoding == Encoding::kInt8);
  CHECK(set.budget == share.keep);
  CHECK(set.entries < fewer.entries);
}

TEST_CASE_METHOD(CodedFixture, "a default put stores 8 bits, unless it keeps all entries",
                 "[integration]") {
  const auto path = random_tokens(random, kTokens);
  const Kv kv = random_kv(random, model.spec, 0, kTokens, 64);
  const Kv coded = as_read(kv, Encoding::kInt8);
  CHECK(StoredFixture::put(path, kv, PutOptions{}).encoding == Encoding::kInt8);
  CHECK(rows_are_of(read(path), {&coded}));
  model.adapter = "all";
  PutOptions all;
  all.keep = Budget::ratio_ppm(1'000'000);
  CHECK(StoredFixture::put(path, kv, all).encoding == Encoding::kRaw);
  CHECK(rows_are_of(read(path), {&kv}));
  model.adapter = "named";
  all.recipe = "ada_keydiff(encoding=int8)";
  CHECK(StoredFixture::put(path, kv, all).encoding == Encoding::kInt8);
}

TEST_CASE_METHOD(CodedFixture, "an encoding that the model's rows can't have is refused",
                 "[integration]") {
  ModelSpec odd = tiny_model();
  odd.name = "test/odd";
  odd.head_dim = 31;
  const Model other = client->register_model(odd).value();
  const auto path = random_tokens(random, 100);
  const auto refused =
      client->begin_put(other, path, options("keydiff(encoding=int4)", Budget::ratio_ppm(500'000)));
  CHECK(refused.status().code() == StatusCode::kInvalidArgument);
  CHECK(refused.status().message().find("use encoding=int8") != std::string::npos);
  const auto by_default = client->set_budget({{other.fingerprint}, "keydiff(encoding=int4)", {}});
  CHECK(by_default.status().message().find("use encoding=int8") != std::string::npos);
  const auto unknown =
      client->begin_put(other, path, options("keydiff(encoding=int3)", Budget::ratio_ppm(500'000)));
  CHECK(unknown.status().message().find("one of raw, int8, int4, k8v4, k6v4") != std::string::npos);
}

}  // namespace

// A get that writes its rows to the caller's pages.
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <vector>

#include "client/src/paged_rows.h"
#include "tests/unit/client/fake_server.h"
#include "tests/unit/client/random_pages.h"
#include "tests/unit/client/serving.h"
#include "tests/unit/client/stored_prefix.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kRows = 16, kPages = 400;

// Pages for a number of rows of each head.
struct OwnPages {
  OwnPages(const ModelSpec& m, std::uint32_t rows_of_a_head)
      : model(m),
        random(kServingSeed),
        keys(random, Order::kColumns, kPages, kRows, m.head_dim, m.dtype),
        values(random, Order::kRowsApart, kPages, kRows, m.head_dim, m.dtype) {
    const std::uint32_t heads = m.num_layers * m.num_kv_heads;
    const std::uint32_t pages = (rows_of_a_head + kRows - 1) / kRows;
    table = random_table(random, kPages, std::size_t{heads} * pages);
    for (std::uint32_t i = 0; i <= heads; ++i) starts.push_back(i * pages);
  }
  PagesOut out() const { return {keys.rows, values.rows, table, starts}; }

  const ModelSpec model;
  std::mt19937 random;
  RandomPages keys, values;
  std::vector<std::uint32_t> table, starts;
};

TEST_CASE("a get leaves rows in pages once their layer has been waited for", "[client]") {
  const Serving serving = three_segments(small_model(), GENERATE(false, true));
  FakeServer server(serving);
  const auto client = server.connect().value();
  OwnPages own(serving.model, 501);
  // The expected content after the get, if only the rows are written.
  OwnPages expected = own;
  expected.keys.rows.data = expected.keys.memory.data();
  expected.values.rows.data = expected.values.memory.data();
  const auto match = match_of(serving.model, serving.segments);
  std::optional<Prefix> prefix;
  {
    // The table is copied.
    const std::vector<std::uint32_t> table = own.table, starts = own.starts;
    PagesOut out = own.out();
    out.table = table;
    out.starts = starts;
    prefix = client->get(match, Budget::all(), {.pages = out}).value();
  }
  SECTION("whole") { REQUIRE(prefix->wait().ok()); }
  SECTION("layer by layer") {
    for (std::uint32_t l : {2u, 0u, 1u, 2u}) REQUIRE(prefix->wait_layer(l).ok());
  }
  for (std::uint32_t l = 0; l < serving.model.num_layers; ++l) {
    for (std::uint32_t h = 0; h < serving.model.num_kv_heads; ++h) {
      const HeadEntries head = prefix->head(l, h);
      const std::size_t i = std::size_t{l} * serving.model.num_kv_heads + h;
      const auto pages = std::span(own.table).subspan(own.starts[i], own.starts[1]);
      scatter_rows(head.keys.data, 0, head.keys.num_tokens, expected.keys.rows, pages);
      scatter_rows(head.values.data, 0, head.values.num_tokens, expected.values.rows, pages);
    }
  }
  CHECK(own.keys.memory == expected.keys.memory);
  CHECK(own.values.memory == expected.values.memory);
}

TEST_CASE("a layer that fails its checksums leaves nothing in pages", "[client]") {
  Serving serving = one_segment(small_model(), 600, 600);
  serving.damage = [](ServedBytes& served) { served.bytes.front() ^= std::byte{1}; };
  FakeServer server(serving);
  const auto client = server.connect().value();
  OwnPages own(serving.model, 400);
  const auto before = own.keys.memory;
  const auto match = match_of(serving.model, serving.segments);
  const auto prefix = client->get(match, Budget::all(), {.pages = own.out()}).value();
  CHECK(prefix.wait().code() == StatusCode::kCorruption);
  CHECK(own.keys.memory == before);
}

TEST_CASE("a head that kept more rows than its pages hold says which", "[client]") {
  const Serving serving = one_segment(small_model(), 2400, 2400);  // 400 of each head
  FakeServer server(serving);
  const auto client = server.connect().value();
  OwnPages own(serving.model, 400);
  // In layer 1 the second head has one page less, and the first head one more.
  ++own.starts[3];
  const auto match = match_of(serving.model, serving.segments);
  const auto prefix = client->get(match, Budget::all(), {.pages = own.out()}).value();
  CHECK(prefix.wait_layer(0).ok());
  const Status status = prefix.wait();
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(status.message() ==
        "pages: layer 1, head 1 kept 400 rows, there is room for 24 pages of 16 rows");
  CHECK(prefix.wait_layer(2).ok());
}

TEST_CASE("pages for a get that do not fit are refused by name", "[client]") {
  const Serving serving = one_segment(small_model(), 600, 600);
  FakeServer server(serving);
  const auto client = server.connect().value();
  const auto match = match_of(serving.model, serving.segments);
  const auto refused = [&](const std::function<void(OwnPages&)>& change) {
    OwnPages own(serving.model, 400);
    change(own);
    const Status status = client->get(match, Budget::all(), {.pages = own.out()}).status();
    CHECK(status.code() == StatusCode::kInvalidArgument);
    return status.message();
  };
  using Catch::Matchers::StartsWith;
  CHECK_THAT(refused([](auto& own) { own.keys.rows.dtype = Dtype::kF32; }),
             StartsWith("pages.keys: dtype f32, the model's is bf16"));
  CHECK_THAT(refused([](auto& own) { own.table[7] = kPages; }),
             StartsWith("pages: table[7] is 400, there are 400 pages"));
  CHECK_THAT(refused([](auto& own) { own.starts.pop_back(); }),
             StartsWith("pages: has 6 starts, must have 7"));
  CHECK_THAT(refused([](auto& own) { own.starts[2] = 0; }),
             StartsWith("pages: starts[2] is 0, less than the one before"));
  CHECK_THAT(refused([](auto& own) { ++own.starts.back(); }),
             StartsWith("pages: the last start is 151, the table has 150 entries"));
  CHECK_THAT(refused([](auto& own) { own.keys.rows.space = MemorySpace::kDevice; }),
             StartsWith("pages: keys lie on device 0, values in host memory, must be in the same"));
}

TEST_CASE("a get into a device that is not there says what to do", "[client]") {
  const Serving serving = one_segment(small_model(), 600, 600);
  FakeServer server(serving);
  const auto client = server.connect().value();
  OwnPages own(serving.model, 400);
  for (PagedRows* rows : {&own.keys.rows, &own.values.rows}) {
    rows->space = MemorySpace::kDevice;
    rows->device = 999;
  }
  const auto match = match_of(serving.model, serving.segments);
  const Status status = client->get(match, Budget::all(), {.pages = own.out()}).status();
  CHECK(status.code() == StatusCode::kUnsupported);
  CHECK_THAT(status.message(), Catch::Matchers::StartsWith("pages: memory on device 999"));
  CHECK_THAT(status.message(), Catch::Matchers::EndsWith("; use pages in host memory"));
}

}  // namespace

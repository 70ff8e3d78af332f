// Rows to pages and from them, against a plain loop, and refused pages.
#include "client/src/paged_rows.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/unit/client/random_pages.h"
#include "tests/unit/client/stored_prefix.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kSeed = 20251125;

struct Case {
  std::mt19937 random{kSeed};
  Order order = GENERATE(Order::kRows, Order::kRowsApart, Order::kColumns, Order::kColumnsApart,
                         Order::kElementsApart);
  Dtype dtype = GENERATE(Dtype::kF32, Dtype::kBf16, Dtype::kF8E4M3);
  std::uint32_t head_dim = GENERATE(1u, 3u, 8u, 20u, 64u, 128u);
  std::uint32_t page_rows = GENERATE(1u, 5u, 16u, 33u);
  std::uint64_t size = dtype_size_bytes(dtype);
};

TEST_CASE("rows are scattered over pages of any strides, and the rest of these stays", "[client]") {
  Case c;
  CAPTURE(kSeed, static_cast<int>(c.order), c.size, c.head_dim, c.page_rows);
  const std::uint32_t num_pages = 9;
  const std::size_t in_table = 1 + c.random() % 6;
  RandomPages pages(c.random, c.order, num_pages, c.page_rows, c.head_dim, c.dtype);
  const auto table = random_table(c.random, num_pages, in_table);
  const std::uint64_t most = in_table * c.page_rows;
  for (const std::uint64_t num_rows : {std::uint64_t{0}, most - 1, most, c.random() % (most + 1)}) {
    CAPTURE(num_rows);
    std::vector<std::byte> rows(num_rows * c.head_dim * c.size);
    for (std::byte& b : rows) b = static_cast<std::byte>(c.random());
    std::vector<std::byte> expected = pages.memory;
    for (std::uint64_t r = 0; r < num_rows; ++r) {
      for (std::uint64_t d = 0; d < c.head_dim; ++d) {
        std::memcpy(expected.data() + pages.at(table[r / c.page_rows], r % c.page_rows, d),
                    rows.data() + (r * c.head_dim + d) * c.size, c.size);
      }
    }
    scatter_rows(rows.data(), 0, num_rows, pages.rows, table);
    CHECK(pages.memory == expected);
  }
}

TEST_CASE("rows are gathered from pages of any strides, from any row on", "[client]") {
  Case c;
  CAPTURE(kSeed, static_cast<int>(c.order), c.size, c.head_dim, c.page_rows);
  const std::uint32_t num_pages = 9;
  const std::size_t in_table = 1 + c.random() % 6;
  const RandomPages pages(c.random, c.order, num_pages, c.page_rows, c.head_dim, c.dtype);
  const auto table = random_table(c.random, num_pages, in_table);
  const std::uint64_t most = in_table * c.page_rows;
  for (const std::uint64_t first : {std::uint64_t{0}, most - 1, c.random() % most}) {
    const std::uint64_t num_rows = most - first;
    CAPTURE(first, num_rows);
    std::vector<std::byte> rows(num_rows * c.head_dim * c.size), expected(rows.size());
    for (std::uint64_t r = 0; r < num_rows; ++r) {
      for (std::uint64_t d = 0; d < c.head_dim; ++d) {
        const std::uint64_t row = first + r;
        std::memcpy(expected.data() + (r * c.head_dim + d) * c.size,
                    pages.memory.data() + pages.at(table[row / c.page_rows], row % c.page_rows, d),
                    c.size);
      }
    }
    gather_rows(pages.rows, table, first, num_rows, rows.data());
    CHECK(rows == expected);
  }
}

TEST_CASE("pages that aren't what they are said to be are refused by name", "[client]") {
  const ModelSpec model = small_model(Dtype::kF32);  // head_dim 8
  std::mt19937 random(kSeed);
  RandomPages memory(random, Order::kRows, 6, 4, 8, Dtype::kF32);
  using Catch::Matchers::Contains;
  using Catch::Matchers::StartsWith;
  const auto refused = [&](const std::function<void(PagedRows&)>& change) {
    PagedRows keys = memory.rows;
    change(keys);
    const Status status = check_paged_rows(model, keys, memory.rows);
    CHECK(status.code() == StatusCode::kInvalidArgument);
    return status.message();
  };
  CHECK(check_paged_rows(model, memory.rows, memory.rows).ok());
  CHECK_THAT(refused([](auto& p) { p.dtype = Dtype::kBf16; }),
             StartsWith("pages.keys: dtype bf16, the model's is f32"));
  CHECK_THAT(refused([](auto& p) { p.head_dim = 4; }), StartsWith("pages.keys: head_dim 4"));
  CHECK_THAT(refused([](auto& p) { p.data = nullptr; }), Contains("no memory"));
  CHECK_THAT(refused([](auto& p) { p.num_pages = 0; }), Contains("0 pages of 4 rows"));
  CHECK_THAT(refused([](auto& p) { p.page_rows = 0; }), Contains("pages of 0 rows"));
  CHECK_THAT(refused([](auto& p) { p.page_rows = 3; }),
             Contains("of keys have 3 rows, pages of values 4"));
  CHECK_THAT(refused([](auto& p) { p.page_rows = 5; }), Contains("so a page is longer than"));
  CHECK_THAT(refused([](auto& p) { p.page_stride_bytes = 127; }),
             Contains("a page is longer than"));
  CHECK_THAT(refused([](auto& p) { p.row_stride_bytes = 28; }), Contains("they overlap"));
  CHECK_THAT(refused([](auto& p) { p.row_stride_bytes = 0; }), Contains("they overlap"));
  CHECK_THAT(refused([](auto& p) { p.dim_stride_bytes = 0; }), Contains("they overlap"));
  CHECK_THAT(refused([](auto& p) { p.dim_stride_bytes = 12; }), Contains("they overlap"));
  // Products that would overflow.
  CHECK_THAT(refused([](auto& p) { p.row_stride_bytes = ~std::uint64_t{0} / 2; }),
             Contains("a page is longer than"));
  CHECK_THAT(refused([](auto& p) { p.dim_stride_bytes = ~std::uint64_t{0}; }),
             Contains("a page is longer than"));
  CHECK_THAT(refused([](auto& p) { p.page_stride_bytes = std::uint64_t{1} << 61; }),
             Contains("more than any memory has"));
  CHECK_THAT(refused([](auto& p) { p.num_pages = ~std::uint64_t{0}; }),
             Contains("more than any memory has"));

  PagedRows fewer = memory.rows;
  fewer.num_pages = 5;
  const std::vector<std::uint32_t> table{0, 4, 5};
  CHECK(check_table(table, memory.rows, memory.rows).ok());
  CHECK_THAT(check_table(table, memory.rows, fewer).message(),
             StartsWith("pages: table[2] is 5, there are 5 pages"));
}

}  // namespace

// Moves rows between host memory and pages on the device, and compares the result with a plain
// loop.
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "precis/page_mover.h"
#include "tests/unit/kernels/gpu_pages.h"
#include "tests/unit/kernels/layer_fixture.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;
using precis::testing::Order;
using precis::testing::random_table;
using precis::testing::RandomPages;

namespace {

// Pages of K and of V, and rows of a few heads packed with gaps between them.
struct Case {
  Case(Gpu& gpu, std::mt19937& random)
      : dtype(kDtypes[random() % kDtypes.size()]),
        size(dtype_size_bytes(dtype)),
        head_dim(random() % 3 == 0 ? 1 + random() % 70 : 8 << random() % 5),
        page_rows(1 + random() % (random() % 3 == 0 ? 100 : 20)),
        keys(gpu, pages(random)),
        values(gpu, pages(random)) {
    const std::uint32_t heads = 1 + random() % 5;
    for (std::uint32_t h = 0; h < heads; ++h) tables.push_back({});
    // No page is used twice.
    for (const std::uint32_t page : random_table(random, kPages, random() % (kPages + 1))) {
      tables[random() % heads].push_back(page);
    }
    std::uint64_t end = 0;
    const auto place = [&](std::uint64_t num_rows) {
      const std::uint64_t gap = random() % 3 == 0 ? size * (random() % 9) : 0;
      const std::uint64_t at = end + gap;
      end = at + num_rows * head_dim * size;
      return at;
    };
    for (const auto& table : tables) {
      const std::uint64_t room = table.size() * page_rows;
      const std::uint64_t first = room == 0 ? 0 : random() % room;
      runs.push_back({0, 0, table, first, room == 0 ? 0 : random() % (room - first + 1)});
    }
    for (PageRun& run : runs) run.keys_at = place(run.num_rows);
    for (PageRun& run : runs) run.values_at = place(run.num_rows);
    rows.resize(end + size * (random() % 9));
    for (std::byte& b : rows) b = static_cast<std::byte>(random());
  }
  RandomPages pages(std::mt19937& random) const {
    return {random, static_cast<Order>(random() % 5), kPages, page_rows, head_dim, dtype};
  }
  // Calls each(side, offset in the pages, offset in the rows) for every element that moves; side 0
  // is K, 1 is V.
  template <typename Each>
  void each_element(const Each& each) const {
    for (const PageRun& run : runs) {
      for (std::uint64_t i = 0; i < run.num_rows * head_dim; ++i) {
        const std::uint64_t row = run.first_row + i / head_dim;
        const auto place = [&](const RandomPages& of) {
          return of.at(run.table[row / page_rows], row % page_rows, i % head_dim);
        };
        each(0, place(keys.pages), run.keys_at + i * size);
        each(1, place(values.pages), run.values_at + i * size);
      }
    }
  }

  static constexpr std::uint32_t kPages = 17;
  Dtype dtype;
  std::uint64_t size;
  std::uint32_t head_dim, page_rows;
  DevicePages keys, values;
  std::vector<std::vector<std::uint32_t>> tables;
  std::vector<PageRun> runs;
  std::vector<std::byte> rows;
};

// Calls check(case, gpu, mover) for random cases.
template <typename Check>
void each_case(const Check& check) {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  Gpu gpu;
  const auto mover = make_cuda_page_mover(0).value();
  for (int round = 0; round < rounds(200); ++round) {
    const Case c(gpu, random);
    CAPTURE(round, c.size, c.head_dim, c.page_rows, c.runs.size());
    check(c, gpu, *mover);
  }
}

}  // namespace

TEST_CASE("rows are scattered over pages on the device, and the rest of these stays", "[gpu]") {
  each_case([](const Case& c, Gpu& gpu, PageMover& mover) {
    std::vector<std::byte> expected[] = {c.keys.pages.memory, c.values.pages.memory};
    c.each_element([&](int side, std::uint64_t place, std::uint64_t at) {
      std::memcpy(expected[side].data() + place, c.rows.data() + at, c.size);
    });
    must_succeed(mover.scatter(c.rows, c.keys.pages.rows, c.values.pages.rows, c.runs));
    REQUIRE(c.keys.now(gpu) == expected[0]);
    REQUIRE(c.values.now(gpu) == expected[1]);
  });
}

TEST_CASE("rows are gathered from pages on the device, and nothing between them is written",
          "[gpu]") {
  each_case([](const Case& c, Gpu&, PageMover& mover) {
    std::vector<std::byte> rows = c.rows, expected = rows;
    c.each_element([&](int side, std::uint64_t place, std::uint64_t at) {
      const RandomPages& pages = (side == 0 ? c.keys : c.values).pages;
      std::memcpy(expected.data() + at, pages.memory.data() + place, c.size);
    });
    must_succeed(mover.gather(c.keys.pages.rows, c.values.pages.rows, c.runs, rows));
    REQUIRE(rows == expected);
  });
}

TEST_CASE("rows come and go through memory that is pinned", "[gpu]") {
  std::mt19937 random(7);
  Gpu gpu;
  const auto mover = make_cuda_page_mover(0).value();
  Case c(gpu, random);
  std::vector<std::byte> again(c.rows);
  const auto from = mover->pin(c.rows), to = mover->pin(again);
  must_succeed(mover->scatter(c.rows, c.keys.pages.rows, c.values.pages.rows, c.runs));
  c.each_element(
      [&](int, std::uint64_t, std::uint64_t at) { std::memset(again.data() + at, 0, c.size); });
  must_succeed(mover->gather(c.keys.pages.rows, c.values.pages.rows, c.runs, again));
  REQUIRE(again == c.rows);
}

TEST_CASE("pages that are not all in the device's memory are told from those that are", "[gpu]") {
  std::mt19937 random(9);
  Gpu gpu;
  const auto mover = make_cuda_page_mover(0).value();
  const Case c(gpu, random);
  REQUIRE(c.size > 1);
  CHECK(mover->check(c.keys.pages.rows).ok());
  PagedRows rows = c.keys.pages.rows;
  using Catch::Matchers::Contains;
  rows.num_pages += (std::uint64_t{1} << 44) / rows.page_stride_bytes;
  const Status beyond = mover->check(rows);
  CHECK(beyond.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(beyond.message(), Contains(" is not in the memory of CUDA device 0"));
  std::vector<std::byte> host = c.keys.pages.memory;
  rows = c.keys.pages.rows;
  rows.data = host.data();
  for (std::uint64_t PagedRows::*stride :
       {&PagedRows::page_stride_bytes, &PagedRows::row_stride_bytes,
        &PagedRows::dim_stride_bytes}) {
    PagedRows odd = c.keys.pages.rows;
    odd.*stride += 1;
    CHECK_THAT(mover->check(odd).message(), Contains("multiples of an element's "));
  }
  const Status elsewhere = mover->check(rows);
  CHECK(elsewhere.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(elsewhere.message(), Contains("byte 0 of "));
}

TEST_CASE("a device that is not there moves no pages", "[gpu]") {
  const Status status = make_cuda_page_mover(999).status();
  CHECK(status.code() == StatusCode::kUnsupported);
  CHECK_THAT(status.message(), Catch::Matchers::Contains("CUDA device 999"));
}

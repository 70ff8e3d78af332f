// The common basis of all stages: element arithmetic, the order of scores, the thread pool.
#include <algorithm>
#include <atomic>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "kernels/common/element_op.h"
#include "kernels/common/isa.h"
#include "kernels/common/lanes.h"
#include "kernels/common/thread_pool.h"
#include "kernels/score/tile.h"
#include "kernels/select/select_op.h"
#include "tests/unit/kernels/layer_fixture.h"
#include "tests/unit/kernels/reference.h"

using namespace precis;
using namespace precis::kernels;
using namespace precis::kernels::test;

TEST_CASE("every f16 and bf16 widens to exactly its value", "[kernels][common]") {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    for (const Dtype dtype : {Dtype::kF16, Dtype::kBf16}) {
      const double expected = value_at(HeadsView::packed(&half, 1, 1, 1, dtype), 0, 0, 0);
      const float got = dtype == Dtype::kF16 ? f32_of_f16(half) : f32_of_bf16(half);
      const bool same = std::isnan(expected)
                            ? std::isnan(got)
                            : got == expected && std::signbit(got) == std::signbit(expected);
      if (!same) FAIL(dtype_name(dtype) << " " << bits << ": " << got << " is not " << expected);
    }
  }
}

TEST_CASE("every f8 widens to exactly its value, also as bf16", "[kernels][common]") {
  for (std::uint32_t bits = 0; bits < 256; ++bits) {
    const auto octet = static_cast<std::uint8_t>(bits);
    const double expected = value_at(HeadsView::packed(&octet, 1, 1, 1, Dtype::kF8E4M3), 0, 0, 0);
    for (const float got : {f32_of_f8(octet), f32_of_bf16(bf16_of_f8(octet))}) {
      CAPTURE(bits, got);
      if (std::isnan(expected)) {
        CHECK(std::isnan(got));
      } else {
        CHECK((got == expected && std::signbit(got) == std::signbit(expected)));
      }
    }
  }
}

TEST_CASE("exp_f32 is within two units in the last place", "[kernels][common]") {
  double worst = 0;
  for (int i = -872990; i <= 800000; i += 7) {
    const float x = static_cast<float>(i) / 10000.0f;
    const double exact = std::exp(double{x});
    const double unit = std::ldexp(1.0, std::ilogb(exact) - 23);
    worst = std::max(worst, std::fabs(exp_f32(x) - exact) / unit);
  }
  CHECK(worst < 2.0);
  CHECK(exp_f32(0.0f) == 1.0f);
  CHECK(exp_f32(-1000.0f) == 0.0f);
  CHECK(exp_f32(-INFINITY) == 0.0f);
}

TEST_CASE("log_f32 is within three units in the last place of the larger of its size and 1",
          "[kernels]") {
  for (float x = 1e-10f; x < 1e6f; x *= 1.00037f) {
    const double expected = std::log(double{x});
    const double unit = std::ldexp(std::max(1.0, std::fabs(expected)), -23);
    CAPTURE(x);
    REQUIRE(std::fabs(log_f32(x) - expected) <= 3 * unit);
  }
  CHECK(log_f32(1.0f) == 0.0f);
}

PRECIS_INLINE void larger_and_smaller(const float* a, const float* b, float* out) {
  store_lanes(out, larger(load_lanes(a), load_lanes(b)));
  store_lanes(out + kLanes, smaller(load_lanes(a), load_lanes(b)));
}

TEST_CASE("the larger and the smaller of lanes are as of numbers, whatever compares them",
          "[kernels][common]") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {-kInfinity, -3e38f, -126.0f, -1e-40f, 0.0f,
                                     1e-40f,     0.5f,   126.0f,  3.3e38f, kInfinity};
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
    if (isa > detect_isa()) continue;
    const auto choose = for_isa<&larger_and_smaller>(isa);
    for (const float x : values) {
      for (const float y : values) {
        const std::vector<float> a(kLanes, x), b(kLanes, y);
        std::vector<float> out(2 * kLanes);
        choose(a.data(), b.data(), out.data());
        CAPTURE(isa_name(isa), x, y);
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
          CHECK(out[lane] == std::max(x, y));
          CHECK(out[kLanes + lane] == std::min(x, y));
        }
      }
      // A negative NaN is what a dot product can give if it overflows an f32.
      const std::vector<float> none(kLanes, std::copysign(NAN, -1.0f)), b(kLanes, x);
      std::vector<float> out(2 * kLanes);
      choose(none.data(), b.data(), out.data());
      CHECK(out.front() == x);
      choose(b.data(), none.data(), out.data());
      CHECK(out[kLanes] == x);
    }
  }
}

template <std::size_t kBytes>
PRECIS_INLINE void products_in(const float* rows, const float* tile, std::size_t dim,
                               float (*products)[kTileTokens]) {
  tile_products_in<kBytes>(rows, tile, dim, products);
}

TEST_CASE("products of a tile are the same in the registers of every machine",
          "[kernels][common]") {
  constexpr std::size_t kDim = 20;
  std::vector<float> rows(kTileRows * kDim), tile(kDim * kTileTokens);
  // The values are small integers, whose sums are exact in every order.
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i % 7) - 3.0f;
  for (std::size_t i = 0; i < tile.size(); ++i) tile[i] = static_cast<float>(i % 11) - 5.0f;
  const auto check = [&](auto multiply) {
    float products[kTileRows][kTileTokens];
    multiply(rows.data(), tile.data(), kDim, products);
    for (std::size_t r = 0; r < kTileRows; ++r) {
      for (std::size_t t = 0; t < kTileTokens; ++t) {
        float expected = 0;
        for (std::size_t c = 0; c < kDim; ++c) {
          expected += rows[r * kDim + c] * tile[c * kTileTokens + t];
        }
        CAPTURE(r, t);
        REQUIRE(products[r][t] == expected);
      }
    }
  };
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
    if (isa > detect_isa()) continue;
    CAPTURE(isa_name(isa));
    check(for_isa<&products_in<16>>(isa));
    check(for_isa<&products_in<32>>(isa));
    check(for_isa<&products_in<64>>(isa));
  }
}

TEST_CASE("score_rank orders every pair as D1 does", "[kernels][select]") {
  const std::vector<float> scores = {NAN,   -NAN, -INFINITY, -3e38f, -1.0f, -1e-40f,
                                     -0.0f, 0.0f, 1e-40f,    1.0f,   3e38f, INFINITY};
  for (const float a : scores) {
    for (const float b : scores) {
      CAPTURE(a, b);
      const int expected = compare_scores(a, b);
      const int got = int{score_rank(a) < score_rank(b)} - int{score_rank(a) > score_rank(b)};
      CHECK(got == expected);
    }
  }
}

TEST_CASE("the pool runs every item exactly once, for several callers at a time",
          "[kernels][common]") {
  const unsigned threads = GENERATE(1u, 2u, 5u);
  const std::size_t count =
      GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{1000});
  ThreadPool pool(threads);
  std::vector<std::vector<std::atomic<int>>> ran;
  for (int c = 0; c < 4; ++c) ran.emplace_back(count);
  std::vector<std::thread> callers;
  for (auto& mine : ran) {
    callers.emplace_back([&pool, &mine, count] {
      for (int round = 0; round < 20; ++round) {
        pool.parallel_for(count, [&](std::size_t i) { mine[i].fetch_add(1); });
      }
    });
  }
  for (auto& caller : callers) caller.join();
  for (const auto& mine : ran) {
    for (const auto& times : mine) CHECK(times == 20);
  }
}

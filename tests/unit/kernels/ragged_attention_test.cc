// Attention over heads with different numbers of rows, compared with sums in f64.
#include <catch2/catch.hpp>

#include "tests/unit/kernels/ragged_problem.h"

namespace precis::kernels::test {

TEST_CASE("attention over ragged heads is the softmax of their rows", "[unit][kernels]") {
  std::mt19937_64 random(7);
  const Dtype dtype = GENERATE(Dtype::kBf16, Dtype::kF16, Dtype::kF32, Dtype::kF8E4M3);
  const std::uint32_t group = GENERATE(1u, 3u, 4u, 7u), dim = GENERATE(8u, 64u, 80u, 128u, 256u);
  CAPTURE(dtype_name(dtype), group, dim);
  const RaggedProblem p = random_problem(random, dtype, group, dim);
  const RaggedAttention two(2), three(3);
  const auto got = p.attend(two);
  REQUIRE(got.ok());
  const auto expected = p.reference();
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    worst = std::max(worst, std::abs((*got)[i] - expected[i]));
  }
  CHECK(worst < 2e-5);
  CHECK(*p.attend(three) == *got);  // whatever the number of threads
}

TEST_CASE("a head without rows gets zeros, and large logits no infinities", "[unit][kernels]") {
  std::mt19937_64 random(8);
  RaggedProblem p = random_problem(random, Dtype::kF32, 2, 64);
  for (float& q : p.queries) q *= 1e4f;
  std::erase_if(p.parts, [](const OwnedRows& part) { return part.head == 0; });
  const RaggedAttention attention(1);
  const auto got = p.attend(attention);
  REQUIRE(got.ok());
  const auto expected = p.reference();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK((*got)[i] == Approx(expected[i]).margin(1e-3));
    if (i < 2 * 64) CHECK((*got)[i] == 0);
  }
}

TEST_CASE("shapes of an attention that do not fit are refused", "[unit][kernels]") {
  const RaggedAttention attention(1);
  std::vector<float> queries(64), out(64);
  const RaggedRows rows{2, 0, nullptr, nullptr};
  const auto status = [&](RaggedQuery query) { return attention.attend(query, out).code(); };
  CHECK(status({1, 1, 64, Dtype::kF32, queries, 1, {}}) == StatusCode::kOk);
  CHECK(status({1, 1, 0, Dtype::kF32, {}, 1, {}}) == StatusCode::kInvalidArgument);
  CHECK(status({1, 2, 64, Dtype::kF32, queries, 1, {}}) == StatusCode::kInvalidArgument);
  CHECK(status({1, 1, 64, Dtype::kF32, queries, 1, {&rows, 1}}) == StatusCode::kInvalidArgument);
}

}  // namespace precis::kernels::test

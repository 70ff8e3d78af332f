#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "cachesvc/pipeline/token_ranges.h"

namespace precis {
namespace {

// The number of runs of consecutive present tokens.
std::size_t runs(const std::vector<bool>& there) {
  std::size_t count = 0;
  for (std::size_t t = 0; t < there.size(); ++t) {
    if (there[t] && (t == 0 || !there[t - 1])) ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("ranges of tokens that come and go in any order are those of a list of all tokens",
          "[unit][pipeline]") {
  constexpr std::uint32_t kTokens = 40;
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    TokenRanges ranges;
    std::vector<bool> there(kTokens, false);
    std::vector<std::pair<std::uint32_t, std::uint32_t>> added;
    for (int step = 0; step < 60; ++step) {
      if (!added.empty() && random() % 4 == 0) {
        const auto at = added.begin() + static_cast<std::ptrdiff_t>(random() % added.size());
        ranges.remove(at->first, at->second);
        for (std::uint32_t t = at->first; t < at->second; ++t) there[t] = false;
        added.erase(at);
      } else {
        const std::uint32_t begin = static_cast<std::uint32_t>(random()) % kTokens;
        const std::uint32_t end =
            std::min(kTokens, begin + 1 + static_cast<std::uint32_t>(random()) % 5);
        bool some = false;
        for (std::uint32_t t = begin; t < end; ++t) some |= there[t];
        REQUIRE(ranges.overlaps(begin, end) == some);
        if (some) continue;
        for (std::uint32_t t = begin; t < end; ++t) there[t] = true;
        REQUIRE(ranges.count_with(begin, end) == runs(there));
        ranges.add(begin, end);
        added.emplace_back(begin, end);
      }
      const auto tokens = static_cast<std::uint64_t>(std::ranges::count(there, true));
      REQUIRE(ranges.tokens() == tokens);
      REQUIRE(ranges.empty() == (tokens == 0));
    }
  }
}

}  // namespace precis

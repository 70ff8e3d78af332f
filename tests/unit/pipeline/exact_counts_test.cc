// Checks the rules for the counts of the entries that a reader gets of a layer.
#include "cachesvc/pipeline/exact_counts.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <numeric>
#include <random>

namespace precis {
namespace {

constexpr std::uint32_t kHeads = 3;

// One layer of a chain. Each head has its own positions and seats; K and V are not used.
struct Chain {
  struct Head {
    std::vector<std::uint32_t> positions, seats;
  };
  std::vector<std::vector<Head>> links;  // [num_links][kHeads]
  LayerRecords layer;

  // `begins`: the first tokens of the links, and the end of the last one.
  Chain(std::mt19937& random, const std::vector<std::uint32_t>& begins) {
    for (std::size_t link = 0; link + 1 < begins.size(); ++link) {
      std::vector<std::uint32_t> tokens(begins[link + 1] - begins[link]);
      std::iota(tokens.begin(), tokens.end(), begins[link]);
      auto& heads = links.emplace_back(kHeads);
      std::uint32_t seat = 0;
      for (Head& head : heads) {
        std::shuffle(tokens.begin(), tokens.end(), random);
        const auto kept = static_cast<std::ptrdiff_t>(random() % (tokens.size() + 1));
        head.positions.assign(tokens.begin(), tokens.begin() + kept);
      }
      for (std::size_t left = 1; left > 0;) {  // distributes the seats at random over the heads
        left = 0;
        for (Head& head : heads) left += head.positions.size() - head.seats.size();
        Head& head = heads[random() % kHeads];
        if (head.seats.size() < head.positions.size()) head.seats.push_back(++seat);
      }
    }
    layer.num_heads = kHeads;
    for (const auto& heads : links) {
      for (const Head& head : heads) {
        LayerRecords::Record& record = layer.records.emplace_back();
        record.view.count = static_cast<std::uint32_t>(head.positions.size());
        record.view.positions = head.positions;
        record.view.seats = head.seats;
      }
    }
  }
  Chain(const Chain&) = delete;

  // Returns how many of the first `count` entries the reader gets.
  std::uint32_t readers(std::size_t link, std::uint32_t head, std::uint32_t count,
                        std::uint32_t end) const {
    const auto& positions = links[link][head].positions;
    return static_cast<std::uint32_t>(
        std::count_if(positions.begin(), positions.begin() + count,
                      [&](std::uint32_t position) { return position < end; }));
  }
};

// Checks the rules for one head.
void check_head(const Chain& chain, const ReaderCut& cut, const LayerCounts& counted,
                std::uint32_t head) {
  const std::uint32_t end = cut.in_part ? cut.matched_end : UINT32_MAX;
  const std::size_t links = chain.links.size();
  std::uint64_t at_cut = 0, stored = 0, served = 0;
  std::vector<std::uint32_t> of_cut, of_stored, of_served;
  for (std::size_t link = 0; link < links; ++link) {
    const auto& record = chain.layer.at(link, head).view;
    const std::uint32_t count = counted.counts[link * kHeads + head];
    REQUIRE(count <= record.count);
    of_cut.push_back(chain.readers(link, head, kernels::count_at(record, cut.entries[link]), end));
    of_stored.push_back(chain.readers(link, head, record.count, end));
    of_served.push_back(chain.readers(link, head, count, end));
    at_cut += of_cut.back();
    stored += of_stored.back();
    served += of_served.back();
    // The last entry that is served is one that the reader gets.
    if (count > 0) CHECK(record.positions[count - 1] < end);
  }
  CHECK(counted.plan[head] == served);
  if (cut.align == 1) {
    CHECK(of_served == of_cut);
    return;
  }
  CHECK(served % cut.align == 0);
  CHECK(served <= stored);
  if (stored < cut.align) {
    CHECK(served == 0);
  } else {
    CHECK(served >= cut.align);
    const auto distance = [&](std::uint64_t entries) {
      return entries > at_cut ? entries - at_cut : at_cut - entries;
    };
    // No other number of whole pages of stored entries is nearer to the cut.
    for (std::uint64_t other = cut.align; other <= stored; other += cut.align) {
      CHECK(distance(served) <= distance(other));
    }
  }
  // A link gives up or adds entries only if no later link has any left to give up or to add.
  for (std::size_t link = 0; link < links; ++link) {
    if (of_served[link] == of_cut[link]) continue;
    for (std::size_t behind = link + 1; behind < links; ++behind) {
      CHECK(of_served[behind] == (of_served[link] < of_cut[link] ? 0 : of_stored[behind]));
    }
  }
}

}  // namespace

TEST_CASE("a reader's counts are its cut, in whole pages, without what did not match",
          "[unit][pipeline]") {
  const std::uint32_t seed = GENERATE(range(1u, 31u));
  const std::uint32_t align = GENERATE(1u, 2u, 3u, 16u, 64u);
  CAPTURE(seed, align);
  std::mt19937 random(seed);
  std::vector<std::uint32_t> begins{0};
  for (std::uint32_t links = 1 + seed % 3; links > 0; --links) {
    begins.push_back(begins.back() + 1 + static_cast<std::uint32_t>(random() % 150));
  }
  const Chain chain(random, begins);
  std::vector<std::uint64_t> entries;
  for (std::size_t link = 0; link + 1 < begins.size(); ++link) entries.push_back(random() % 400);
  const std::uint32_t last = begins[begins.size() - 2];
  ReaderCut cut{entries, align, random() % 2 == 0,
                last + 1 + static_cast<std::uint32_t>(random()) % (begins.back() - last)};
  const LayerCounts counted = count_layer(chain.layer, cut);
  REQUIRE(counted.counts.size() == entries.size() * kHeads);
  REQUIRE(counted.plan.size() == kHeads);
  for (std::uint32_t h = 0; h < kHeads; ++h) {
    CAPTURE(h);
    check_head(chain, cut, counted, h);
  }
}

TEST_CASE("of two numbers of pages that are as near the larger is served", "[unit][pipeline]") {
  std::mt19937 random(1);
  Chain chain(random, {0, 1});
  std::vector<std::uint32_t> numbers(20);
  std::iota(numbers.begin(), numbers.end(), 1u);
  chain.layer.num_heads = 1;
  chain.layer.records.resize(1);
  chain.layer.records[0].view.count = 20;
  chain.layer.records[0].view.positions = chain.layer.records[0].view.seats = numbers;
  const auto pages = [&](std::uint64_t entries, std::uint32_t align) {
    return count_layer(chain.layer, {{&entries, 1}, align}).plan[0];
  };
  CHECK(pages(6, 4) == 8);
  CHECK(pages(5, 4) == 4);
  CHECK(pages(1, 4) == 4);
  CHECK(pages(20, 8) == 16);
  CHECK(pages(20, 32) == 0);
  CHECK(pages(0, 20) == 20);
}

}  // namespace precis

#include "precis/profile_solver.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "precis/profile.h"

namespace precis::kernels {
namespace {

// A segment of a head's hull: `count` adjacent entries that lose the same worth each.
struct Segment {
  double rate;
  std::uint32_t head;
  std::uint32_t count;
};

std::string entry_name(std::size_t head, std::size_t entry) {
  return "worth: head " + std::to_string(head) + ", entry " + std::to_string(entry);
}

Status check_worth(HeadsWorth worth) {
  if (worth.empty()) return Status::invalid("worth: there are no heads");
  for (std::size_t h = 0; h < worth.size(); ++h) {
    for (std::size_t i = 0; i < worth[h].size(); ++i) {
      const float x = worth[h][i];
      if (std::isfinite(x) && x >= 0) continue;
      return Status::invalid(entry_name(h, i) + " is " + std::to_string(x) +
                             ", must be finite and not negative");
    }
  }
  return {};
}

Status check_lengths(HeadsWorth worth, std::uint32_t num_tokens, std::uint32_t protected_count) {
  if (num_tokens == 0) return Status::invalid("num_tokens is 0, must be at least 1");
  if (protected_count > num_tokens) {
    return Status::invalid("protected is " + std::to_string(protected_count) +
                           ", must be at most num_tokens, " + std::to_string(num_tokens));
  }
  const std::uint32_t ranked = num_tokens - protected_count;
  for (std::size_t h = 0; h < worth.size(); ++h) {
    if (worth[h].size() == ranked) continue;
    return Status::invalid("worth: head " + std::to_string(h) + " has " +
                           std::to_string(worth[h].size()) + " entries, must have " +
                           std::to_string(ranked) + ", num_tokens - protected");
  }
  return {};
}

// Pool adjacent violators algorithm: splits `gains`, in order, into segments whose means do not
// increase. Keeps sums instead of means, so that equal worths give equal rates.
void pool(std::span<const float> gains, std::uint32_t head, std::vector<Segment>& segments) {
  struct Block {
    double sum;
    std::uint32_t count;
    double mean() const { return sum / count; }
  };
  std::vector<Block> blocks;
  for (const float gain : gains) {
    Block block{gain, 1};
    while (!blocks.empty() && blocks.back().mean() < block.mean()) {
      block.sum += blocks.back().sum;
      block.count += blocks.back().count;
      blocks.pop_back();
    }
    blocks.push_back(block);
  }
  for (const Block& block : blocks) segments.push_back({block.mean(), head, block.count});
}

// The hulls of all heads, each from its end, without the first `spared` entries, which always stay.
std::vector<Segment> hulls(HeadsWorth worth, std::uint32_t spared) {
  std::vector<Segment> all, of_head;
  for (std::uint32_t head = 0; head < worth.size(); ++head) {
    of_head.clear();
    pool(worth[head], head, of_head);
    auto left = static_cast<std::uint32_t>(worth[head].size()) - spared;
    for (auto segment = of_head.rbegin(); left > 0; ++segment) {
      segment->count = std::min(segment->count, left);
      left -= segment->count;
      all.push_back(*segment);
    }
  }
  return all;
}

}  // namespace

Result<std::vector<float>> prune_curves(HeadsWorth worth, std::uint32_t num_tokens,
                                        std::uint32_t protected_count) {
  PRECIS_TRY(check_worth(worth));
  PRECIS_TRY(check_lengths(worth, num_tokens, protected_count));
  const auto least = static_cast<std::uint32_t>((std::uint64_t{num_tokens} + 50) / 100);
  const std::uint32_t spared = std::max(least, protected_count) - protected_count;
  std::vector<Segment> order = hulls(worth, spared);
  // Stable, so that segments of equal rate within a head stay in their order, the end first.
  std::ranges::stable_sort(order, [](const Segment& a, const Segment& b) {
    return a.rate != b.rate ? a.rate < b.rate : a.head < b.head;
  });

  const std::uint64_t all = std::uint64_t{worth.size()} * num_tokens;
  std::vector<std::uint64_t> pruned(worth.size());
  std::vector<float> table;
  table.reserve(Profile::kCurveRows * worth.size());
  std::uint64_t done = 0;
  std::uint32_t used = 0;  // entries used of the next segment
  auto next = order.begin();
  for (std::uint64_t percent = 1; percent <= Profile::kCurveRows; ++percent) {
    const std::uint64_t wanted = (percent * all + 50) / 100;
    while (done < wanted && next != order.end()) {
      const auto step =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(next->count - used, wanted - done));
      pruned[next->head] += step;
      done += step;
      used += step;
      if (used == next->count) {
        ++next;
        used = 0;
      }
    }
    for (const std::uint64_t count : pruned) {
      table.push_back(static_cast<float>(static_cast<double>(count) / num_tokens));
    }
  }
  return table;
}

Result<std::vector<float>> head_weights(HeadsWorth worth, double share) {
  PRECIS_TRY(check_worth(worth));
  if (!(share > 0 && share <= 1)) {
    return Status::invalid("share is " + std::to_string(share) + ", must be in (0, 1]");
  }
  std::vector<float> all;
  for (std::size_t h = 0; h < worth.size(); ++h) {
    if (worth[h].empty()) {
      return Status::invalid("worth: head " + std::to_string(h) + " has no entries");
    }
    all.insert(all.end(), worth[h].begin(), worth[h].end());
  }
  const auto asked = std::llround(share * static_cast<double>(all.size()));
  const std::size_t best = static_cast<std::size_t>(std::max(asked, 1LL));
  std::ranges::nth_element(all, all.begin() + static_cast<std::ptrdiff_t>(best - 1),
                           std::greater<>());
  const float last = all[best - 1];
  // All entries above the last one count; of its equals, those of the first heads count.
  auto equals = best - static_cast<std::size_t>(std::count_if(
                           all.begin(), all.end(), [last](float x) { return x > last; }));
  std::vector<float> weights;
  for (const auto head : worth) {
    const auto above = static_cast<std::size_t>(
        std::count_if(head.begin(), head.end(), [last](float x) { return x > last; }));
    const auto level = static_cast<std::size_t>(std::count(head.begin(), head.end(), last));
    const std::size_t taken = std::min(level, equals);
    equals -= taken;
    weights.push_back(
        static_cast<float>(static_cast<double>(above + taken) / static_cast<double>(head.size())));
  }
  return weights;
}

}  // namespace precis::kernels

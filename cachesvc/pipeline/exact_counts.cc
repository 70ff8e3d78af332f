#include "cachesvc/pipeline/exact_counts.h"

#include <algorithm>

#include "precis/record.h"

namespace precis {
namespace {

using Positions = std::span<const std::uint32_t>;

std::uint32_t entries_before(Positions positions, std::uint32_t end) {
  const auto count = std::ranges::count_if(positions, [&](std::uint32_t at) { return at < end; });
  return static_cast<std::uint32_t>(count);
}

// Returns how many first entries include `wanted` entries before `end`. At least that many exist.
std::uint32_t length_with(Positions positions, std::uint32_t end, std::uint32_t wanted) {
  std::uint32_t length = 0;
  for (; wanted > 0 && length < positions.size(); ++length) {
    if (positions[length] < end) --wanted;
  }
  return length;
}

std::uint64_t whole_pages(std::uint64_t entries, std::uint64_t stored, std::uint32_t align) {
  if (align == 1) return entries;
  const std::uint64_t most = stored / align * align;
  if (most == 0) return 0;
  const std::uint64_t nearest = (entries + align / 2) / align * align;
  return std::clamp<std::uint64_t>(nearest, align, most);
}

// The entries of one link that a reader can get, and the number that it gets.
struct Part {
  std::uint32_t stored = 0, taken = 0;
};

// Takes entries from the links, or adds entries to them, until they have `target` together. Begins
// with the last link.
void spread(std::vector<Part>& parts, std::uint64_t total, std::uint64_t target) {
  for (auto part = parts.rbegin(); part != parts.rend() && total != target; ++part) {
    if (total > target) {
      const auto less =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(part->taken, total - target));
      part->taken -= less;
      total -= less;
    } else {
      const auto more = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(part->stored - part->taken, target - total));
      part->taken += more;
      total += more;
    }
  }
}

}  // namespace

LayerCounts count_layer(const LayerRecords& layer, const ReaderCut& cut) {
  LayerCounts result;
  result.counts.resize(layer.records.size());
  const std::size_t last = layer.num_links() - 1;
  std::vector<Part> parts(layer.num_links());
  for (std::uint32_t h = 0; h < layer.num_heads; ++h) {
    std::uint64_t stored = 0, total = 0;
    for (std::size_t link = cut.first_link; link <= last; ++link) {
      const kernels::RecordView& record = layer.at(link, h).view;
      const std::uint32_t count = kernels::count_at(record, cut.entries[link]);
      if (link == last && cut.in_part) {
        const std::uint32_t within = entries_before(record.positions.first(count), cut.matched_end);
        const std::uint32_t past =
            cut.align == 1 ? 0 : entries_before(record.positions.subspan(count), cut.matched_end);
        parts[link] = {within + past, within};
      } else {
        parts[link] = {record.count, count};
      }
      stored += parts[link].stored;
      total += parts[link].taken;
    }
    const std::uint64_t target = whole_pages(total, stored, cut.align);
    spread(parts, total, target);
    for (std::size_t link = 0; link <= last; ++link) {
      const Positions positions = layer.at(link, h).view.positions;
      result.counts[link * layer.num_heads + h] =
          link == last && cut.in_part ? length_with(positions, cut.matched_end, parts[link].taken)
                                      : parts[link].taken;
    }
    result.plan.push_back(static_cast<std::uint32_t>(target));
  }
  return result;
}

}  // namespace precis

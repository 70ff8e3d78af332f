// Layout of one layer of a Get in the reader's memory. A prefix may consist of several segments
// (links). The server places their cuts side by side, so a head's positions, seats, scores, K and V
// are one array each over all links. If any link has coded rows, the reader decodes or copies the
// rows of all links to other memory.
//
// Heads are in ascending order. Each head has six sections: checksums of whole blocks, positions,
// seats, scores, K rows, V rows. Each section begins on a 64-byte boundary and holds its links in
// order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "precis/record_format.h"
#include "precis/types.h"

namespace precis {

inline constexpr std::size_t kServedSections = 6;

// Bytes of one link's part of each section, for a cut of `count` entries.
constexpr std::array<std::size_t, kServedSections> served_part_bytes(std::uint32_t count,
                                                                     const EntryForm& form) {
  const std::size_t n = count;
  return {n / kChecksumBlockEntries * kChecksumBytes,
          n * 4,
          n * 4,
          n * 4,
          n * form.keys().bytes(),
          n * form.values().bytes()};
}

struct ServedLayout {
  struct Head {
    std::array<std::size_t, kServedSections> section;  // offsets from the first byte of the layer
    std::uint32_t count = 0;                           // over all links
  };
  std::vector<Head> heads;
  std::size_t size_bytes = 0;

  // counts: [num_links, num_heads] of the served heads. forms: [num_links].
  static ServedLayout of(std::span<const std::uint32_t> counts, std::uint32_t num_heads,
                         std::span<const EntryForm> forms) {
    ServedLayout layout;
    layout.heads.resize(num_heads);
    for (std::uint32_t h = 0; h < num_heads; ++h) {
      std::array<std::size_t, kServedSections> bytes{};
      for (std::size_t link = 0; link < forms.size(); ++link) {
        const std::uint32_t count = counts[link * num_heads + h];
        const auto part = served_part_bytes(count, forms[link]);
        for (std::size_t s = 0; s < kServedSections; ++s) bytes[s] += part[s];
        layout.heads[h].count += count;
      }
      for (std::size_t s = 0; s < kServedSections; ++s) {
        layout.heads[h].section[s] = layout.size_bytes;
        layout.size_bytes += align_section(bytes[s]);
      }
    }
    return layout;
  }
};

// Enough bytes for entries[link] entries in any distribution over `num_heads` heads of all layers.
constexpr std::size_t served_capacity_bytes(std::span<const std::uint64_t> entries,
                                            std::span<const EntryForm> forms,
                                            std::uint32_t num_layers, std::uint32_t num_heads) {
  std::size_t bytes = std::size_t{num_layers} * num_heads * kServedSections * kSectionAlign;
  for (std::size_t link = 0; link < forms.size(); ++link) {
    bytes += entries[link] * record_entry_bytes(forms[link]) +
             entries[link] / kChecksumBlockEntries * kChecksumBytes;
  }
  return bytes;
}

// The most entries of a cut of `entries` entries that `num_heads` heads of a segment can hold.
constexpr std::uint64_t entries_of_heads(std::uint64_t entries, std::uint32_t num_tokens,
                                         std::uint32_t num_layers, std::uint32_t num_heads) {
  const std::uint64_t rows = std::uint64_t{num_tokens} * num_layers * num_heads;
  return entries < rows ? entries : rows;
}

// Exact bytes of `num_heads` heads of all layers. Each link has counts [num_layers, num_heads], and
// forms[link].
template <typename Links>
std::size_t served_counts_bytes(const Links& links, std::uint32_t num_layers,
                                std::uint32_t num_heads, std::span<const EntryForm> forms) {
  std::size_t bytes = 0;
  std::vector<std::uint32_t> of_layer;
  for (std::uint32_t layer = 0; layer < num_layers; ++layer) {
    of_layer.clear();
    for (const auto& link : links) {
      const auto begin =
          link.counts.begin() + static_cast<std::ptrdiff_t>(std::size_t{layer} * num_heads);
      of_layer.insert(of_layer.end(), begin, begin + num_heads);
    }
    bytes += ServedLayout::of(of_layer, num_heads, forms).size_bytes;
  }
  return bytes;
}

}  // namespace precis

#include "tests/fuzz/mended_record.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "precis/record.h"
#include "precis/record_format.h"

namespace precis::fuzz {

std::size_t mend_record(MutableBytes bytes) {
  constexpr std::size_t kHashed = offsetof(RecordHeader, header_checksum);
  if (bytes.size() < sizeof(RecordHeader)) return 0;
  const std::uint64_t sum = XXH3_64bits(bytes.data(), kHashed);
  std::memcpy(bytes.data() + kHashed, &sum, sizeof sum);
  std::size_t size = 0;
  const auto record = kernels::open_record(bytes, &size);
  if (!record.ok()) return 0;
  kernels::seal_record(bytes.first(size), record->layer, record->head, record->count,
                       record->entry_form(), record->segment);
  return size;
}

void mend_served(const GetPlan& plan, msg::LayerServed& served, const ServedLayout& layout,
                 MutableBytes layer) {
  for (std::uint32_t h = 0; h < plan.model.num_kv_heads; ++h) {
    auto at = layout.heads[h].section;
    for (std::size_t link = 0; link < plan.links.size(); ++link) {
      const std::size_t cut = link * plan.model.num_kv_heads + h;
      const std::uint32_t count = served.counts[cut];
      const EntryForm& form = plan.forms[link];
      const std::array<std::size_t, kServedSections> each = {
          0, 4, 4, 4, form.keys().bytes(), form.values().bytes()};
      for (std::uint32_t first = 0; first < count; first += kChecksumBlockEntries) {
        const std::size_t entries = std::min(kChecksumBlockEntries, count - first);
        XXH3_state_t state;
        XXH3_128bits_reset(&state);
        for (std::size_t s = 1; s < kServedSections; ++s) {
          XXH3_128bits_update(&state, layer.data() + at[s] + first * each[s], entries * each[s]);
        }
        XXH128_canonical_t hash;
        XXH128_canonicalFromHash(&hash, XXH3_128bits_digest(&state));
        void* const stored =
            entries == kChecksumBlockEntries
                ? static_cast<void*>(layer.data() + at[0] +
                                     first / kChecksumBlockEntries * kChecksumBytes)
                : static_cast<void*>(served.tail_checksums[cut].data());
        std::memcpy(stored, &hash, sizeof hash);
      }
      const auto part = served_part_bytes(count, form);
      for (std::size_t s = 0; s < kServedSections; ++s) at[s] += part[s];
    }
  }
}

}  // namespace precis::fuzz

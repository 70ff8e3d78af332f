#include "kernels/encode/block_hash.h"

#include <algorithm>
#include <cstring>

#include "kernels/common/isa.h"
#include "kernels/encode/stripe_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace precis::kernels {
namespace {

static_assert(sizeof(XXH128_canonical_t) == kChecksumBytes);

// Hashes entries [first, last) of every section.
Checksum hash_any_entries(const RecordView& record, std::uint32_t first, std::uint32_t last) {
  const std::size_t key_bytes = record.entry_form().keys().bytes();
  const std::size_t value_bytes = record.entry_form().values().bytes();
  const std::size_t count = last - first;
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  XXH3_128bits_update(&state, record.positions.data() + first, count * 4);
  XXH3_128bits_update(&state, record.seats.data() + first, count * 4);
  XXH3_128bits_update(&state, record.scores.data() + first, count * 4);
  XXH3_128bits_update(&state, record.keys.data() + first * key_bytes, count * key_bytes);
  XXH3_128bits_update(&state, record.values.data() + first * value_bytes, count * value_bytes);
  XXH128_canonical_t canonical;  // big-endian, the byte order xxHash prints
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
  Checksum checksum;
  std::memcpy(checksum.data(), canonical.digest, kChecksumBytes);
  return checksum;
}

template <typename Lines>
PRECIS_INLINE void add_lines(xxh3::StripeHash<Lines>& hash, const void* section,
                             std::size_t lines) {
  constexpr std::size_t kAhead = 4096;  // into the second-level cache, across page ends
  const auto* bytes = static_cast<const std::byte*>(section);
  for (std::size_t i = 0; i < lines; ++i, bytes += kLineBytes) {
    __builtin_prefetch(bytes + kAhead, 0, 2);
    hash.add(load_line<Lines>(bytes));
  }
}

// Hashes entries [first, last) whose sections are whole lines, as those of a whole block always
// are. Runs at the speed of memory; xxHash's own code, compiled for the baseline instruction set,
// would take as long as reading the bytes from memory.
template <typename Lines>
PRECIS_INLINE xxh3::Hash128 lines_loop(const RecordView& record, std::uint32_t first,
                                       std::uint32_t last) {
  const std::size_t key_bytes = record.entry_form().keys().bytes();
  const std::size_t value_bytes = record.entry_form().values().bytes();
  const std::size_t word_lines = (last - first) * std::size_t{4} / kLineBytes;
  const std::size_t key_lines = (last - first) * key_bytes / kLineBytes;
  const std::size_t value_lines = (last - first) * value_bytes / kLineBytes;
  xxh3::StripeHash<Lines> hash(3 * word_lines + key_lines + value_lines);
  add_lines(hash, record.positions.data() + first, word_lines);
  add_lines(hash, record.seats.data() + first, word_lines);
  add_lines(hash, record.scores.data() + first, word_lines);
  add_lines(hash, record.keys.data() + first * key_bytes, key_lines);
  add_lines(hash, record.values.data() + first * value_bytes, value_lines);
  return hash.finished();
}

using LinesLoop = xxh3::Hash128 (*)(const RecordView&, std::uint32_t, std::uint32_t);
LinesLoop lines_loop_here() {
  return with_lines(detect_isa(), []<typename Lines>(Lines) -> LinesLoop {
    return compiled_for<Lines::kIsa, &lines_loop<Lines>>();
  });
}

}  // namespace

Checksum checksum_of(const xxh3::Hash128& hash) {
  const std::uint64_t words[] = {xxh3::swapped(hash.high), xxh3::swapped(hash.low)};
  static_assert(sizeof words == kChecksumBytes);
  Checksum checksum;
  std::memcpy(checksum.data(), words, kChecksumBytes);
  return checksum;
}

Checksum hash_entries(const RecordView& record, std::uint32_t first, std::uint32_t last) {
  static const LinesLoop loop = lines_loop_here();
  const std::size_t words = (last - first) * std::size_t{4};
  const std::size_t keys = (last - first) * record.entry_form().keys().bytes();
  const std::size_t values = (last - first) * record.entry_form().values().bytes();
  const bool are_lines =
      words % kLineBytes == 0 && keys % kLineBytes == 0 && values % kLineBytes == 0;
  if (are_lines && 3 * words + keys + values > xxh3::kShortBytesMax) {
    return checksum_of(loop(record, first, last));
  }
  return hash_any_entries(record, first, last);
}

Checksum hash_block(const RecordView& record, std::uint32_t block) {
  const std::uint32_t first = block * kChecksumBlockEntries;
  return hash_entries(record, first, std::min(record.count, first + kChecksumBlockEntries));
}

}  // namespace precis::kernels

#include "tests/unit/pipeline/made_records.h"

#include <cstring>

#include "precis/record.h"

namespace precis::testing {

std::vector<std::byte> make_records(const LayerPlace& place, const Seats& seats,
                                    std::mt19937& random) {
  std::vector<std::byte> bytes;
  for (std::uint32_t h = 0; h < seats.size(); ++h) {
    const auto count = static_cast<std::uint32_t>(seats[h].size());
    const RecordLayout at = RecordLayout::of(count, {place.head_dim, place.dtype});
    std::vector<std::byte> record(at.size);  // padding stays zero
    auto fill = [&](std::size_t offset, std::size_t size) {
      for (std::size_t i = 0; i < size; ++i) record[offset + i] = std::byte(random() & 0xff);
    };
    for (const std::size_t offset : {at.positions, at.scores}) fill(offset, std::size_t{count} * 4);
    fill(at.keys, count * at.key_bytes);
    fill(at.values, count * at.value_bytes);
    std::memcpy(record.data() + at.seats, seats[h].data(), std::size_t{count} * 4);
    kernels::seal_record(record, place.layer, h, count, {place.head_dim, place.dtype},
                         place.segment);
    bytes.insert(bytes.end(), record.begin(), record.end());
  }
  return bytes;
}

}  // namespace precis::testing

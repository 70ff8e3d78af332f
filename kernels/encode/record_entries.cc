#include "precis/record_entries.h"

#include <algorithm>
#include <cstring>

#include "kernels/encode/record_writer.h"

namespace precis::kernels {

std::uint32_t entries_before(const RecordView& record, std::uint32_t position) {
  return static_cast<std::uint32_t>(
      std::ranges::count_if(record.positions, [&](std::uint32_t at) { return at < position; }));
}

void write_entries(std::span<const RecordView> records, std::span<const EntryCopy> entries,
                   const SegmentId& segment, MutableBytes out) {
  const RecordView& like = records.front();
  const auto layout =
      RecordLayout::of(static_cast<std::uint32_t>(entries.size()), like.entry_form());
  clear_padding(out, layout);
  const Sections to = sections_of(out, layout);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const EntryCopy& entry = entries[i];
    const RecordView& from = records[entry.record];
    to.positions[i] = from.positions[entry.entry];
    to.seats[i] = entry.seat;
    to.scores[i] = from.scores[entry.entry];
    const std::size_t keys = layout.key_bytes, values = layout.value_bytes;
    std::memcpy(to.keys + i * keys, from.keys.data() + entry.entry * keys, keys);
    std::memcpy(to.values + i * values, from.values.data() + entry.entry * values, values);
  }
  write_header(out, like.layer, like.head, layout.count, like.entry_form(), segment);
}

void renumber_seats(MutableBytes record,
                    const std::function<std::uint32_t(std::uint32_t seat)>& seat_of) {
  const RecordView view = written_record(record);
  for (std::uint32_t& seat : mutable_seats(record, view)) seat = seat_of(seat);
  write_checksums(record, view);
}

}  // namespace precis::kernels

// Operations on the records of an added layer while other layers are still to come: trims them as
// the segment's budget spreads over more layers, and then writes their seats and checksums.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/encode/encode.h"
#include "kernels/encode/record_writer.h"
#include "precis/kernels.h"
#include "precis/record.h"

namespace precis::kernels {
namespace {

constexpr std::uint32_t kSealBlocks = 16;  // of one work item

// The records of a layer, one after the other.
Result<std::vector<RecordView>> open_layer(Bytes layer) {
  std::vector<RecordView> records;
  while (!layer.empty()) {
    std::size_t size = 0;
    PRECIS_ASSIGN(const RecordView record, open_record(layer, &size));
    records.push_back(record);
    layer = layer.subspan(size);
  }
  return records;
}

template <typename T>
Bytes first_bytes(std::span<T> section, std::uint32_t count) {
  return std::as_bytes(section.first(count));
}

// Moves the first `count` entries of `from` to a record at `to`, which must not lie behind `from`.
// Sections move in ascending address order, so no copy overwrites a section still to be moved.
void move_record(const RecordView& from, std::uint32_t count, std::byte* to) {
  const EntryForm form = from.entry_form();
  const auto layout = RecordLayout::of(count, form);
  const auto move = [to](std::size_t offset, Bytes section) {
    if (!section.empty()) std::memmove(to + offset, section.data(), section.size());
  };
  const std::uint32_t layer = from.layer, head = from.head;
  const SegmentId segment = from.segment;
  move(layout.positions, first_bytes(from.positions, count));
  move(layout.seats, first_bytes(from.seats, count));
  move(layout.scores, first_bytes(from.scores, count));
  move(layout.keys, from.keys.first(count * layout.key_bytes));
  move(layout.values, from.values.first(count * layout.value_bytes));
  const MutableBytes record(to, layout.size);
  clear_padding(record, layout);
  write_header(record, layer, head, count, form, segment);
}

}  // namespace

Result<std::size_t> trim_records(MutableBytes layer, std::span<const std::uint32_t> counts) {
  PRECIS_ASSIGN(const std::vector<RecordView> records, open_layer(layer));
  bool fits = records.size() == counts.size();
  for (std::size_t h = 0; fits && h < counts.size(); ++h) fits = counts[h] <= records[h].count;
  if (!fits) return Status::corruption("the records hold fewer entries than they are trimmed to");
  std::size_t offset = 0;
  for (std::size_t h = 0; h < records.size(); ++h) {
    const RecordView& record = records[h];
    move_record(record, counts[h], layer.data() + offset);
    offset += RecordLayout::of(counts[h], record.entry_form()).size;
  }
  return offset;
}

Status place_seats(MutableBytes layer, const std::vector<std::vector<std::uint32_t>>& seats) {
  PRECIS_ASSIGN(const std::vector<RecordView> records, open_layer(layer));
  if (records.size() != seats.size()) {
    return Status::corruption(std::to_string(records.size()) + " records and the seats of " +
                              std::to_string(seats.size()));
  }
  std::size_t offset = 0;
  for (std::size_t h = 0; h < records.size(); ++h) {
    const RecordView& record = records[h];
    if (record.count != seats[h].size()) {
      return Status::corruption("head " + std::to_string(h) + " has " +
                                std::to_string(record.count) + " entries and " +
                                std::to_string(seats[h].size()) + " seats");
    }
    const std::size_t size = RecordLayout::of(record.count, record.entry_form()).size;
    const MutableBytes bytes = layer.subspan(offset, size);
    std::ranges::copy(seats[h], mutable_seats(bytes, record).begin());
    offset += size;
  }
  return {};
}

Status seal_cpu(const CpuContext& context, std::span<const MutableBytes> layers) {
  struct Source {
    MutableBytes bytes;
    RecordView record;
  };
  struct WorkItem {
    std::size_t source;
    std::uint32_t first, last;  // blocks
  };
  std::vector<Source> sources;
  std::vector<WorkItem> items;
  for (MutableBytes layer : layers) {
    PRECIS_ASSIGN(const std::vector<RecordView> records, open_layer(layer));
    for (const RecordView& record : records) {
      const auto layout = RecordLayout::of(record.count, record.entry_form());
      const std::uint32_t blocks = checksum_blocks(record.count);
      for (std::uint32_t first = 0; first < blocks; first += kSealBlocks) {
        items.push_back({sources.size(), first, std::min(blocks, first + kSealBlocks)});
      }
      sources.push_back({layer.first(layout.size), record});
      layer = layer.subspan(layout.size);
    }
  }
  context.pool.parallel_for(items.size(), [&](std::size_t i) {
    const Source& source = sources[items[i].source];
    for (std::uint32_t block = items[i].first; block < items[i].last; ++block) {
      write_checksum(source.bytes, source.record, block);
    }
  });
  return {};
}

}  // namespace precis::kernels

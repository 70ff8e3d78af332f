#include "kernels/encode/encode.h"

#include <algorithm>

#include "kernels/compact/compact.h"
#include "kernels/encode/record_writer.h"
#include "precis/record.h"

namespace precis::kernels {
namespace {

constexpr std::uint32_t kItemEntries = 8 * kChecksumBlockEntries;  // of one work item

// Entries [first, last) of a head.
struct WorkItem {
  std::uint32_t head, first, last;
};

struct HeadOutput {
  RecordLayout layout;
  std::size_t offset;
};

std::vector<HeadOutput> head_outputs(std::span<const std::uint32_t> counts, std::uint32_t head_dim,
                                     Dtype dtype) {
  std::vector<HeadOutput> heads;
  std::size_t offset = 0;
  for (const std::uint32_t count : counts) {
    heads.push_back({RecordLayout::of(count, head_dim, dtype), offset});
    offset += heads.back().layout.size;
  }
  return heads;
}

}  // namespace

std::size_t encoded_bytes(std::span<const std::uint32_t> counts, std::uint32_t head_dim,
                          Dtype dtype) {
  std::size_t bytes = 0;
  for (const std::uint32_t count : counts) bytes += RecordLayout::of(count, head_dim, dtype).size;
  return bytes;
}

std::size_t encoded_bytes_max(std::uint64_t entries, std::uint32_t num_kv_heads,
                              std::uint32_t head_dim, Dtype dtype) {
  // Per head a record's header and padding: an entry less than a boundary in every section, and a
  // block of checksums begun.
  const std::size_t per_head = sizeof(RecordHeader) + 6 * kSectionAlign + kChecksumBytes;
  return num_kv_heads * per_head + entries / kChecksumBlockEntries * kChecksumBytes +
         entries * record_entry_bytes(head_dim, dtype);
}

Status check_room(const LayerInput& input, std::span<const std::uint32_t> counts,
                  MutableBytes out) {
  const std::size_t size = encoded_bytes(counts, input.keys.head_dim, input.keys.dtype);
  if (out.size() == size && reinterpret_cast<std::uintptr_t>(out.data()) % alignof(float) == 0) {
    return {};
  }
  return Status::invalid("layer " + std::to_string(input.layer) + ": the records need " +
                         std::to_string(size) + " B at a multiple of 4 bytes, given " +
                         std::to_string(out.size()) + " B");
}

Status encode_cpu(const CpuContext& context, const LayerInput& input, const LayerScores& scores,
                  const RetentionOrders& orders, std::span<const std::uint32_t> counts,
                  const std::vector<std::vector<std::uint32_t>>& seats, const SegmentId& segment,
                  MutableBytes out) {
  const std::uint32_t num_heads = input.num_kv_heads(), head_dim = input.keys.head_dim;
  const Dtype dtype = input.keys.dtype;
  PRECIS_CHECK(counts.size() == num_heads && orders.order.size() == num_heads);
  PRECIS_CHECK(scores.scores.size() == std::size_t{num_heads} * input.num_tokens());
  PRECIS_TRY(check_room(input, counts, out));
  const std::vector<HeadOutput> heads = head_outputs(counts, head_dim, dtype);
  std::vector<WorkItem> items;
  for (std::uint32_t head = 0; head < num_heads; ++head) {
    const MutableBytes record = out.subspan(heads[head].offset, heads[head].layout.size);
    clear_padding(record, heads[head].layout);
    write_header(record, input.layer, head, counts[head], head_dim, dtype, segment);
    for (std::uint32_t first = 0; first < counts[head]; first += kItemEntries) {
      items.push_back({head, first, std::min(counts[head], first + kItemEntries)});
    }
  }
  context.pool.parallel_for(items.size(), [&](std::size_t i) {
    const auto& [head, first, last] = items[i];
    const RecordLayout& layout = heads[head].layout;
    const MutableBytes record = out.subspan(heads[head].offset, layout.size);
    const RecordView view = written_record(record);
    const bool placed = !seats.empty();
    // A block is hashed while it is still in the cache that it was gathered into.
    for (std::uint32_t at = first; at < last; at += kChecksumBlockEntries) {
      compact_cpu(input.keys, input.values, head, input.begin,
                  std::span(orders.order[head]).first(layout.count),
                  placed ? std::span(seats[head]) : std::span<const std::uint32_t>(),
                  scores.scores.data() + std::size_t{head} * input.num_tokens(), at,
                  std::min(last, at + kChecksumBlockEntries), sections_of(record, layout));
      if (placed) write_checksum(record, view, at / kChecksumBlockEntries);
    }
  });
  return {};
}

}  // namespace precis::kernels

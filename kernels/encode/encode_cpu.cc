#include "kernels/encode/encode.h"

#include <algorithm>
#include <atomic>
#include <type_traits>

#include "kernels/check/check.h"
#include "kernels/check/finite.h"
#include "kernels/common/isa.h"
#include "kernels/compact/compact.h"
#include "kernels/compact/stream_rows.h"
#include "kernels/encode/record_writer.h"
#include "kernels/encode/stripe_hash.h"
#include "precis/record.h"
#include "precis/row_code.h"

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

std::vector<HeadOutput> head_outputs(std::span<const std::uint32_t> counts, const EntryForm& form) {
  std::vector<HeadOutput> heads;
  std::size_t offset = 0;
  for (const std::uint32_t count : counts) {
    heads.push_back({RecordLayout::of(count, form), offset});
    offset += heads.back().layout.size;
  }
  return heads;
}

// Copies one head into its record.
struct HeadTask {
  const LayerInput& input;
  std::uint32_t head;
  std::span<const std::uint32_t> kept;
  MutableBytes record;
  RecordView view;  // of `record`
  Sections out;
  bool sealed;  // seats are known, so checksums are written
};

// Onlookers of copied rows: Unwatched does nothing; Both passes each line to two onlookers.
struct Unwatched {
  template <typename Lines>
  PRECIS_INLINE void add(const Line<Lines>&) const {}
  PRECIS_INLINE std::int32_t largest() const { return 0; }
};
template <typename First, typename Second>
struct Both {
  First& first;
  Second& second;
  template <typename Lines>
  PRECIS_INLINE void add(const Line<Lines>& line) {
    first.add(line);
    second.add(line);
  }
};

// Results of encoding a block.
struct BlockSeen {
  xxh3::Hash128 hash;
  std::int32_t largest = 0;  // the largest magnitude bits of its rows; 0 if unwatched
};

// Copies the rows of K, then of V, of the block of entries that begins at `first`. The block must
// be whole, and its rows whole lines.
template <typename Lines, typename Onlooker>
PRECIS_INLINE void stream_block(const HeadTask& task, std::size_t first, Onlooker& onlooker) {
  const std::size_t last = first + kChecksumBlockEntries;
  stream_rows<Lines>(task.input.keys, task.head, task.kept, first, last, task.out.keys, onlooker);
  stream_rows<Lines>(task.input.values, task.head, task.kept, first, last, task.out.values,
                     onlooker);
}

template <typename Lines, typename Watch>
PRECIS_INLINE BlockSeen unhashed_loop(const HeadTask& task, std::size_t first) {
  Watch watch;
  stream_block<Lines>(task, first, watch);
  return {{}, watch.largest()};
}

// Hashes all five sections of the block and writes its rows; the other sections are already
// written. No stage reads a record soon, so rows bypass the caches and are hashed while they are
// copied.
template <typename Lines, typename Watch>
PRECIS_INLINE BlockSeen hashed_loop(const HeadTask& task, std::size_t first) {
  constexpr std::size_t kWordLines = kChecksumBlockEntries * 4 / kLineBytes;
  const std::size_t row_lines = task.input.keys.row_bytes() / kLineBytes;
  xxh3::StripeHash<Lines> hash(3 * kWordLines + 2 * kChecksumBlockEntries * row_lines);
  const void* sections[] = {task.out.positions + first, task.out.seats + first,
                            task.out.scores + first};
  for (const void* section : sections) {
    const auto* bytes = static_cast<const std::byte*>(section);
    for (std::size_t i = 0; i < kWordLines; ++i) hash.add(load_line<Lines>(bytes + i * kLineBytes));
  }
  Watch watch;
  Both<decltype(hash), Watch> both{hash, watch};
  stream_block<Lines>(task, first, both);
  return {hash.finished(), watch.largest()};
}

using BlockLoop = BlockSeen (*)(const HeadTask&, std::size_t);
struct BlockLoops {
  BlockLoop unhashed, hashed;
  bool (*any_not_finite)(Dtype, const std::byte*, std::size_t);
  bool watched;
};

template <typename Lines, typename Watch>
BlockLoops block_loops(Isa isa) {
  return {compiled_for<Lines::kIsa, &unhashed_loop<Lines, Watch>>(),
          compiled_for<Lines::kIsa, &hashed_loop<Lines, Watch>>(), for_isa<&any_not_finite>(isa),
          !std::is_same_v<Watch, Unwatched>};
}
BlockLoops block_loops(Isa isa, Dtype dtype, Rows rows) {
  return with_lines(isa, [&]<typename Lines>(Lines) {
    if (rows == Rows::kChecked) return block_loops<Lines, Unwatched>(isa);
    if (dtype == Dtype::kF32) {
      return block_loops<Lines, LargestMagnitude<Lines, typename Lines::Ints>>(isa);
    }
    if (dtype == Dtype::kF8E4M3) {
      return block_loops<Lines, LargestMagnitude<Lines, typename Lines::Octets>>(isa);
    }
    return block_loops<Lines, LargestMagnitude<Lines, typename Lines::Shorts>>(isa);
  });
}

// Codes the rows of a block of entries.
bool code_block(const BlockLoops& loops, const HeadTask& task, std::uint32_t first,
                std::uint32_t last) {
  const std::size_t count = last - first;
  thread_local std::vector<std::byte> gathered;
  gathered.resize(count * task.input.keys.row_bytes());
  bool finite = true;
  const auto code = [&](const HeadsView& rows, const RowForm& form, std::byte* out) {
    compact_rows(rows, task.head, task.kept.subspan(first, count), 0,
                 static_cast<std::uint32_t>(count), gathered.data());
    if (loops.watched && loops.any_not_finite(form.dtype, gathered.data(), count * form.head_dim)) {
      finite = false;
    }
    std::byte* const coded = out + first * form.bytes();
    encode_rows(form, count, gathered.data(), coded);
    if (!decode_to_finite(form, count, coded)) finite = false;
  };
  const EntryForm form = task.view.entry_form();
  code(task.input.keys, form.keys(), task.out.keys);
  code(task.input.values, form.values(), task.out.values);
  if (task.sealed) write_checksum(task.record, task.view, first / kChecksumBlockEntries);
  return finite;
}

// Encodes the rows of a block of entries whose other sections are already written. Returns false if
// the values are unchecked and one of them is not finite.
bool encode_block(const BlockLoops& loops, const HeadTask& task, std::uint32_t first,
                  std::uint32_t last) {
  if (task.view.encoding != Encoding::kRaw) return code_block(loops, task, first, last);
  const HeadsView& keys = task.input.keys;
  const std::uint32_t block = first / kChecksumBlockEntries;
  const bool whole = last - first == kChecksumBlockEntries;
  if (whole && are_lines(keys.row_bytes(), task.out.keys)) {
    const BlockSeen seen = (task.sealed ? loops.hashed : loops.unhashed)(task, first);
    if (task.sealed) store_checksum(task.record, block, seen.hash);
    return seen.largest < not_finite_bits(keys.dtype);
  }
  compact_rows(keys, task.head, task.kept, first, last, task.out.keys);
  compact_rows(task.input.values, task.head, task.kept, first, last, task.out.values);
  if (task.sealed) write_checksum(task.record, task.view, block);
  const auto finite = [&](const std::byte* rows) {
    return !loops.any_not_finite(keys.dtype, rows + first * keys.row_bytes(),
                                 std::size_t{last - first} * keys.head_dim);
  };
  return !loops.watched || (finite(task.out.keys) && finite(task.out.values));
}

// Whether all rows of a head that are not kept are finite.
bool rest_is_finite(const BlockLoops& loops, const LayerInput& input, std::uint32_t head,
                    std::span<const std::uint32_t> kept) {
  const std::uint32_t n = input.num_tokens();
  if (kept.size() == n) return true;
  std::vector<bool> is_kept(n);
  for (const std::uint32_t token : kept) is_kept[token] = true;
  for (std::uint32_t first = 0; first < n; ++first) {
    std::uint32_t last = first;
    while (last < n && !is_kept[last]) ++last;
    for (const HeadsView* view : {&input.keys, &input.values}) {
      if (loops.any_not_finite(view->dtype, view->row(head, first),
                               std::size_t{last - first} * view->head_dim)) {
        return false;
      }
    }
    first = last;
  }
  return true;
}

}  // namespace

std::size_t encoded_bytes(std::span<const std::uint32_t> counts, const EntryForm& form) {
  std::size_t bytes = 0;
  for (const std::uint32_t count : counts) bytes += RecordLayout::of(count, form).size;
  return bytes;
}

std::size_t encoded_bytes_max(std::uint64_t entries, std::uint32_t num_kv_heads,
                              const EntryForm& form) {
  // Per head: a record's header, the padding of its six sections (less than kSectionAlign each),
  // and the checksum of a partial block.
  const std::size_t per_head = sizeof(RecordHeader) + 6 * kSectionAlign + kChecksumBytes;
  return num_kv_heads * per_head + entries / kChecksumBlockEntries * kChecksumBytes +
         entries * record_entry_bytes(form);
}

Status check_room(const LayerInput& input, Encoding encoding, std::span<const std::uint32_t> counts,
                  MutableBytes out) {
  const EntryForm form{input.keys.head_dim, input.keys.dtype, encoding};
  PRECIS_TRY(form.validate());
  const std::size_t size = encoded_bytes(counts, form);
  if (out.size() == size && reinterpret_cast<std::uintptr_t>(out.data()) % alignof(float) == 0) {
    return {};
  }
  return Status::invalid("layer " + std::to_string(input.layer) + ": the records need " +
                         std::to_string(size) + " B at a multiple of 4 bytes, given " +
                         std::to_string(out.size()) + " B");
}

Status too_large_for(Encoding encoding, std::uint32_t layer) {
  return Status::invalid("layer " + std::to_string(layer) +
                         ": a value of K or V is too large for encoding=" +
                         std::string(encoding_name(encoding)) + "; use encoding=raw");
}

Status encode_cpu(const CpuContext& context, const LayerInput& input, const LayerScores& scores,
                  const RetentionOrders& orders, std::span<const std::uint32_t> counts,
                  const std::vector<std::vector<std::uint32_t>>& seats, const SegmentId& segment,
                  MutableBytes out, Encoding encoding, Rows rows) {
  const std::uint32_t num_heads = input.num_kv_heads();
  const EntryForm form{input.keys.head_dim, input.keys.dtype, encoding};
  PRECIS_CHECK(counts.size() == num_heads && orders.order.size() == num_heads);
  PRECIS_CHECK(scores.scores.size() == std::size_t{num_heads} * input.num_tokens());
  PRECIS_TRY(check_room(input, encoding, counts, out));
  const std::vector<HeadOutput> heads = head_outputs(counts, form);
  std::vector<WorkItem> items;
  for (std::uint32_t head = 0; head < num_heads; ++head) {
    const MutableBytes record = out.subspan(heads[head].offset, heads[head].layout.size);
    clear_padding(record, heads[head].layout);
    write_header(record, input.layer, head, counts[head], form, segment);
    for (std::uint32_t first = 0; first < counts[head]; first += kItemEntries) {
      items.push_back({head, first, std::min(counts[head], first + kItemEntries)});
    }
  }
  const BlockLoops loops = block_loops(context.isa, form.dtype, rows);
  std::atomic<bool> finite = true;
  const bool keeps_all =
      std::ranges::all_of(counts, [&](std::uint32_t count) { return count == input.num_tokens(); });
  if (loops.watched && !keeps_all) {
    context.pool.parallel_for(num_heads, [&](std::size_t head) {
      const auto kept = std::span(orders.order[head]).first(counts[head]);
      if (!rest_is_finite(loops, input, static_cast<std::uint32_t>(head), kept)) finite = false;
    });
  }
  context.pool.parallel_for(items.size(), [&](std::size_t i) {
    const auto& [head, first, last] = items[i];
    const RecordLayout& layout = heads[head].layout;
    const MutableBytes record = out.subspan(heads[head].offset, layout.size);
    const HeadTask task{input,
                        head,
                        std::span(orders.order[head]).first(layout.count),
                        record,
                        written_record(record),
                        sections_of(record, layout),
                        !seats.empty()};
    compact_words(input.begin, task.kept,
                  task.sealed ? std::span(seats[head]) : std::span<const std::uint32_t>(),
                  scores.scores.data() + std::size_t{head} * input.num_tokens(), first, last,
                  task.out);
    for (std::uint32_t at = first; at < last; at += kChecksumBlockEntries) {
      const std::uint32_t end = std::min(last, at + kChecksumBlockEntries);
      if (!encode_block(loops, task, at, end)) finite = false;
    }
    end_of_stream();
  });
  if (finite) return {};
  PRECIS_TRY(check_rows_cpu(context, input));
  if (encoding != Encoding::kRaw) return too_large_for(encoding, input.layer);
  return Status::invalid("layer " + std::to_string(input.layer) +
                         ": a value that was not finite changed while it was being taken in");
}

}  // namespace precis::kernels

// compact + encode on CUDA. Each checksum has a block of threads, which gathers and hashes the
// checksum's entries: in one pass (whole_block.cuh), or, at the end of a head, for coded rows, and
// for rows that are not pieces of 16 bytes, by hashing the bytes just written. The first block of a
// head also writes the header and clears the gaps between sections.
#include <algorithm>
#include <cstring>

#include "kernels/common/device_code.cuh"
#include "kernels/common/tuning.h"
#include "kernels/compact/compact.cuh"
#include "kernels/encode/encode_cuda.h"
#include "kernels/encode/row_code.cuh"
#include "kernels/encode/seal.cuh"
#include "kernels/encode/whole_block.cuh"
#include "precis/record_format.h"

namespace precis::kernels {
namespace {

struct HeaderBytes {
  const RecordHeader& header;
  __device__ std::uint64_t u64(std::size_t at) const {
    std::uint64_t word;
    memcpy(&word, reinterpret_cast<const unsigned char*>(&header) + at, sizeof word);
    return word;
  }
};

__device__ void write_header(const EncodeDevice& task, std::uint32_t head,
                             const RecordLayout& layout, std::byte* record) {
  RecordHeader header = {};
  header.magic = kRecordMagic;
  header.version = task.form.version();
  header.dtype = static_cast<std::uint8_t>(task.form.dtype);
  header.encoding = static_cast<std::uint8_t>(task.form.encoding);
  header.head_dim = task.form.head_dim;
  header.count = layout.count;
  header.layer = task.layer;
  header.head = head;
  header.checksums_offset = layout.checksums;
  header.positions_offset = layout.positions;
  header.seats_offset = layout.seats;
  header.scores_offset = layout.scores;
  header.keys_offset = layout.keys;
  header.values_offset = layout.values;
  header.size_bytes = layout.size;
  for (std::size_t i = 0; i < sizeof header.segment; ++i) header.segment[i] = task.segment.bytes[i];
  header.header_checksum =
      xxh3::hash64_medium(HeaderBytes{header}, offsetof(RecordHeader, header_checksum));
  *reinterpret_cast<RecordHeader*>(record) = header;
}

__device__ void clear(std::byte* record, std::size_t first, std::size_t last) {
  for (std::size_t i = first + threadIdx.x; i < last; i += blockDim.x) record[i] = std::byte{0};
}

__device__ void clear_gaps(const RecordLayout& l, std::byte* record) {
  const std::size_t words = std::size_t{l.count} * 4;
  clear(record, l.checksums + checksum_blocks(l.count) * kChecksumBytes, l.positions);
  clear(record, l.positions + words, l.seats);
  clear(record, l.seats + words, l.scores);
  clear(record, l.scores + words, l.keys);
  clear(record, l.keys + l.count * l.key_bytes, l.values);
  clear(record, l.values + l.count * l.value_bytes, l.size);
}

__device__ Sections sections_at(std::byte* record, const RecordLayout& l) {
  return {reinterpret_cast<std::uint32_t*>(record + l.positions),
          reinterpret_cast<std::uint32_t*>(record + l.seats),
          reinterpret_cast<float*>(record + l.scores), record + l.keys, record + l.values};
}

// Stores the byte order that xxHash prints: the high half first, each big-endian.
__device__ void store_checksum(const xxh3::Hash128& hash, std::byte* at) {
  auto* words = reinterpret_cast<std::uint64_t*>(at);
  words[0] = xxh3::swapped(hash.high);
  words[1] = xxh3::swapped(hash.low);
}

struct CodedShared : WholeShared {
  std::uint8_t codes[kEncodeThreads / kWarp][limits::kHeadDimMax];
};

__device__ void code_rows(const GatherTask& task, const Sections& out, CodedShared& shared,
                          std::uint32_t* too_large) {
  const std::uint32_t warp = threadIdx.x / kWarp;
  const RowForm keys = task.form.keys(), values = task.form.values();
  bool finite = true;
  for (std::uint32_t k = task.first + warp; k < task.last; k += blockDim.x / kWarp) {
    const std::size_t from = task.kept[k] * task.row_bytes;
    std::uint8_t* const codes = shared.codes[warp];
    finite &= code_row(keys, task.keys + from, out.keys + k * keys.bytes(), codes);
    finite &= code_row(values, task.values + from, out.values + k * values.bytes(), codes);
  }
  if (!finite) *too_large = 1;
}

// Writes any entries and returns their hash in the first thread, as copy_and_seal() does for most.
// Not inlined, so that its registers do not count for the usual way. Every thread must call it. A
// kernel that codes rows has a CodedShared.
__device__ __noinline__ xxh3::Hash128 copy_then_seal(const GatherTask& task, const Sections& out,
                                                     WholeShared& shared,
                                                     std::uint32_t* too_large) {
  gather_words(task, out);
  if (task.form.encoding == Encoding::kRaw) {
    gather_rows(task, task.keys, out.keys);
    gather_rows(task, task.values, out.values);
  } else {
    code_rows(task, out, static_cast<CodedShared&>(shared), too_large);
  }
  if (task.seats == nullptr) return {0, 0};
  __syncthreads();  // other threads wrote part of the bytes hashed below
  const std::uint32_t first = task.first, count = task.last - first;
  const auto bytes = [first](auto* words) { return reinterpret_cast<std::byte*>(words + first); };
  const std::size_t key_bytes = task.form.keys().bytes(), value_bytes = task.form.values().bytes();
  const SealInput in{{bytes(out.positions), bytes(out.seats), bytes(out.scores),
                      out.keys + first * key_bytes, out.values + first * value_bytes},
                     count * std::size_t{4},
                     count * key_bytes,
                     count * value_bytes};
  return seal(in, shared);
}

// grid (checksum blocks, kv heads), a head's last checksum first: it takes the longest if it is not
// of a whole block.
__global__ void __launch_bounds__(kEncodeThreads, kEncodeBlocks) encode(EncodeDevice task) {
  const std::uint32_t head = blockIdx.y;
  const EncodeHead out = task.heads[head];
  const RecordLayout layout = RecordLayout::of(out.count, task.form);
  std::byte* record = task.records + out.offset;
  if (blockIdx.x == 0) {
    if (threadIdx.x == 0) write_header(task, head, layout, record);
    clear_gaps(layout, record);
  }
  const std::uint32_t blocks = checksum_blocks(out.count);
  if (blockIdx.x >= blocks) return;

  const std::uint32_t block = blocks - 1 - blockIdx.x, first = block * kChecksumBlockEntries;
  const std::uint32_t last = min(out.count, first + kChecksumBlockEntries);
  const std::size_t row_bytes = task.form.raw().keys().bytes(),
                    head_bytes = task.num_tokens * row_bytes;
  const GatherTask gather{
      static_cast<const std::byte*>(task.keys) + head * head_bytes,
      static_cast<const std::byte*>(task.values) + head * head_bytes,
      task.scores + std::uint64_t{head} * task.num_tokens,
      task.order + std::uint64_t{head} * task.order_stride,
      task.seats == nullptr ? nullptr : task.seats + std::uint64_t{head} * task.seat_stride,
      task.begin,
      first,
      last,
      row_bytes,
      task.form};
  const Sections sections = sections_at(record, layout);
  std::byte* checksum = record + layout.checksums + block * kChecksumBytes;
  auto& shared = *shared_memory<WholeShared>();
  const xxh3::Hash128 hash = WholeBlock::fits(gather)
                                 ? copy_and_seal(gather, sections, shared)
                                 : copy_then_seal(gather, sections, shared, task.too_large);
  if (threadIdx.x == 0) store_checksum(hash, checksum);
}

}  // namespace

Status launch_encode(const EncodeDevice& task, Stream& stream) {
  const dim3 grid(std::max(1u, checksum_blocks(task.count_max)), task.num_kv_heads);
  const bool is_raw = task.form.encoding == Encoding::kRaw;
  return launch("encode", encode, grid, kEncodeThreads,
                is_raw ? sizeof(WholeShared) : sizeof(CodedShared), stream, task);
}

}  // namespace precis::kernels

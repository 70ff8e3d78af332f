// The CUDA implementation of encode, with compact inside it: the same records as encode_cpu, byte
// for byte. Includes no CUDA header.
#pragma once

#include <cstdint>

#include "kernels/common/device.h"
#include "precis/entry_form.h"
#include "precis/types.h"

namespace precis::kernels {

struct EncodeHead {
  std::uint64_t offset;  // of its record's first byte; the records of a layer are contiguous
  std::uint32_t count;   // entries
};

// Device pointers, packed, aligned to 16 bytes.
struct EncodeDevice {
  std::uint32_t layer, num_kv_heads, num_tokens;
  std::uint32_t begin;  // position of the first token
  EntryForm form;       // of the records
  SegmentId segment;
  const void *keys, *values;  // [num_kv_heads, num_tokens, head_dim] of the form's dtype, raw
  const float* scores;        // [num_kv_heads, num_tokens]
  std::uint32_t order_stride, seat_stride;
  const std::uint32_t* order;  // [num_kv_heads, order_stride], the first `count` of each are kept
  // [num_kv_heads, seat_stride], or null: seats and checksums become zero
  const std::uint32_t* seats;
  const EncodeHead* heads;   // [num_kv_heads]
  std::uint32_t count_max;   // the largest count of any head
  std::byte* records;        // output, encoded_bytes() of the counts; every byte is written
  std::uint32_t* too_large;  // becomes 1 if a coded row does not decode to finite elements
};

// Enqueues on `stream`; neither allocates nor waits, and needs no workspace. One block of threads
// gathers the entries of one checksum and hashes them while they are in cache.
Status launch_encode(const EncodeDevice& task, Stream& stream);

}  // namespace precis::kernels

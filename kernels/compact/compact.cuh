// The CUDA implementation of compact: a block of threads gathers entries of one head into its
// record's sections. Called by encode; only for kernel sources.
#pragma once

#include "kernels/common/device_code.cuh"
#include "kernels/compact/compact.h"
#include "precis/entry_form.h"

namespace precis::kernels {

// Entries [first, last) of one head. keys, values: [n, row_bytes]; scores: [n]. The form is that of
// the record.
struct GatherTask {
  const std::byte *keys, *values;
  const float* scores;
  const std::uint32_t *kept, *seats;  // `seats` may be null, for zeros
  std::uint32_t begin, first, last;
  std::size_t row_bytes;
  EntryForm form;
};

// Copies rows in pieces of T; neighbouring threads copy neighbouring pieces.
template <typename T>
__device__ void gather_pieces(const GatherTask& task, const std::byte* from, std::byte* to) {
  const auto pieces = static_cast<std::uint32_t>(task.row_bytes / sizeof(T));
  const T* __restrict__ rows = reinterpret_cast<const T*>(from);
  T* __restrict__ out = reinterpret_cast<T*>(to) + std::size_t{task.first} * pieces;
  const std::uint32_t total = (task.last - task.first) * pieces;
#pragma unroll 4
  for (std::uint32_t i = threadIdx.x; i < total; i += blockDim.x) {
    const std::size_t token = task.kept[task.first + i / pieces];
    out[i] = rows[token * pieces + i % pieces];
  }
}

// Uses the widest pieces that divide a row.
__device__ inline void gather_rows(const GatherTask& task, const std::byte* from, std::byte* to) {
  if (task.row_bytes % sizeof(uint4) == 0) return gather_pieces<uint4>(task, from, to);
  if (task.row_bytes % 4 == 0) return gather_pieces<std::uint32_t>(task, from, to);
  if (task.row_bytes % 2 == 0) return gather_pieces<std::uint16_t>(task, from, to);
  gather_pieces<std::uint8_t>(task, from, to);
}

__device__ inline void gather_words(const GatherTask& task, const Sections& out) {
  for (std::uint32_t k = task.first + threadIdx.x; k < task.last; k += blockDim.x) {
    const std::uint32_t token = task.kept[k];
    out.positions[k] = task.begin + token;
    out.seats[k] = task.seats == nullptr ? 0 : task.seats[k];
    out.scores[k] = task.scores[token];
  }
}

}  // namespace precis::kernels

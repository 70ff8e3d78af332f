// Rows of K and V in registers, for kernels that reduce over channels. Only for kernel sources.
//
// A row is divided into units: 16 bytes if rows are multiples of 16 bytes and not of f8, else
// single elements. A power of two of a warp's lanes share a row, unit after unit; a warp holds one
// row or several.
#pragma once

#include "kernels/common/device_code.cuh"
#include "precis/limits.h"

namespace precis::kernels {

// [num_rows, dim] of dtype, packed, aligned to 16 bytes.
struct RowsDevice {
  const std::byte* data;
  Dtype dtype;
  std::uint32_t dim;
  std::uint32_t units, lanes;  // per row; set by rows_of()
  __device__ std::uint32_t lane() const { return threadIdx.x % lanes; }
  __device__ std::uint32_t group() const { return threadIdx.x / lanes; }
  __device__ std::uint32_t groups() const { return blockDim.x / lanes; }
};

// kEach elements a unit, at most kUnits units a lane.
template <int kEach, int kUnits>
struct RowPart {
  float x[kUnits][kEach];

  // Loads row `row`, or zeros if it is outside.
  __device__ void load(const RowsDevice& rows, std::uint64_t row, bool inside) {
    const std::size_t unit_bytes = kEach * dtype_size_bytes(rows.dtype);
    const std::byte* from = rows.data + row * rows.units * unit_bytes;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const std::uint32_t unit = rows.lane() + static_cast<std::uint32_t>(u) * rows.lanes;
      if (inside && unit < rows.units) {
        load_unit(rows.dtype, from + unit * unit_bytes, x[u]);
      } else {
#pragma unroll
        for (int e = 0; e < kEach; ++e) x[u][e] = 0;
      }
    }
  }
  // Calls fn(channel, value) for every element that this lane holds.
  template <typename Fn>
  __device__ void each(const RowsDevice& rows, const Fn& fn) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const std::uint32_t unit = rows.lane() + static_cast<std::uint32_t>(u) * rows.lanes;
      if (unit >= rows.units) continue;
#pragma unroll
      for (int e = 0; e < kEach; ++e) fn(unit * kEach + static_cast<std::uint32_t>(e), x[u][e]);
    }
  }

 private:
  __device__ static void load_unit(Dtype dtype, const std::byte* from, float (&to)[kEach]) {
    if constexpr (kEach == 1) {
      to[0] = element(dtype, from, 0);
    } else if constexpr (kEach == 4) {
      const float4 four = *reinterpret_cast<const float4*>(from);
      to[0] = four.x;
      to[1] = four.y;
      to[2] = four.z;
      to[3] = four.w;
    } else {
      const uint4 eight = *reinterpret_cast<const uint4*>(from);
      const std::uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto low = static_cast<std::uint16_t>(pairs[i]);
        const auto high = static_cast<std::uint16_t>(pairs[i] >> 16);
        to[2 * i] = dtype == Dtype::kBf16 ? f32_of_bf16(low) : f32_of_f16(low);
        to[2 * i + 1] = dtype == Dtype::kBf16 ? f32_of_bf16(high) : f32_of_f16(high);
      }
    }
  }
};

// The sum over the lanes of a row, the same in each lane; always added in the same order.
__device__ inline float sum_over_row(float x, std::uint32_t lanes) {
  for (std::uint32_t step = lanes / 2; step > 0; step /= 2) {
    x += __shfl_xor_sync(kWholeWarp, x, static_cast<int>(step));
  }
  return x;
}

inline RowsDevice rows_of(const void* data, Dtype dtype, std::uint32_t dim) {
  const std::size_t row_bytes = dim * dtype_size_bytes(dtype);
  const bool wide = row_bytes % sizeof(uint4) == 0 && dtype != Dtype::kF8E4M3;
  RowsDevice rows{static_cast<const std::byte*>(data), dtype, dim, dim, kWarp};
  if (!wide) return rows;
  rows.units = static_cast<std::uint32_t>(row_bytes / sizeof(uint4));
  for (rows.lanes = 1; rows.lanes < rows.units && rows.lanes < kWarp;) rows.lanes *= 2;
  return rows;
}

// Calls fn.operator()<kEach, kUnits>() with the sizes of a RowPart that holds such rows.
template <typename Fn>
Status for_rows(const RowsDevice& rows, const Fn& fn) {
  constexpr int kElements = limits::kHeadDimMax / kWarp;  // of a lane
  const bool one = rows.units <= rows.lanes;
  if (rows.units == rows.dim) return fn.template operator()<1, kElements>();
  if (rows.dtype == Dtype::kF32) {
    return one ? fn.template operator()<4, 1>() : fn.template operator()<4, kElements / 4>();
  }
  return one ? fn.template operator()<8, 1>() : fn.template operator()<8, kElements / 8>();
}

}  // namespace precis::kernels

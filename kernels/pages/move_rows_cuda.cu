// Moves rows between a packed array and pages. The packed rows also cross the bus, which has a
// twentieth of the speed of device memory and so limits a move. So the kernel is simple: it moves
// wide pieces, with neighbouring threads on neighbouring addresses.
#include "kernels/common/device_code.cuh"
#include "kernels/common/tuning.h"
#include "kernels/pages/move_rows_cuda.h"

namespace precis::kernels {
namespace {

// Moves rows [first, last) of a run, in pieces of T. `packed` points to the run's first row.
template <typename T, bool kToPages>
__device__ void move_pieces(const MoveRows& task, const PagePlaces& places, const MovedRun& run,
                            std::byte* packed, std::uint32_t first, std::uint32_t last) {
  const std::byte* __restrict__ from = kToPages ? packed : places.data;
  std::byte* __restrict__ to = kToPages ? places.data : packed;
  const std::uint32_t* __restrict__ table = task.table + run.table_begin;
  // Neighbouring threads take neighbouring pieces of the pages: along a row, or along a column.
  const bool columns = places.row_stride < places.piece_stride;
  const std::uint32_t rows = last - first, line = columns ? rows : places.row_pieces;
#pragma unroll 4
  for (std::uint32_t i = threadIdx.x; i < rows * places.row_pieces; i += blockDim.x) {
    const std::uint32_t row = first + (columns ? i % line : i / line);
    const std::uint32_t piece = columns ? i / line : i % line;
    const std::uint64_t at = std::uint64_t{run.first_row} + row;
    const std::uint64_t place = table[at / task.page_rows] * places.page_stride +
                                at % task.page_rows * places.row_stride +
                                piece * places.piece_stride;
    const std::uint64_t mine = (std::uint64_t{row} * places.row_pieces + piece) * sizeof(T);
    *reinterpret_cast<T*>(to + (kToPages ? place : mine)) =
        *reinterpret_cast<const T*>(from + (kToPages ? mine : place));
  }
}

// grid (blocks of rows, runs, keys and values).
template <bool kToPages>
__global__ void __launch_bounds__(kMoveThreads) move_rows(MoveRows task) {
  const MovedRun run = task.runs[blockIdx.y];
  const std::uint32_t first = blockIdx.x * kMoveRowsOfBlock;
  if (first >= run.num_rows) return;
  const std::uint32_t last = min(run.num_rows, first + kMoveRowsOfBlock);
  // A conditional instead of an index, because indexed kernel parameters go through local memory.
  const PagePlaces places = blockIdx.z == 0 ? task.keys : task.values;
  std::byte* const packed = task.packed + (blockIdx.z == 0 ? run.keys_at : run.values_at);
  switch (places.piece_bytes) {
    case 16: return move_pieces<uint4, kToPages>(task, places, run, packed, first, last);
    case 8: return move_pieces<std::uint64_t, kToPages>(task, places, run, packed, first, last);
    case 4: return move_pieces<std::uint32_t, kToPages>(task, places, run, packed, first, last);
    case 2: return move_pieces<std::uint16_t, kToPages>(task, places, run, packed, first, last);
    default: return move_pieces<std::uint8_t, kToPages>(task, places, run, packed, first, last);
  }
}

dim3 grid_of(const MoveRows& task) {
  return dim3(ceil_div(task.rows_max, kMoveRowsOfBlock), task.num_runs, 2);
}

}  // namespace

Status launch_scatter(const MoveRows& task, const Stream& stream) {
  return launch("scatter", move_rows<true>, grid_of(task), kMoveThreads, 0, stream, task);
}

Status launch_gather(const MoveRows& task, const Stream& stream) {
  return launch("gather", move_rows<false>, grid_of(task), kMoveThreads, 0, stream, task);
}

}  // namespace precis::kernels

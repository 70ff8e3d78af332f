// Runs a grid on the host, block by block. The threads of a block are fibers: each runs until it
// waits at a barrier or at an exchange of its warp. So a missing barrier is never hidden by threads
// that happen to run in between.
//
// The order of threads changes from block to block (ascending, descending, from somewhere in the
// middle), and shared memory begins as NaN. So a kernel that reads a value before another thread
// has written it gets a wrong value, and its tests fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace precis::cuda_emulator {

struct Extent {
  std::uint32_t x, y, z;
  constexpr Extent(std::uint32_t x_ = 1, std::uint32_t y_ = 1, std::uint32_t z_ = 1)
      : x(x_), y(y_), z(z_) {}
  std::uint64_t count() const { return std::uint64_t{x} * y * z; }
};
struct Index {
  std::uint32_t x = 0, y = 0, z = 0;
};

// The running thread's indices and extents; only kernels read them.
inline Index thread_index, block_index;
inline Extent block_extent, grid_extent;

inline constexpr std::uint32_t kWarpLanes = 32;
inline constexpr std::uint32_t kBlockThreadsMax = 1024;
inline constexpr std::size_t kSharedBytesMax = 48 * 1024;  // the size that devices grant by default

// Runs `kernel` once per thread of the grid. Returns an error, or an empty text. Errors are threads
// that wait for each other for ever ("block (2,0,0): deadlock, thread 3 left, thread 5 waits at
// __syncthreads"), and lanes of a warp that meet in different exchanges. Only one grid runs at a
// time: calls from several threads wait for each other.
std::string run_grid(Extent grid, Extent block, std::size_t shared_bytes,
                     const std::function<void()>& kernel);

// Only kernels may call the functions below, from within run_grid.
std::byte* shared_memory();  // aligned to 128 bytes
std::uint32_t lane();
// Waits for every thread of the block.
void sync_block();
// Shows the 8 bytes `word` to the warp and waits for all of its lanes. The result holds every
// lane's word, until this lane's next exchange. `name` is the CUDA function that the kernel called;
// `mask` must name every lane.
const std::uint64_t* exchange(const char* name, std::uint32_t mask, std::uint64_t word);

}  // namespace precis::cuda_emulator

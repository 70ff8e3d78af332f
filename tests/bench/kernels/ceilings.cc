#include "tests/bench/kernels/ceilings.h"

#include <atomic>
#include <cstring>

#include "kernels/common/host_device.h"
#include "kernels/common/isa.h"
#include "kernels/common/thread_pool.h"

namespace precis::bench {
namespace {

constexpr std::size_t kPieceBytes = 256 << 10;  // one work item

using Words = std::uint64_t __attribute__((vector_size(64)));

PRECIS_INLINE std::uint64_t add_up(const std::byte* data, std::size_t size) {
  Words sums[4] = {};
  std::size_t at = 0;
  for (; at + sizeof sums <= size; at += sizeof sums) {
    for (std::size_t i = 0; i < 4; ++i) {
      Words x;
      std::memcpy(&x, data + at + i * sizeof x, sizeof x);
      sums[i] += x;
    }
  }
  const Words all = sums[0] + sums[1] + sums[2] + sums[3];
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < 8; ++i) total += all[i];
  for (; at < size; ++at) total += std::to_integer<std::uint64_t>(data[at]);
  return total;
}

template <typename Fn>
Seconds measure_pieces(const Layers& layers, unsigned threads, std::size_t runs, double seconds,
                       const Fn& fn) {
  kernels::ThreadPool pool(threads);
  const std::size_t size = layers.keys(0).size();
  const std::size_t pieces = (size + kPieceBytes - 1) / kPieceBytes;
  return measure(runs, seconds, [&](std::size_t i) {
    const Bytes keys = layers.keys(i);
    pool.parallel_for(pieces, [&](std::size_t piece) {
      const std::size_t first = piece * kPieceBytes;
      fn(keys.subspan(first, std::min(kPieceBytes, size - first)), first);
    });
  });
}

}  // namespace

Seconds measure_read(const Layers& layers, unsigned threads, std::size_t runs, double seconds) {
  const auto body = kernels::for_isa<&add_up>(kernels::detect_isa());
  std::atomic<std::uint64_t> sink{0};
  return measure_pieces(layers, threads, runs, seconds, [&](Bytes piece, std::size_t) {
    sink.fetch_add(body(piece.data(), piece.size()), std::memory_order_relaxed);
  });
}

Seconds measure_memcpy(const Layers& layers, unsigned threads, std::size_t runs, double seconds) {
  ArenaArray<std::byte> target(layers.keys(0).size());
  return measure_pieces(layers, threads, runs, seconds, [&](Bytes piece, std::size_t first) {
    std::memcpy(target.all().data() + first, piece.data(), piece.size());
  });
}

}  // namespace precis::bench

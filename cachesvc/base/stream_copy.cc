#include "cachesvc/base/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

// Sanitizers do not see non-temporal stores, so their builds use memcpy().
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PRECIS_STREAMS 1
#include <emmintrin.h>
#endif

namespace precis {
#if defined(PRECIS_STREAMS)
namespace {

// A step is two cache lines. Steps alternate over several pages: the machine's prefetchers follow
// each page separately and stop at its end, so copying page after page would stall at the start of
// each page.
constexpr std::size_t kStepBytes = 128, kPageBytes = 4096, kPages = 4;
constexpr std::size_t kBlockBytes = kPages * kPageBytes;

// Each moves one step with non-temporal stores. `to` must be at the start of a cache line.
struct Sse2 {
  static void step(std::byte* to, const std::byte* from) {
    auto* const out = reinterpret_cast<__m128i*>(to);
    const auto* const in = reinterpret_cast<const __m128i*>(from);
    for (std::size_t i = 0; i < kStepBytes / sizeof(__m128i); ++i) {
      _mm_stream_si128(out + i, _mm_loadu_si128(in + i));
    }
  }
  static void end() { _mm_sfence(); }
};
// Inline assembly, because this file is compiled for machines without AVX-512.
struct Avx512 {
  static void step(std::byte* to, const std::byte* from) {
    asm volatile(
        "vmovdqu64 (%1), %%zmm0\n\t"
        "vmovdqu64 64(%1), %%zmm1\n\t"
        "vmovntdq %%zmm0, (%0)\n\t"
        "vmovntdq %%zmm1, 64(%0)"
        :
        : "r"(to), "r"(from)
        : "memory", "xmm0", "xmm1");
  }
  static void end() { asm volatile("vzeroupper\n\tsfence" ::: "memory"); }
};

// Copies whole steps from the front. Returns the number of bytes copied.
template <typename Isa>
std::size_t copy_steps(std::byte* to, const std::byte* from, std::size_t size) {
  std::size_t done = 0;
  for (; size - done >= kBlockBytes; done += kBlockBytes) {
    for (std::size_t at = done; at < done + kPageBytes; at += kStepBytes) {
      for (std::size_t page = 0; page < kPages; ++page) {
        Isa::step(to + at + page * kPageBytes, from + at + page * kPageBytes);
      }
    }
  }
  for (; size - done >= kStepBytes; done += kStepBytes) Isa::step(to + done, from + done);
  Isa::end();
  return done;
}

constexpr std::size_t kLineBytes = 64;

}  // namespace

void stream_copy(std::byte* to, const std::byte* from, std::size_t size_bytes) {
  static const auto steps =
      __builtin_cpu_supports("avx512f") ? &copy_steps<Avx512> : &copy_steps<Sse2>;
  const std::size_t into_line = reinterpret_cast<std::uintptr_t>(to) % kLineBytes;
  const std::size_t head = std::min(size_bytes, (kLineBytes - into_line) % kLineBytes);
  std::memcpy(to, from, head);
  const std::size_t done = head + steps(to + head, from + head, size_bytes - head);
  std::memcpy(to + done, from + done, size_bytes - done);
}

#else

void stream_copy(std::byte* to, const std::byte* from, std::size_t size_bytes) {
  std::memcpy(to, from, size_bytes);
}

#endif
}  // namespace precis

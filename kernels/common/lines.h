// Whole cache lines on their way through registers. Only for loops that isa.h compiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/common/host_device.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace precis::kernels {

inline constexpr std::size_t kLineBytes = 64;
using Line = std::uint64_t __attribute__((vector_size(kLineBytes)));

PRECIS_INLINE Line load_line(const void* from) {
  Line line;
  std::memcpy(&line, from, sizeof line);
  return line;
}

// What instruction sets do with a line, each in its own way:
//   stream(to, line)  stores it, around the caches if that is possible, at a multiple of
//   kLineBytes;
//                     other threads may see it only after end_of_stream()
//   product(line)     the lower half of each word times its upper half
struct PlainLines {
  PRECIS_INLINE static void stream(std::byte* to, const Line& line) {
#if defined(__x86_64__)
    __m128i parts[sizeof line / sizeof(__m128i)];
    std::memcpy(parts, &line, sizeof line);
    for (const __m128i& part : parts) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to), part);
      to += sizeof part;
    }
#else
    std::memcpy(to, &line, sizeof line);
#endif
  }
  PRECIS_INLINE static Line product(const Line& line) {
    return (line & 0xffffffffu) * (line >> 32);
  }
};

#if defined(__x86_64__) && !defined(__clang__)
// For for_avx512(). Written out like the instructions of amx.h: a line is one store, and the
// compiler, which does not see that halves are halves, would multiply whole words at a third of the
// pace. Clang knows no operands so wide.
struct WideLines {
  PRECIS_INLINE static void stream(std::byte* to, const Line& line) {
    asm volatile("vmovntdq %1, (%0)" ::"r"(to), "v"(line) : "memory");
  }
  PRECIS_INLINE static Line product(const Line& line) {
    Line out;
    asm("vpmuludq %1, %2, %0" : "=v"(out) : "v"(line), "v"(line >> 32));
    return out;
  }
};
#else
using WideLines = PlainLines;
#endif

PRECIS_INLINE void end_of_stream() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace precis::kernels

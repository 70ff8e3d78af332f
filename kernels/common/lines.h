// Moves whole cache lines through registers. Only for loops that isa.h compiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/common/host_device.h"
#include "kernels/common/isa.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace precis::kernels {

inline constexpr std::size_t kLineBytes = 64;

// The registers of an instruction set, and the operations that differ between sets:
//   kIsa                 the instruction set
//   Words, Ints, Shorts, Octets  one register, as elements of 64, 32, 16 or 8 bits
//   load(from)           from any address, exactly once: clients may write to rows while they are
//                        read, and a repeated load could hash other bytes than those stored
//   store(to, words)     to any address
//   swapped(words)       swaps the two words of each pair
//   product(words)       the lower half of each word times its upper half
//   stream(to, words)    stores the register, past the caches if possible, at an address aligned to
//                        the register's size; other threads may read it only after end_of_stream()
struct PlainLines {
  static constexpr Isa kIsa = Isa::kBaseline;
  using Words = std::uint64_t __attribute__((vector_size(16)));
  struct [[gnu::packed, gnu::may_alias]] Loose {
    Words words;
  };
  using Ints = std::int32_t __attribute__((vector_size(16)));
  using Shorts = std::int16_t __attribute__((vector_size(16)));
  using Octets = std::int8_t __attribute__((vector_size(16)));
  PRECIS_INLINE static Words load(const void* from) {
    return static_cast<const volatile Loose*>(from)->words;
  }
  PRECIS_INLINE static void store(void* to, const Words& words) {
    static_cast<Loose*>(to)->words = words;
  }
  PRECIS_INLINE static Words swapped(const Words& words) {
    return __builtin_shufflevector(words, words, 1, 0);
  }
#if defined(__x86_64__)
  PRECIS_INLINE static Words product(const Words& words) {
    return (Words)_mm_mul_epu32((__m128i)words, (__m128i)(words >> 32));
  }
  PRECIS_INLINE static void stream(std::byte* to, const Words& words) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), (__m128i)words);
  }
#else
  PRECIS_INLINE static Words product(const Words& words) {
    return (words & 0xffffffffu) * (words >> 32);
  }
  PRECIS_INLINE static void stream(std::byte* to, const Words& words) {
    std::memcpy(to, &words, sizeof words);
  }
#endif
};

#if defined(__x86_64__) && !defined(__clang__)
// Inline assembly, like amx.h: intrinsics are only allowed in functions of their own instruction
// set, and the compiler, which does not see that the factors are 32 bits wide, would multiply whole
// words at a third of the speed. Clang does not accept operands this wide.
using Words32 = std::uint64_t __attribute__((vector_size(32)));
using Words64 = std::uint64_t __attribute__((vector_size(64)));
template <typename Words>
struct AvxRegisters {
  PRECIS_INLINE static Words load(const void* from) {
    Words out;
    asm("vmovups %1, %0" : "=v"(out) : "m"(*static_cast<const std::byte(*)[sizeof out]>(from)));
    return out;
  }
  PRECIS_INLINE static void store(void* to, const Words& words) {
    asm("vmovups %1, %0" : "=m"(*static_cast<std::byte(*)[sizeof words]>(to)) : "v"(words));
  }
  PRECIS_INLINE static Words swapped(const Words& words) {
    Words out;
    asm("vpshufd $0x4e, %1, %0" : "=v"(out) : "v"(words));
    return out;
  }
  PRECIS_INLINE static Words product(const Words& words) {
    Words out;
    asm("vpmuludq %1, %2, %0" : "=v"(out) : "v"(words), "v"(words >> 32));
    return out;
  }
  PRECIS_INLINE static void stream(std::byte* to, const Words& words) {
    asm volatile("vmovntdq %1, (%0)" ::"r"(to), "v"(words) : "memory");
  }
};
struct HalfLines : AvxRegisters<Words32> {
  static constexpr Isa kIsa = Isa::kAvx2;
  using Words = Words32;
  using Ints = std::int32_t __attribute__((vector_size(32)));
  using Shorts = std::int16_t __attribute__((vector_size(32)));
  using Octets = std::int8_t __attribute__((vector_size(32)));
};
struct WideLines : AvxRegisters<Words64> {
  static constexpr Isa kIsa = Isa::kAvx512;
  using Words = Words64;
  using Ints = std::int32_t __attribute__((vector_size(64)));
  using Shorts = std::int16_t __attribute__((vector_size(64)));
  using Octets = std::int8_t __attribute__((vector_size(64)));
};
#else
struct HalfLines : PlainLines {
  static constexpr Isa kIsa = Isa::kAvx2;
};
struct WideLines : PlainLines {
  static constexpr Isa kIsa = Isa::kAvx512;
};
#endif

// Calls choose(Lines()) with the register type of instruction set `isa`.
template <typename Choose>
auto with_lines(Isa isa, Choose choose) {
  if (isa >= Isa::kAvx512) return choose(WideLines());
  if (isa == Isa::kAvx2) return choose(HalfLines());
  return choose(PlainLines());
}

// One cache line, in as many registers as it needs. (The compiler keeps a vector wider than a
// register in memory between any two operations.)
template <typename Lines>
struct Line {
  static constexpr std::size_t kParts = kLineBytes / sizeof(typename Lines::Words);
  typename Lines::Words parts[kParts];
};

template <typename Lines>
PRECIS_INLINE Line<Lines> load_line(const void* from) {
  Line<Lines> line;
  for (std::size_t i = 0; i < line.kParts; ++i) {
    line.parts[i] = Lines::load(static_cast<const std::byte*>(from) + i * sizeof line.parts[i]);
  }
  return line;
}

template <typename Lines>
PRECIS_INLINE void store_line(void* to, const Line<Lines>& line) {
  for (std::size_t i = 0; i < line.kParts; ++i) {
    Lines::store(static_cast<std::byte*>(to) + i * sizeof line.parts[i], line.parts[i]);
  }
}

template <typename Lines>
PRECIS_INLINE void stream_line(std::byte* to, const Line<Lines>& line) {
  for (const auto& part : line.parts) {
    Lines::stream(to, part);
    to += sizeof part;
  }
}

PRECIS_INLINE void end_of_stream() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace precis::kernels

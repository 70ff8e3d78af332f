#include "kernels/common/isa.h"

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace precis::kernels {
namespace {

// Linux saves tile registers only for processes that have asked for them (arch_prctl(2)). One
// request covers the whole process, including threads that already exist.
[[maybe_unused]] bool tiles_permitted() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILE_DATA
  static const bool permitted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return permitted;
#else
  return false;
#endif
}

}  // namespace

Isa detect_isa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
#if defined(__clang__)
    // Clang, used here for checks and fuzzing only, supports neither these feature names nor
    // vectors of 16 lanes as operands of inline assembly.
    constexpr bool tiles = false;
#else
    const bool tiles = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("amx-tile") &&
                       __builtin_cpu_supports("amx-bf16");
#endif
    return tiles && tiles_permitted() ? Isa::kAmx : Isa::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::kAvx2;
#endif
  return Isa::kBaseline;
}

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kBaseline: return "baseline";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAmx: return "amx";
  }
  return "unknown";
}

std::size_t register_bytes() {
  static const std::size_t bytes = [] {
    const Isa isa = detect_isa();
    return isa >= Isa::kAvx512 ? std::size_t{64} : isa == Isa::kAvx2 ? 32 : 16;
  }();
  return bytes;
}

}  // namespace precis::kernels

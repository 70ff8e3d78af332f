// Run-time dispatch over instruction sets. A loop is written once, as an always-inline function of
// plain C++ and 16-lane vectors (lanes.h); for_isa<&loop>(isa) returns the loop compiled for that
// set.
#pragma once

#include <cstddef>
#include <string_view>

namespace precis::kernels {

// kAmx is kAvx512 with tile registers (amx.h); loops without matrix products are the same in both.
enum class Isa { kBaseline, kAvx2, kAvx512, kAmx };
// The best instruction set that this machine runs. The first call asks the system for permission to
// use tile registers; if the system refuses, kAmx is not returned.
Isa detect_isa();
std::string_view isa_name(Isa isa);  // "baseline", "avx2", "avx512", "amx"
std::size_t register_bytes();        // of this machine's best set: 16, 32 or 64

template <auto Loop>
struct IsaClones;
template <typename R, typename... Args, R (*Loop)(Args...)>
struct IsaClones<Loop> {
  static R baseline(Args... args) { return Loop(args...); }
#if defined(__x86_64__)
  [[gnu::target("avx2,fma")]] static R avx2(Args... args) { return Loop(args...); }
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma")]] static R avx512(Args... args) {
    return Loop(args...);
  }
#endif
};

template <auto Loop>
auto for_isa([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return &IsaClones<Loop>::avx512;
  if (isa == Isa::kAvx2) return &IsaClones<Loop>::avx2;
#endif
  return &IsaClones<Loop>::baseline;
}

// The loop compiled for kIsa; only machines with that instruction set may call it.
template <Isa kIsa, auto Loop>
auto compiled_for() {
#if defined(__x86_64__)
  if constexpr (kIsa >= Isa::kAvx512)
    return &IsaClones<Loop>::avx512;
  else if constexpr (kIsa == Isa::kAvx2)
    return &IsaClones<Loop>::avx2;
  else
#endif
    return &IsaClones<Loop>::baseline;
}
template <auto Loop>
auto for_avx512() {
  return compiled_for<Isa::kAvx512, Loop>();
}

}  // namespace precis::kernels

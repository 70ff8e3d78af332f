// Several stacks on one system thread, so that the threads of an emulated block can switch whenever
// they wait for each other.
#pragma once

#include <cstddef>
#include <memory>

#if !defined(__x86_64__) || defined(__SANITIZE_ADDRESS__)
#define PRECIS_FIBERS_BY_UCONTEXT 1  // AddressSanitizer supports swapcontext by itself
#include <ucontext.h>
#endif

namespace precis::cuda_emulator {

// A suspended context: its stack pointer, with the registers pushed.
struct Context {
#if defined(PRECIS_FIBERS_BY_UCONTEXT)
  ucontext_t state;
#else
  void* stack_pointer = nullptr;
#endif
};

// Leaves the running stack at `from` and continues where `to` was left.
void switch_context(Context& from, Context& to);

class Fiber {
 public:
  static constexpr std::size_t kStackBytes = 96 * 1024;
  Fiber();
  // The next resume() begins entry(), which must never return; the fiber's previous state is lost.
  void start(void (*entry)());
  // Runs the fiber until it calls suspend().
  void resume() { switch_context(caller_, own_); }
  void suspend() { switch_context(own_, caller_); }

 private:
  std::unique_ptr<std::byte[]> stack_;
  Context own_, caller_;
};

}  // namespace precis::cuda_emulator

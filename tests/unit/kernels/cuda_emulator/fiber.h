// Several stacks on one thread of the system, so that the threads of an emulated block take turns
// wherever they wait for each other.
#pragma once

#include <cstddef>
#include <memory>

#if !defined(__x86_64__) || defined(__SANITIZE_ADDRESS__)
#define PRECIS_FIBERS_BY_UCONTEXT 1  // AddressSanitizer follows swapcontext by itself
#include <ucontext.h>
#endif

namespace precis::cuda_emulator {

// A place to return to: the stack pointer of whoever waits, its registers pushed.
struct Context {
#if defined(PRECIS_FIBERS_BY_UCONTEXT)
  ucontext_t state;
#else
  void* stack_pointer = nullptr;
#endif
};

// Leaves the running stack at `from` and goes on where `to` was left.
void switch_context(Context& from, Context& to);

class Fiber {
 public:
  static constexpr std::size_t kStackBytes = 96 * 1024;
  Fiber();
  // The next resume() begins entry(), which must never return; whatever ran before is forgotten.
  void start(void (*entry)());
  // Runs until the fiber calls suspend().
  void resume() { switch_context(caller_, own_); }
  void suspend() { switch_context(own_, caller_); }

 private:
  std::unique_ptr<std::byte[]> stack_;
  Context own_, caller_;
};

}  // namespace precis::cuda_emulator

#include "tests/unit/kernels/cuda_emulator/fiber.h"

#include <cstdint>

#if !defined(PRECIS_FIBERS_BY_UCONTEXT)
// In the calling convention of x86-64, six registers are preserved over a call; the other state is
// on the stack.
extern "C" void precis_switch_stack(void** from, void* to);
asm(R"(
  .text
  .globl precis_switch_stack
  .type precis_switch_stack, @function
precis_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size precis_switch_stack, .-precis_switch_stack
)");
#endif

namespace precis::cuda_emulator {

// The stack is not initialised, so that only the pages in use are ever touched.
Fiber::Fiber() : stack_(new std::byte[kStackBytes]) {}

#if defined(PRECIS_FIBERS_BY_UCONTEXT)

void switch_context(Context& from, Context& to) { swapcontext(&from.state, &to.state); }

void Fiber::start(void (*entry)()) {
  getcontext(&own_.state);
  own_.state.uc_stack.ss_sp = stack_.get();
  own_.state.uc_stack.ss_size = kStackBytes;
  own_.state.uc_link = nullptr;
  makecontext(&own_.state, entry, 0);
}

#else

void switch_context(Context& from, Context& to) {
  precis_switch_stack(&from.stack_pointer, to.stack_pointer);
}

void Fiber::start(void (*entry)()) {
  // The stack as precis_switch_stack leaves it: six registers, then the return address. A function
  // expects its stack pointer 8 bytes past a multiple of 16, as after a call.
  auto top = reinterpret_cast<std::uintptr_t>(stack_.get() + kStackBytes) & ~std::uintptr_t{15};
  auto* slots = reinterpret_cast<void**>(top) - 8;
  for (int i = 0; i < 6; ++i) slots[i] = nullptr;
  slots[6] = reinterpret_cast<void*>(entry);
  slots[7] = nullptr;
  own_.stack_pointer = slots;
}

#endif

}  // namespace precis::cuda_emulator

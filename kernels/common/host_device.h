// Marks arithmetic that both backends compile: the <stage>_op.h headers (CONTRIBUTING.md).
#pragma once

#if defined(__CUDACC__)
#define PRECIS_HOST_DEVICE __host__ __device__
#else
#define PRECIS_HOST_DEVICE
#endif

// Always inlined, so that a loop body is compiled for the instruction set of the function around it
// (isa.h).
#define PRECIS_INLINE [[gnu::always_inline]] inline

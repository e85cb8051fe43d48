// Gates: the kernel of an activation, and such a kernel over rows.
#pragma once

#include <cstddef>

#include "backend/cpu/grain.h"
#include "base/threads/thread_pool.h"
#include "cpu/swiglu.h"
#include "model/config.h"

namespace blend::cpu {

inline auto gate_of(Activation activation) {
  switch (activation) {
    case Activation::gelu_tanh:
      return kernels::geglu;
    case Activation::clamped_silu:
      return kernels::clamped_swiglu;
    case Activation::relu2:  // up is its own gate
      return kernels::reglu;
    case Activation::silu:
      break;
  }
  return kernels::swiglu;
}

// Rows of out, [n_rows, n]: kernel(gate, up, n, out); rows of gate and up lie `stride` apart.
template <class Kernel>
void gate_rows(ThreadPool& pool, size_t n_rows, size_t n, Kernel kernel, const float* gate,
               const float* up, size_t stride, float* out) {
  pool.parallel_for(n_rows, row_grain(2 * n), [&](size_t begin, size_t end, uint32_t) {
    for (size_t i = begin; i < end; ++i) kernel(gate + i * stride, up + i * stride, n, out + i * n);
  });
}

}  // namespace blend::cpu

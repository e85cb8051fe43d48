// A product for shapes without an algorithm in cuBLASLt: correct, and slow.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace blend::kernels::cuda {

// y = x w^T, or y += x w^T. x: bf16 [rows, in], w: bf16 [out, in], y: bf16 or f32 [rows, out], all
// of the device; sums are f32, over `in` in ascending order.
void plain_gemm(const uint16_t* x, const uint16_t* w, void* y, size_t rows, size_t in, size_t out,
                bool y_is_bf16, bool accumulate, cudaStream_t stream);

}  // namespace blend::kernels::cuda

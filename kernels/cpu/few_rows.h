// The GEMM of few rows: y = x W^T with W as the model file has it, or as integers with a step a
// row. Weights are decoded in registers and multiplied there, each for several rows of x at once,
// so that what is read is their bytes and nothing is written but y.
#pragma once

#include <cstddef>

#include "base/half.h"
#include "base/weight_blocks.h"

namespace blend::kernels {

struct FewRows {
  const float* x = nullptr;      // [m, k]
  const std::byte* w = nullptr;  // [n, k] of `dtype`, or of `blocks` where those are not none
  float* y = nullptr;            // [m, n], its rows y_stride apart
  size_t m = 0;
  size_t k = 0;  // a multiple of block_elements(blocks)
  size_t n = 0;
  size_t y_stride = 0;
  DType dtype = DType::f32;
  BlockType blocks = BlockType::none;
  bool accumulate = false;       // y += x W^T
  const float* steps = nullptr;  // [n]; if there, W is of s8 instead, row j times steps[j]
};

// In f32. Rows of W go by kFewRowsStep at a time; a rest of fewer costs more.
inline constexpr size_t kFewRowsStep = 4;
void few_rows(const FewRows& product);

// The scalar reference: sums in double.
void few_rows_ref(const FewRows& product);

}  // namespace blend::kernels

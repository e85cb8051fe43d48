// Tensor: a view of activations in memory of a backend.
#pragma once

#include <cstddef>
#include <cstdint>

namespace blend {

// Row-major, contiguous. elem_bytes says the type: BackendTraits::activation_bytes means f32, and
// operand_bytes, where fewer, bf16. Shapes are given as [rows, cols] where tensors are passed.
struct Tensor {
  void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t elem_bytes = 4;
  // Rows are steps of sequences: a row of their product must not depend on the other rows.
  bool steps = false;

  Tensor slice(int64_t first, int64_t n) const {
    return {static_cast<std::byte*>(data) + first * cols * elem_bytes, n, cols, elem_bytes, steps};
  }
};

}  // namespace blend

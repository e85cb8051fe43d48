// The products of digit_rows.h by an instruction that multiplies bytes and sums four products.
#pragma once

#include <cstddef>

#include "cpu/digit_rows.h"
#include "cpu/isa.h"

namespace blend::kernels {

// digit_rows_take(), digit_rows_pack() and digit_rows().
struct DigitDot {
  bool (*take)(BlockType blocks);
  void (*pack)(const float* x, size_t m, size_t k, std::byte* packed);
  void (*multiply)(const FewRows& product);
};
// Null: not by this instruction.
const DigitDot* digit_dot(Int8Path path);

}  // namespace blend::kernels

// How much work is worth handing to another thread.
#pragma once

#include <algorithm>
#include <cstddef>

namespace blend::cpu {

// Rows of `elements` a piece: 64 KiB of f32, some microseconds of memory-bound work, about what
// waking a thread costs. Fewer rows than that in all run on the caller.
inline size_t row_grain(size_t elements) {
  constexpr size_t kPiece = 16384;
  return std::max<size_t>(1, kPiece / std::max<size_t>(1, elements));
}

}  // namespace blend::cpu

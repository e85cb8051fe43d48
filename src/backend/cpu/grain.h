// The least work that is worth handing to another thread.
#pragma once

#include <algorithm>
#include <cstddef>

namespace blend::cpu {

// Rows of `elements` in a piece: 64 KiB of f32, some microseconds of memory-bound work, about what
// waking a thread costs. Fewer rows than that in all run on the caller.
inline size_t row_grain(size_t elements) {
  constexpr size_t kPiece = 16384;
  return std::max<size_t>(1, kPiece / std::max<size_t>(1, elements));
}

// The same `grain` or some more, so that threads have equally many pieces: three pieces on two
// threads take as long as four.
inline size_t even_grain(size_t n, size_t grain, size_t n_threads) {
  const size_t pieces = (n + grain - 1) / grain;
  if (pieces <= 1) return grain;
  const size_t even = pieces < n_threads ? pieces : pieces / n_threads * n_threads;
  return (n + even - 1) / even;
}

}  // namespace blend::cpu

// Prefetches of a register tile into the second-level cache while it multiplies: a share of the
// weights that come next, and the lines of its result. Memory's latency is that of some register
// tiles.
#pragma once

#include <hwy/base.h>

#include <algorithm>
#include <cstddef>

namespace blend::kernels {

struct FetchAhead {
  const char* at = nullptr;
  const char* end = nullptr;
  size_t step = 64;  // bytes at a time

  // Share b of n_blocks of `bytes` at `next`, in `steps` times of whole lines: to the nearest of
  // them, so that up to a third of a share may be left to the register tiles.
  static HWY_INLINE FetchAhead share(const void* next, size_t bytes, size_t b, size_t n_blocks,
                                     size_t steps) {
    const size_t share = (bytes / n_blocks + 63) / 64 * 64;
    const auto* const begin = static_cast<const char*>(next);
    return {begin + std::min(b * share, bytes), begin + std::min((b + 1) * share, bytes),
            std::max<size_t>(1, (share / 64 + steps / 2) / steps) * 64};
  }

  HWY_INLINE void some_lines() {
    for (const char* const last = std::min(at + step, end); at < last; at += 64) {
      __builtin_prefetch(at, 0, 2);
    }
  }
};

// Prefetches a line of y that a tile will write or add to. Not into the first-level cache: where
// rows are a multiple of 4 KiB long, as those of most models are, a tile's lines all map to the
// same one or two sets there, which hold fewer, and evict each other and the weights. (Zen 5,
// AVX-512, m = 512, relative to oneDNN, into the first level and the second: int8 after its first
// columns at k = 2048 and n = 2048, 8192 89 and 98 %, 89 and 99 %; f32 at n = 8192 96 and 98 %.)
HWY_INLINE void fetch_result(const float* line) { __builtin_prefetch(line, 1, 2); }

}  // namespace blend::kernels

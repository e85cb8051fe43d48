// Sizes rounded up.
#pragma once

#include <cstddef>
#include <cstdint>

namespace blend::cpu {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t align(int64_t n, int64_t to) { return ceil_div(n, to) * to; }
// Bytes rounded up to whole cache lines, so that threads' parts of a buffer share none.
constexpr size_t lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace blend::cpu

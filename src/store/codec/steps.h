// Scales and bases of the quantizing codecs, and their rounding to 16 bits.
//
// They are rounded outwards, so that the range they span still holds every value; values are then
// quantized with the rounded ones, so this rounding costs resolution but no further error.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/status.h"
#include "cpu/convert.h"
#include "formats/half.h"
#include "store/codec/codec.h"

namespace blend {

inline float half_to_f32(uint16_t h, DType dtype) {
  return dtype == DType::f16 ? f16_to_f32(h) : bf16_to_f32(h);
}

// The next 16-bit number up or down; h is finite.
inline uint16_t next_half(uint16_t h, bool up) {
  const bool negative = (h & 0x8000u) != 0;
  if ((h & 0x7fffu) == 0) return up ? 0x0001 : 0x8001;
  return static_cast<uint16_t>(negative == up ? h - 1 : h + 1);
}

// `x` as f16 or bf16, rounded up or down; x lies well inside the range of dtype.
inline uint16_t round_outwards(float x, DType dtype, bool up) {
  const uint16_t h = dtype == DType::f16 ? f32_to_f16(x) : f32_to_bf16(x);
  const float y = half_to_f32(h, dtype);
  return (up ? y < x : y > x) ? next_half(h, up) : h;
}

inline void store_half(uint16_t h, std::byte* out) { std::memcpy(out, &h, sizeof h); }

// Rows [first, first + n) of a plane as f32. NUMERIC when one is not finite.
inline Status load_rows(const PlaneShape& shape, const std::byte* rows, size_t first, size_t n,
                        float* out) {
  const size_t count = n * shape.kv_dim;
  kernels::decode(rows + first * shape.kv_dim * shape.element_bytes(), shape.dtype, count, out);
  const size_t bad = kernels::find_not_finite(out, count);
  if (bad == count) return Status::ok();
  return make_error(BLEND_E_NUMERIC,
                    "the value at row %zu, channel %zu is not finite, and cannot be quantized: "
                    "use codec none or zstd",
                    first + bad / shape.kv_dim, bad % shape.kv_dim);
}

// n stored numbers of f16 or bf16 as f32. CORRUPT when one is not finite, or negative where it must
// not be.
inline Status load_halves(const std::byte* in, DType dtype, size_t n, bool may_be_negative,
                          float* out) {
  kernels::decode(in, dtype, n, out);
  bool sound = kernels::find_not_finite(out, n) == n;
  for (size_t i = 0; sound && !may_be_negative && i < n; ++i) sound = !(out[i] < 0);
  return sound ? Status::ok() : Status{BLEND_E_CORRUPT, "a quantization step is not a number"};
}

}  // namespace blend

// Codec int4: 16 levels from a base in units of a scale, for groups of 32: tokens of a channel
// of K, channels of a token of V (KIVI, Liu et al. 2024: K by channel, V by token).
#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/quantize.h"
#include "store/codec/codec.h"
#include "store/codec/steps.h"

namespace blend {
namespace {

using kernels::kGroup4;

// Beyond this f16 cannot hold a base or a scale, and the whole plane has them as bf16. f16 is
// better where it fits: a channel of K may be far from zero, and its base then needs the bits.
constexpr float kMostForF16 = 60000;
constexpr size_t kHeader = 2;  // 0: f16, 1: bf16; and a zero for alignment

class Int4Codec final : public PackedCodec {
 public:
  Packing packing() const override { return Packing::int4; }
  uint64_t least_bytes(const PlaneShape& shape) const override {
    return std::min(bytes_of(PlaneKind::k, shape), bytes_of(PlaneKind::v, shape));
  }
  uint64_t most_bytes(const PlaneShape& shape) const override {
    return std::max(bytes_of(PlaneKind::k, shape), bytes_of(PlaneKind::v, shape));
  }

  Result<size_t> encode(PlaneKind kind, const PlaneShape& shape, const std::byte* rows,
                        std::byte* out, CodecScratch& scratch,
                        const EncodeOptions&) const override {
    BLEND_ASSIGN(const DType half, choose_half(shape, rows, scratch));
    out[0] = std::byte{half == DType::bf16};
    out[1] = std::byte{0};
    const size_t group = kind == PlaneKind::k ? kGroup4 : 1;
    std::byte* to = out + kHeader;
    for (size_t t = 0; t < shape.n_tokens; t += group) {
      const size_t n = std::min<size_t>(group, shape.n_tokens - t);
      float* x = scratch.floats(0, n * shape.kv_dim);
      BLEND_RETURN_IF_ERROR(load_rows(shape, rows, t, n, x));
      BLEND_ASSIGN(const size_t bytes, kind == PlaneKind::k
                                           ? encode_tokens(x, n, shape.kv_dim, half, to, scratch)
                                           : encode_row(x, shape.kv_dim, half, to, scratch));
      to += bytes;
    }
    return static_cast<size_t>(to - out);
  }

  Result<size_t> check(PlaneKind kind, const PlaneShape& shape, std::span<const std::byte> in,
                       CodecScratch& scratch) const override {
    BLEND_ASSIGN(const DType half, read_header(kind, shape, in));
    const size_t cols = shape.kv_dim;
    const size_t group = kind == PlaneKind::k ? kGroup4 : 1;
    const size_t params = kind == PlaneKind::k ? cols : kernels::n_groups(cols, kGroup4);
    float* const read = scratch.floats(1, params);
    const std::byte* from = in.data() + kHeader;
    for (size_t t = 0; t < shape.n_tokens; t += group) {
      const size_t n = std::min<size_t>(group, shape.n_tokens - t);
      BLEND_RETURN_IF_ERROR(load_halves(from, half, params, false, read));
      BLEND_RETURN_IF_ERROR(load_halves(from + 2 * params, half, params, true, read));
      from += 4 * params + (kind == PlaneKind::v ? kernels::nibble_row_bytes(cols)
                                                 : kernels::nibble_bytes(n) * cols);
    }
    return bytes_of(kind, shape);
  }

  Result<size_t> decode(PlaneKind kind, const PlaneShape& shape, std::span<const std::byte> in,
                        std::byte* rows, CodecScratch& scratch) const override {
    const size_t bytes = bytes_of(kind, shape);
    BLEND_ASSIGN(const DType half, read_header(kind, shape, in));
    const size_t cols = shape.kv_dim;
    const size_t row_bytes = cols * shape.element_bytes();
    const size_t group = kind == PlaneKind::k ? kGroup4 : 1;
    const size_t params = kind == PlaneKind::k ? cols : kernels::n_groups(cols, kGroup4);
    float* step = scratch.floats(1, params);
    float* base = scratch.floats(2, params);
    const std::byte* from = in.data() + kHeader;
    for (size_t t = 0; t < shape.n_tokens; t += group) {
      const size_t n = std::min<size_t>(group, shape.n_tokens - t);
      BLEND_RETURN_IF_ERROR(load_halves(from, half, params, false, step));
      BLEND_RETURN_IF_ERROR(load_halves(from + 2 * params, half, params, true, base));
      const auto* q = reinterpret_cast<const uint8_t*>(from + 4 * params);
      std::byte* to = rows + t * row_bytes;
      if (kind == PlaneKind::v) {
        kernels::dequantize4_groups(q, cols, base, step, shape.dtype, to);
        q += kernels::nibble_row_bytes(cols);
      } else {
        const size_t pairs = kernels::nibble_bytes(n);
        for (size_t i = 0; i < pairs; ++i, q += cols) {
          kernels::dequantize4_columns(q, cols, base, step, shape.dtype, to + i * row_bytes,
                                       i + pairs < n ? to + (i + pairs) * row_bytes : nullptr);
        }
      }
      from = reinterpret_cast<const std::byte*>(q);
    }
    return bytes;
  }

 private:
  // The type of the scales and bases; CORRUPT: no such header, or too few bytes.
  static Result<DType> read_header(PlaneKind kind, const PlaneShape& shape,
                                   std::span<const std::byte> in) {
    if (in.size() < bytes_of(kind, shape)) {
      return Status{BLEND_E_CORRUPT, "the quantized layer ends too soon"};
    }
    if (in[0] > std::byte{1} || in[1] != std::byte{0}) {
      return Status{BLEND_E_CORRUPT, "the quantized layer has an unknown kind of steps"};
    }
    return in[0] == std::byte{1} ? DType::bf16 : DType::f16;
  }

  static uint64_t bytes_of(PlaneKind kind, const PlaneShape& shape) {
    const size_t cols = shape.kv_dim;
    if (kind == PlaneKind::v) {
      return kHeader + shape.n_tokens *
                           (4 * kernels::n_groups(cols, kGroup4) + kernels::nibble_row_bytes(cols));
    }
    const size_t whole = shape.n_tokens / kGroup4;
    const size_t tail = shape.n_tokens % kGroup4;
    return kHeader + whole * cols * (4 + kGroup4 / 2) +
           (tail == 0 ? 0 : cols * (4 + kernels::nibble_bytes(tail)));
  }

  static Result<DType> choose_half(const PlaneShape& shape, const std::byte* rows,
                                   CodecScratch& scratch) {
    float* x = scratch.floats(0, shape.kv_dim);
    DType half = DType::f16;
    for (size_t t = 0; t < shape.n_tokens; ++t) {
      BLEND_RETURN_IF_ERROR(load_rows(shape, rows, t, 1, x));
      float lo = 0;
      float hi = 0;
      kernels::range_groups(x, shape.kv_dim, shape.kv_dim, &lo, &hi);
      if (std::max(-lo, hi) > kMostForF16) half = DType::bf16;
    }
    return half;
  }

  // Scale and base of each of n ranges, rounded to what is stored, and their bytes: scales, then
  // bases.
  static Status make_params(const float* lo, const float* hi, size_t n, DType half, float* step,
                            float* base, std::byte* out) {
    for (size_t i = 0; i < n; ++i) {
      const uint16_t b = round_outwards(lo[i], half, false);
      base[i] = half_to_f32(b, half);
      // A sixteenth of a range that f32 cannot hold would not be finite.
      const float range = hi[i] - base[i];
      if (!std::isfinite(base[i]) || !std::isfinite(range)) {
        return {BLEND_E_NUMERIC, "the values are too large for codec int4: use none or zstd"};
      }
      const uint16_t s = round_outwards(range / 15, half, true);
      step[i] = half_to_f32(s, half);
      store_half(s, out + 2 * i);
      store_half(b, out + 2 * (n + i));
    }
    return Status::ok();
  }

  // Up to kGroup4 tokens of K; x: [n, cols].
  static Result<size_t> encode_tokens(const float* x, size_t n, size_t cols, DType half,
                                      std::byte* out, CodecScratch& scratch) {
    float* step = scratch.floats(1, cols);
    float* base = scratch.floats(2, cols);
    float* lo = scratch.floats(3, cols);
    float* hi = scratch.floats(4, cols);
    std::fill_n(lo, cols, std::numeric_limits<float>::infinity());
    std::fill_n(hi, cols, -std::numeric_limits<float>::infinity());
    for (size_t t = 0; t < n; ++t) kernels::range_columns(x + t * cols, cols, lo, hi);
    BLEND_RETURN_IF_ERROR(make_params(lo, hi, cols, half, step, base, out));
    auto* q = reinterpret_cast<uint8_t*>(out + 4 * cols);
    const size_t pairs = kernels::nibble_bytes(n);
    for (size_t i = 0; i < pairs; ++i, q += cols) {
      kernels::quantize4_columns(x + i * cols, i + pairs < n ? x + (i + pairs) * cols : nullptr,
                                 cols, base, step, q);
    }
    return cols * (4 + pairs);
  }

  // One token of V; x: [cols].
  static Result<size_t> encode_row(const float* x, size_t cols, DType half, std::byte* out,
                                   CodecScratch& scratch) {
    const size_t groups = kernels::n_groups(cols, kGroup4);
    float* step = scratch.floats(1, groups);
    float* base = scratch.floats(2, groups);
    float* lo = scratch.floats(3, groups);
    float* hi = scratch.floats(4, groups);
    kernels::range_groups(x, cols, kGroup4, lo, hi);
    BLEND_RETURN_IF_ERROR(make_params(lo, hi, groups, half, step, base, out));
    kernels::quantize4_groups(x, cols, base, step, reinterpret_cast<uint8_t*>(out + 4 * groups));
    return 4 * groups + kernels::nibble_row_bytes(cols);
  }
};

}  // namespace

const PackedCodec& int4_codec() {
  static const Int4Codec kCodec{};
  return kCodec;
}

}  // namespace blend

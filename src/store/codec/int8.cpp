// Codec int8: symmetric, one scale for each channel of K, and for each head of each token of V.
//
// K before RoPE has channels that are large in every token; V has none, but tokens that are
// (KIVI, Liu et al. 2024, section 3). Scales are bf16: any magnitude, little accuracy.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/quantize.h"
#include "store/codec/codec.h"
#include "store/codec/steps.h"

namespace blend {
namespace {

constexpr DType kStep = DType::bf16;

class Int8Codec final : public PackedCodec {
 public:
  Packing packing() const override { return Packing::int8; }
  // K and V differ; both bounds hold for either.
  uint64_t least_bytes(const PlaneShape& shape) const override {
    return shape.elements() +
           2 * std::min(n_steps(PlaneKind::k, shape), n_steps(PlaneKind::v, shape));
  }
  uint64_t most_bytes(const PlaneShape& shape) const override {
    return shape.elements() +
           2 * std::max(n_steps(PlaneKind::k, shape), n_steps(PlaneKind::v, shape));
  }

  Result<size_t> encode(PlaneKind kind, const PlaneShape& shape, const std::byte* rows,
                        std::byte* out, CodecScratch& scratch,
                        const EncodeOptions&) const override {
    const size_t cols = shape.kv_dim;
    const size_t steps = n_steps(kind, shape);
    float* x = scratch.floats(0, cols);
    float* lo = scratch.floats(1, cols);
    float* hi = scratch.floats(2, cols);
    float* step = scratch.floats(3, cols);
    auto* q = reinterpret_cast<int8_t*>(out + 2 * steps);
    if (kind == PlaneKind::k) {
      const float none = shape.n_tokens == 0 ? 0 : std::numeric_limits<float>::infinity();
      std::fill_n(lo, cols, none);
      std::fill_n(hi, cols, -none);
      for (size_t t = 0; t < shape.n_tokens; ++t) {
        BLEND_RETURN_IF_ERROR(load_rows(shape, rows, t, 1, x));
        kernels::range_columns(x, cols, lo, hi);
      }
      make_steps(lo, hi, cols, step, out);
    }
    for (size_t t = 0; t < shape.n_tokens; ++t, q += cols) {
      BLEND_RETURN_IF_ERROR(load_rows(shape, rows, t, 1, x));
      if (kind == PlaneKind::k) {
        kernels::quantize8(x, cols, step, 1, q);
      } else {
        const size_t heads = cols / shape.head_dim;
        kernels::range_groups(x, cols, shape.head_dim, lo, hi);
        make_steps(lo, hi, heads, step, out + 2 * t * heads);
        kernels::quantize8(x, cols, step, shape.head_dim, q);
      }
    }
    return 2 * steps + shape.elements();
  }

  Result<size_t> check(PlaneKind kind, const PlaneShape& shape, std::span<const std::byte> in,
                       CodecScratch& scratch) const override {
    const size_t steps = n_steps(kind, shape);
    const size_t bytes = 2 * steps + shape.elements();
    if (in.size() < bytes) return Status{BLEND_E_CORRUPT, "the quantized layer ends too soon"};
    BLEND_RETURN_IF_ERROR(load_halves(in.data(), kStep, steps, false, scratch.floats(3, steps)));
    return bytes;
  }

  Result<size_t> decode(PlaneKind kind, const PlaneShape& shape, std::span<const std::byte> in,
                        std::byte* rows, CodecScratch& scratch) const override {
    BLEND_ASSIGN(const size_t bytes, check(kind, shape, in, scratch));
    const size_t steps = n_steps(kind, shape);
    const float* step = scratch.floats(3, steps);  // as check() left them
    const auto* q = reinterpret_cast<const int8_t*>(in.data() + 2 * steps);
    const bool by_column = kind == PlaneKind::k || shape.head_dim == 1;
    kernels::dequantize8(q, shape.n_tokens, shape.kv_dim, step,
                         kind == PlaneKind::k ? 0 : shape.kv_dim / shape.head_dim,
                         by_column ? 1 : shape.head_dim, shape.dtype, rows);
    return bytes;
  }

 private:
  static size_t n_steps(PlaneKind kind, const PlaneShape& shape) {
    if (kind == PlaneKind::k) return shape.kv_dim;
    return shape.kv_dim == 0 ? 0 : size_t{shape.n_tokens} * (shape.kv_dim / shape.head_dim);
  }

  static void make_steps(const float* lo, const float* hi, size_t n, float* step, std::byte* out) {
    for (size_t i = 0; i < n; ++i) {
      const uint16_t h = round_outwards(std::max(-lo[i], hi[i]) / 127, kStep, true);
      step[i] = bf16_to_f32(h);
      store_half(h, out + 2 * i);
    }
  }
};

}  // namespace

const PackedCodec& int8_codec() {
  static const Int8Codec kCodec{};
  return kCodec;
}

}  // namespace blend

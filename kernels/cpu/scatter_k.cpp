#include "cpu/scatter_k.h"

#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/scatter_k.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

#include "cpu/convert.h"
#include "cpu/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// out[e][lane] = rows[lane][e] for four rows and four elements.
HWY_INLINE void transpose_4x4(const float* rows, size_t stride, float* out) {
#if HWY_TARGET == HWY_SCALAR
  for (size_t lane = 0; lane < 4; ++lane) {
    for (size_t e = 0; e < 4; ++e) out[e * kKeyBlock + lane] = rows[lane * stride + e];
  }
#else
  const hn::CappedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> dw;
  const auto r0 = hn::LoadU(d, rows), r1 = hn::LoadU(d, rows + stride);
  const auto r2 = hn::LoadU(d, rows + 2 * stride), r3 = hn::LoadU(d, rows + 3 * stride);
  const auto a = hn::BitCast(dw, hn::InterleaveLower(d, r0, r1));  // 00 10 01 11
  const auto b = hn::BitCast(dw, hn::InterleaveLower(d, r2, r3));
  const auto c = hn::BitCast(dw, hn::InterleaveUpper(d, r0, r1));
  const auto e = hn::BitCast(dw, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, a, b)), d, out);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, a, b)), d, out + kKeyBlock);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, c, e)), d, out + 2 * kKeyBlock);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, c, e)), d, out + 3 * kKeyBlock);
#endif
}

// out[e][lane] = rows[lane][e] for eight rows and eight elements of two bytes.
HWY_INLINE void transpose_8x8(const uint16_t* rows, size_t stride, uint16_t* out) {
#if HWY_TARGET == HWY_SCALAR
  for (size_t lane = 0; lane < 8; ++lane) {
    for (size_t e = 0; e < 8; ++e) out[e * kKeyBlock + lane] = rows[lane * stride + e];
  }
#else
  const hn::CappedTag<uint16_t, 8> d;
  const hn::RepartitionToWide<decltype(d)> d32;
  const hn::RepartitionToWide<decltype(d32)> d64;
  // Pairs of rows, then fours, then eight; each step has the first elements and the last.
  hn::Vec<decltype(d32)> pairs[4][2];
  BLEND_UNROLL
  for (size_t i = 0; i < 4; ++i) {
    const auto r0 = hn::LoadU(d, rows + 2 * i * stride);
    const auto r1 = hn::LoadU(d, rows + (2 * i + 1) * stride);
    pairs[i][0] = hn::BitCast(d32, hn::InterleaveLower(d, r0, r1));
    pairs[i][1] = hn::BitCast(d32, hn::InterleaveUpper(d, r0, r1));
  }
  hn::Vec<decltype(d64)> fours[2][4];
  BLEND_UNROLL
  for (size_t i = 0; i < 2; ++i) {
    BLEND_UNROLL
    for (size_t part = 0; part < 2; ++part) {
      const auto p = pairs[2 * i][part], q = pairs[2 * i + 1][part];
      fours[i][2 * part] = hn::BitCast(d64, hn::InterleaveLower(d32, p, q));
      fours[i][2 * part + 1] = hn::BitCast(d64, hn::InterleaveUpper(d32, p, q));
    }
  }
  BLEND_UNROLL
  for (size_t e = 0; e < 4; ++e) {
    const auto p = fours[0][e], q = fours[1][e];
    uint16_t* const to = out + 2 * e * kKeyBlock;
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, p, q)), d, to);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, p, q)), d, to + kKeyBlock);
  }
#endif
}

// Elements of a head that are rounded before they are put in place: sixteen rows of them stay in
// the first-level cache.
constexpr size_t kStrip = 64;

// One row's head into the cache; `largest` sees 16-bit results.
template <DType kType>
HWY_INLINE void put_row(const float* row, size_t head_dim, Cached<kType>* out, Largest16& largest) {
  if constexpr (kType == DType::f32) {
    for (size_t e = 0; e < head_dim; ++e) out[e * kKeyBlock] = row[e];
  } else {
    HWY_ALIGN uint16_t strip[kStrip];
    for (size_t first = 0; first < head_dim; first += kStrip) {
      const size_t n = HWY_MIN(kStrip, head_dim - first);
      encode_16<kType>(row + first, n, reinterpret_cast<std::byte*>(strip), largest);
      for (size_t e = 0; e < n; ++e) out[(first + e) * kKeyBlock] = strip[e];
    }
  }
}

// Sixteen rows' head; rows: at `stride`.
template <DType kType>
HWY_INLINE void put_block(const float* rows, size_t stride, size_t head_dim, Cached<kType>* out,
                          Largest16& largest) {
  if constexpr (kType == DType::f32) {
    size_t e = 0;
    for (; e + 4 <= head_dim; e += 4) {
      for (size_t lane = 0; lane < kKeyBlock; lane += 4) {
        transpose_4x4(rows + lane * stride + e, stride, out + e * kKeyBlock + lane);
      }
    }
    for (; e < head_dim; ++e) {
      for (size_t lane = 0; lane < kKeyBlock; ++lane) {
        out[e * kKeyBlock + lane] = rows[lane * stride + e];
      }
    }
  } else {
    // Rounded by rows, where elements lie side by side, then transposed as two bytes each.
    HWY_ALIGN uint16_t strips[kKeyBlock * kStrip];
    for (size_t first = 0; first < head_dim; first += kStrip, out += kStrip * kKeyBlock) {
      const size_t n = HWY_MIN(kStrip, head_dim - first);
      for (size_t lane = 0; lane < kKeyBlock; ++lane) {
        encode_16<kType>(rows + lane * stride + first, n,
                         reinterpret_cast<std::byte*>(strips + lane * kStrip), largest);
      }
      size_t e = 0;
      for (; e + 8 <= n; e += 8) {
        transpose_8x8(strips + e, kStrip, out + e * kKeyBlock);
        transpose_8x8(strips + 8 * kStrip + e, kStrip, out + e * kKeyBlock + 8);
      }
      for (; e < n; ++e) {
        for (size_t lane = 0; lane < kKeyBlock; ++lane) {
          out[e * kKeyBlock + lane] = strips[lane * kStrip + e];
        }
      }
    }
  }
}

template <DType kType>
bool scatter_k_as(const float* rows, size_t stride, const uint32_t* slots, size_t n,
                  const KvLayout& layout, Cached<kType>* k) {
  const size_t head_dim = layout.head_dim;
  Largest16 largest;
  for (size_t i = 0; i < n;) {
    bool block = i + kKeyBlock <= n && slots[i] % kKeyBlock == 0;
    for (size_t lane = 1; block && lane < kKeyBlock; ++lane) {
      block = slots[i + lane] == slots[i] + lane;
    }
    const float* row = rows + i * stride;
    for (size_t h = 0; h < layout.n_kv_heads; ++h, row += head_dim) {
      Cached<kType>* const out = k + layout.k_offset(h, slots[i]);
      if (block) {
        put_block<kType>(row, stride, head_dim, out, largest);
      } else {
        put_row<kType>(row, head_dim, out, largest);
      }
    }
    i += block ? kKeyBlock : 1;
  }
  return kType == DType::f32 || largest.finite<kType>();
}

bool ScatterK(const float* rows, size_t stride, const uint32_t* slots, size_t n,
              const KvLayout& layout, DType dtype, void* k) {
  bool finite = true;
  with_cached(dtype, [&](auto type) {
    constexpr DType kType = decltype(type)::value;
    finite = scatter_k_as<kType>(rows, stride, slots, n, layout, static_cast<Cached<kType>*>(k));
  });
  return finite;
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(ScatterK);

bool scatter_k(const float* rows, size_t stride, const uint32_t* slots, size_t n,
               const KvLayout& layout, DType dtype, void* k) {
  return HWY_DYNAMIC_DISPATCH(ScatterK)(rows, stride, slots, n, layout, dtype, k);
}

bool scatter_k_ref(const float* rows, size_t stride, const uint32_t* slots, size_t n,
                   const KvLayout& layout, DType dtype, void* k) {
  const size_t size = static_cast<size_t>(dtype_size(dtype));
  bool finite = true;
  for (size_t i = 0; i < n; ++i) {
    for (size_t h = 0; h < layout.n_kv_heads; ++h) {
      for (size_t e = 0; e < layout.head_dim; ++e) {
        const size_t to = layout.k_offset(h, slots[i]) + e * kKeyBlock;
        const bool fits = encode_ref(rows + i * stride + h * layout.head_dim + e, 1, dtype,
                                     static_cast<std::byte*>(k) + to * size);
        finite &= fits || dtype == DType::f32;
      }
    }
  }
  return finite;
}

}  // namespace blend::kernels
#endif  // HWY_ONCE

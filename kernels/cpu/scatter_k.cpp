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

// One row's or sixteen rows' head into the cache; false: not finite.
template <DType kType>
HWY_INLINE bool put_row(const float* row, size_t head_dim, Cached<kType>* out) {
  if constexpr (kType == DType::f32) {
    for (size_t e = 0; e < head_dim; ++e) out[e * kKeyBlock] = row[e];
    return true;
  } else {
    bool finite = true;
    for (size_t e = 0; e < head_dim; ++e) {
      finite &= encode_16<kType>(row + e, 1, reinterpret_cast<std::byte*>(out + e * kKeyBlock));
    }
    return finite;
  }
}

// rows: sixteen at `stride`.
template <DType kType>
HWY_INLINE bool put_block(const float* rows, size_t stride, size_t head_dim, Cached<kType>* out) {
  bool finite = true;
  size_t e = 0;
  for (; e + 4 <= head_dim; e += 4) {
    HWY_ALIGN float transposed[4 * kKeyBlock];
    float* to = transposed;
    if constexpr (kType == DType::f32) to = out + e * kKeyBlock;
    for (size_t lane = 0; lane < kKeyBlock; lane += 4) {
      transpose_4x4(rows + lane * stride + e, stride, to + lane);
    }
    if constexpr (kType != DType::f32) {
      finite &= encode_16<kType>(transposed, 4 * kKeyBlock,
                                 reinterpret_cast<std::byte*>(out + e * kKeyBlock));
    }
  }
  for (; e < head_dim; ++e) {
    for (size_t lane = 0; lane < kKeyBlock; ++lane) {
      finite &= put_row<kType>(rows + lane * stride + e, 1, out + e * kKeyBlock + lane);
    }
  }
  return finite;
}

template <DType kType>
bool scatter_k_as(const float* rows, size_t stride, const uint32_t* slots, size_t n,
                  const KvLayout& layout, Cached<kType>* k) {
  const size_t head_dim = layout.head_dim;
  bool finite = true;
  for (size_t i = 0; i < n;) {
    bool block = i + kKeyBlock <= n && slots[i] % kKeyBlock == 0;
    for (size_t lane = 1; block && lane < kKeyBlock; ++lane) {
      block = slots[i + lane] == slots[i] + lane;
    }
    const float* row = rows + i * stride;
    for (size_t h = 0; h < layout.n_kv_heads; ++h, row += head_dim) {
      Cached<kType>* const out = k + layout.k_offset(h, slots[i]);
      finite &=
          block ? put_block<kType>(row, stride, head_dim, out) : put_row<kType>(row, head_dim, out);
    }
    i += block ? kKeyBlock : 1;
  }
  return finite;
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

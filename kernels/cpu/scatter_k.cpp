#include "cpu/scatter_k.h"

#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/scatter_k.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

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

void ScatterK(const float* rows, size_t stride, const uint32_t* slots, size_t n,
              const KvLayout& layout, float* k) {
  const size_t head_dim = layout.head_dim;
  for (size_t i = 0; i < n;) {
    bool block = i + kKeyBlock <= n && slots[i] % kKeyBlock == 0;
    for (size_t lane = 1; block && lane < kKeyBlock; ++lane) {
      block = slots[i + lane] == slots[i] + lane;
    }
    const float* row = rows + i * stride;
    for (size_t h = 0; h < layout.n_kv_heads; ++h, row += head_dim) {
      float* out = k + layout.k_offset(h, slots[i]);
      if (!block) {
        for (size_t e = 0; e < head_dim; ++e) out[e * kKeyBlock] = row[e];
        continue;
      }
      size_t e = 0;
      for (; e + 4 <= head_dim; e += 4) {
        for (size_t lane = 0; lane < kKeyBlock; lane += 4) {
          transpose_4x4(row + lane * stride + e, stride, out + e * kKeyBlock + lane);
        }
      }
      for (; e < head_dim; ++e) {
        for (size_t lane = 0; lane < kKeyBlock; ++lane) {
          out[e * kKeyBlock + lane] = row[lane * stride + e];
        }
      }
    }
    i += block ? kKeyBlock : 1;
  }
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(ScatterK);

void scatter_k(const float* rows, size_t stride, const uint32_t* slots, size_t n,
               const KvLayout& layout, float* k) {
  HWY_DYNAMIC_DISPATCH(ScatterK)(rows, stride, slots, n, layout, k);
}

void scatter_k_ref(const float* rows, size_t stride, const uint32_t* slots, size_t n,
                   const KvLayout& layout, float* k) {
  for (size_t i = 0; i < n; ++i) {
    for (size_t h = 0; h < layout.n_kv_heads; ++h) {
      for (size_t e = 0; e < layout.head_dim; ++e) {
        k[layout.k_offset(h, slots[i]) + e * kKeyBlock] =
            rows[i * stride + h * layout.head_dim + e];
      }
    }
  }
}

}  // namespace blend::kernels
#endif  // HWY_ONCE

// Scores of a few query rows against all keys of a head, for kernels that need every score of a row
// before they can weigh the first.
//
// Included once per SIMD target; see any kernel.
#if defined(BLEND_KERNELS_KEY_SCORES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BLEND_KERNELS_KEY_SCORES_INL_H
#undef BLEND_KERNELS_KEY_SCORES_INL_H
#else
#define BLEND_KERNELS_KEY_SCORES_INL_H
#endif

#include <hwy/highway.h>

#include "cpu/half-inl.h"
#include "cpu/kv_layout.h"
#include "cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows that use a key while it is in a register. Two vectors of keys times four rows are eight
// sums, enough to hide the latency of the multiply-add.
constexpr size_t kScoredRows = 4;

// s[r][j] = q[r] . k[j] * scale for the keys j < n_keys, rounded up to two vectors.
// q: [kRows] at q_stride; k: see kv_layout.h; s: rows at `stride`.
template <DType kType, size_t kRows>
HWY_INLINE void key_scores(const float* HWY_RESTRICT q, size_t q_stride,
                           const Cached<kType>* HWY_RESTRICT k, size_t head_dim, float scale,
                           size_t n_keys, float* HWY_RESTRICT s, size_t stride) {
  const hn::CappedTag<float, kKeyBlock> d;
  const size_t lanes = hn::Lanes(d);
  const auto factor = hn::Set(d, scale);
  for (size_t j = 0; j < n_keys; j += 2 * lanes) {
    const size_t next = j + lanes;
    const Cached<kType>* k0 = k + j / kKeyBlock * kKeyBlock * head_dim + j % kKeyBlock;
    const Cached<kType>* k1 = k + next / kKeyBlock * kKeyBlock * head_dim + next % kKeyBlock;
    hn::Vec<decltype(d)> sum0[kRows], sum1[kRows];
    BLEND_UNROLL
    for (size_t r = 0; r < kRows; ++r) sum0[r] = sum1[r] = hn::Zero(d);
    for (size_t e = 0; e < head_dim; ++e) {
      const auto key0 = load_cached<kType>(d, k0 + e * kKeyBlock);
      const auto key1 = load_cached<kType>(d, k1 + e * kKeyBlock);
      BLEND_UNROLL
      for (size_t r = 0; r < kRows; ++r) {
        const auto qe = hn::Set(d, q[r * q_stride + e]);
        sum0[r] = hn::MulAdd(qe, key0, sum0[r]);
        sum1[r] = hn::MulAdd(qe, key1, sum1[r]);
      }
    }
    BLEND_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      hn::Store(hn::Mul(sum0[r], factor), d, s + r * stride + j);
      hn::Store(hn::Mul(sum1[r], factor), d, s + r * stride + next);
    }
  }
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

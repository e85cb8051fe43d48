#include "cpu/attention_mass.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cpu/kv_layout.h"
#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attention_mass.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

#include "cpu/exp-inl.h"

#ifndef BLEND_KERNELS_ATTENTION_MASS_ONCE  // what all targets share
#define BLEND_KERNELS_ATTENTION_MASS_ONCE
namespace blend::kernels {

// Rows that use a key while it is in a register. Two vectors of keys times four rows are eight
// sums, enough to hide the latency of the multiply-add.
inline constexpr size_t kMassRows = 4;

}  // namespace blend::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// s[r][j] = q[r] . k[j] * scale for the keys j < n_keys, rounded up to two vectors.
template <size_t kRows>
HWY_INLINE void mass_scores(const AttentionMassBlock& b, size_t first, size_t n_keys, size_t stride,
                            float* HWY_RESTRICT s) {
  const hn::CappedTag<float, kKeyBlock> d;
  const size_t lanes = hn::Lanes(d);
  const auto scale = hn::Set(d, b.scale);
  for (size_t j = 0; j < n_keys; j += 2 * lanes) {
    const size_t next = j + lanes;
    const float* k0 = b.k + j / kKeyBlock * kKeyBlock * b.head_dim + j % kKeyBlock;
    const float* k1 = b.k + next / kKeyBlock * kKeyBlock * b.head_dim + next % kKeyBlock;
    hn::Vec<decltype(d)> sum0[kRows], sum1[kRows];
    BLEND_UNROLL
    for (size_t r = 0; r < kRows; ++r) sum0[r] = sum1[r] = hn::Zero(d);
    for (size_t e = 0; e < b.head_dim; ++e) {
      const auto key0 = hn::Load(d, k0 + e * kKeyBlock), key1 = hn::Load(d, k1 + e * kKeyBlock);
      BLEND_UNROLL
      for (size_t r = 0; r < kRows; ++r) {
        const auto qe = hn::Set(d, b.q[(first + r) * b.q_stride + e]);
        sum0[r] = hn::MulAdd(qe, key0, sum0[r]);
        sum1[r] = hn::MulAdd(qe, key1, sum1[r]);
      }
    }
    BLEND_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      hn::Store(hn::Mul(sum0[r], scale), d, s + r * stride + j);
      hn::Store(hn::Mul(sum1[r], scale), d, s + r * stride + next);
    }
  }
}

// mass += softmax(s) over the first n_keys; s: padded to whole vectors, destroyed.
HWY_INLINE void add_softmax(float* HWY_RESTRICT s, size_t n_keys, size_t padded,
                            float* HWY_RESTRICT mass) {
  const hn::CappedTag<float, kKeyBlock> d;
  const size_t lanes = hn::Lanes(d);
  std::fill(s + n_keys, s + padded, -std::numeric_limits<float>::infinity());
  auto m = hn::Load(d, s);
  for (size_t j = lanes; j < padded; j += lanes) m = hn::Max(m, hn::Load(d, s + j));
  m = hn::MaxOfLanes(d, m);
  auto sum = hn::Zero(d);
  for (size_t j = 0; j < padded; j += lanes) {
    const auto p = exp_nonpositive(d, hn::Sub(hn::Load(d, s + j), m));
    hn::Store(p, d, s + j);
    sum = hn::Add(sum, p);
  }
  const auto inverse = hn::Set(d, 1.0f / hn::GetLane(hn::SumOfLanes(d, sum)));
  for (size_t j = 0; j < padded; j += lanes) {
    hn::Store(hn::MulAdd(hn::Load(d, s + j), inverse, hn::Load(d, mass + j)), d, mass + j);
  }
}

void AttentionMass(const AttentionMassBlock& b, float* mass, float* scratch) {
  const size_t stride = attention_mass_floats(b.pos[b.n_rows - 1]);
  for (size_t i = 0; i < b.n_rows;) {
    const size_t rows = b.n_rows - i >= kMassRows ? kMassRows : 1;
    const size_t n_keys = static_cast<size_t>(b.pos[i + rows - 1]) + 1;
    if (rows == kMassRows) {
      mass_scores<kMassRows>(b, i, n_keys, stride, scratch);
    } else {
      mass_scores<1>(b, i, n_keys, stride, scratch);
    }
    for (size_t r = 0; r < rows; ++r) {
      const size_t visible = static_cast<size_t>(b.pos[i + r]) + 1;
      add_softmax(scratch + r * stride, visible, round_up(visible, kSlotMultiple), mass);
    }
    i += rows;
  }
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(AttentionMass);

size_t attention_mass_floats(size_t pos) { return round_up(pos + 1, kSlotMultiple); }

size_t attention_mass_scratch_floats(size_t pos) { return kMassRows * attention_mass_floats(pos); }

void attention_mass(const AttentionMassBlock& block, float* mass, float* scratch) {
  if (block.n_rows != 0) HWY_DYNAMIC_DISPATCH(AttentionMass)(block, mass, scratch);
}

void attention_mass_ref(const AttentionMassBlock& b, float* mass) {
  std::vector<double> p;
  for (size_t i = 0; i < b.n_rows; ++i) {
    p.assign(static_cast<size_t>(b.pos[i]) + 1, 0.0);
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (size_t j = 0; j < p.size(); ++j) {
      const float* k = b.k + j / kKeyBlock * kKeyBlock * b.head_dim + j % kKeyBlock;
      for (size_t e = 0; e < b.head_dim; ++e) {
        p[j] +=
            static_cast<double>(b.q[i * b.q_stride + e]) * static_cast<double>(k[e * kKeyBlock]);
      }
      p[j] *= static_cast<double>(b.scale);
      largest = std::max(largest, p[j]);
    }
    for (double& x : p) sum += x = std::exp(x - largest);
    for (size_t j = 0; j < p.size(); ++j) mass[j] += static_cast<float>(p[j] / sum);
  }
}

}  // namespace blend::kernels
#endif  // HWY_ONCE

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
#include "cpu/key_scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// mass += softmax(s) over the keys [begin, n_keys) and the sink, if any; s: padded to whole
// vectors, destroyed.
HWY_INLINE void add_softmax(float* HWY_RESTRICT s, size_t begin, size_t n_keys, size_t padded,
                            const float* sink, float* HWY_RESTRICT mass) {
  const hn::CappedTag<float, kKeyBlock> d;
  const size_t lanes = hn::Lanes(d);
  std::fill(s, s + begin, -std::numeric_limits<float>::infinity());
  std::fill(s + n_keys, s + padded, -std::numeric_limits<float>::infinity());
  auto m = hn::Load(d, s);
  for (size_t j = lanes; j < padded; j += lanes) m = hn::Max(m, hn::Load(d, s + j));
  m = hn::MaxOfLanes(d, m);
  if (sink != nullptr) m = hn::Max(hn::Set(d, *sink), m);
  auto sum = hn::Zero(d);
  for (size_t j = 0; j < padded; j += lanes) {
    const auto p = exp_nonpositive(d, hn::Sub(hn::Load(d, s + j), m));
    hn::Store(p, d, s + j);
    sum = hn::Add(sum, p);
  }
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  if (sink != nullptr) {
    total += hn::GetLane(exp_nonpositive(d, hn::Sub(hn::Set(d, *sink), m)));
  }
  const auto inverse = hn::Set(d, 1.0f / total);
  for (size_t j = 0; j < padded; j += lanes) {
    hn::Store(hn::MulAdd(hn::Load(d, s + j), inverse, hn::Load(d, mass + j)), d, mass + j);
  }
}

HWY_INLINE void cap_scores(float* HWY_RESTRICT s, size_t padded, float cap) {
  const hn::CappedTag<float, kKeyBlock> d;
  for (size_t j = 0; j < padded; j += hn::Lanes(d)) {
    hn::Store(soft_cap(d, hn::Load(d, s + j), cap), d, s + j);
  }
}

template <DType kType>
void attention_mass_as(const AttentionMassBlock& b, float* mass, float* scratch) {
  const auto* const k = static_cast<const Cached<kType>*>(b.k);
  const size_t stride = attention_mass_floats(b.pos[b.n_rows - 1]);
  for (size_t i = 0; i < b.n_rows;) {
    const size_t rows = b.n_rows - i >= kScoredRows ? kScoredRows : 1;
    const size_t n_keys = static_cast<size_t>(b.pos[i + rows - 1]) + 1;
    const float* const q = b.q + i * b.q_stride;
    if (rows == kScoredRows) {
      key_scores<kType, kScoredRows>(q, b.q_stride, k, b.head_dim, b.scale, n_keys, scratch,
                                     stride);
    } else {
      key_scores<kType, 1>(q, b.q_stride, k, b.head_dim, b.scale, n_keys, scratch, stride);
    }
    for (size_t r = 0; r < rows; ++r) {
      const size_t visible = static_cast<size_t>(b.pos[i + r]) + 1;
      const size_t padded = round_up(visible, kSlotMultiple);
      if (b.softcap != 0) cap_scores(scratch + r * stride, padded, b.softcap);
      add_softmax(scratch + r * stride, b.first_key(b.pos[i + r]), visible, padded, b.sink, mass);
    }
    i += rows;
  }
}

void AttentionMass(const AttentionMassBlock& b, float* mass, float* scratch) {
  with_cached(b.dtype,
              [&](auto type) { attention_mass_as<decltype(type)::value>(b, mass, scratch); });
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(AttentionMass);

size_t attention_mass_floats(size_t pos) { return round_up(pos + 1, kSlotMultiple); }

size_t attention_mass_scratch_floats(size_t pos) {
  return HWY_STATIC_DISPATCH(kScoredRows) * attention_mass_floats(pos);
}

void attention_mass(const AttentionMassBlock& block, float* mass, float* scratch) {
  if (block.n_rows != 0) HWY_DYNAMIC_DISPATCH(AttentionMass)(block, mass, scratch);
}

void attention_mass_ref(const AttentionMassBlock& b, float* mass) {
  std::vector<double> p;
  for (size_t i = 0; i < b.n_rows; ++i) {
    p.assign(static_cast<size_t>(b.pos[i]) + 1, 0.0);
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    const size_t begin = b.first_key(b.pos[i]);
    for (size_t j = begin; j < p.size(); ++j) {
      const size_t key = j / kKeyBlock * kKeyBlock * b.head_dim + j % kKeyBlock;
      for (size_t e = 0; e < b.head_dim; ++e) {
        p[j] += static_cast<double>(b.q[i * b.q_stride + e]) *
                static_cast<double>(cached_value(b.k, b.dtype, key + e * kKeyBlock));
      }
      p[j] *= static_cast<double>(b.scale);
      if (b.softcap != 0) {
        const auto cap = static_cast<double>(b.softcap);
        p[j] = cap * std::tanh(p[j] / cap);
      }
      largest = std::max(largest, p[j]);
    }
    if (b.sink != nullptr) {
      largest = std::max(largest, static_cast<double>(*b.sink));
      sum = std::exp(static_cast<double>(*b.sink) - largest);
    }
    for (size_t j = begin; j < p.size(); ++j) sum += p[j] = std::exp(p[j] - largest);
    for (size_t j = begin; j < p.size(); ++j) mass[j] += static_cast<float>(p[j] / sum);
  }
}

}  // namespace blend::kernels
#endif  // HWY_ONCE

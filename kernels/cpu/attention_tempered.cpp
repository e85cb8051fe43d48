#include "cpu/attention_tempered.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cpu/kv_layout.h"
#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attention_tempered.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

#include "cpu/exp-inl.h"
#include "cpu/key_scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Sum over the keys of one kind.
struct KindSum {
  float largest = -std::numeric_limits<float>::infinity();  // score
  float sum = 0.0f;                                         // of exp(score - largest)

  // log of the sum of exponentials; -inf where there is no key.
  float log() const { return sum == 0.0f ? largest : largest + std::log(sum); }
};

// s: scores of the keys [begin, n_keys) -> attention probabilities; 0 elsewhere up to `padded`.
// kind[j] is 1 for tempered keys and 0 for the others, of which the sink is one, if there is any.
// Returns the tempered keys' total probability.
HWY_INLINE float weigh_kinds(float* HWY_RESTRICT s, const float* HWY_RESTRICT kind, size_t begin,
                             size_t n_keys, size_t padded, const TemperedBlock& b) {
  const hn::CappedTag<float, kKeyBlock> d;
  const size_t lanes = hn::Lanes(d);
  const float kInf = std::numeric_limits<float>::infinity();
  const auto none = hn::Set(d, -kInf), zero = hn::Zero(d);
  const auto cooling = hn::Set(d, 1.0f / b.temperature);
  std::fill(s, s + begin, -kInf);
  std::fill(s + n_keys, s + padded, -kInf);
  KindSum tempered, other;
  auto most_tempered = none, most_other = none;
  for (size_t j = 0; j < padded; j += lanes) {
    const auto is_tempered = hn::Gt(hn::Load(d, kind + j), zero);
    const auto plain = hn::Load(d, s + j);
    const auto score = hn::IfThenElse(is_tempered, hn::Mul(plain, cooling), plain);
    hn::Store(score, d, s + j);
    most_tempered = hn::Max(most_tempered, hn::IfThenElse(is_tempered, score, none));
    most_other = hn::Max(most_other, hn::IfThenElse(is_tempered, none, score));
  }
  tempered.largest = hn::GetLane(hn::MaxOfLanes(d, most_tempered));
  other.largest = hn::GetLane(hn::MaxOfLanes(d, most_other));
  if (b.sink != nullptr) other.largest = std::max(*b.sink, other.largest);
  // The maximum of a kind without keys is never used.
  const auto from_tempered = hn::Set(d, std::max(tempered.largest, -3e38f));
  const auto from_other = hn::Set(d, std::max(other.largest, -3e38f));
  auto sum_tempered = zero, sum_other = zero;
  for (size_t j = 0; j < padded; j += lanes) {
    const auto is_tempered = hn::Gt(hn::Load(d, kind + j), zero);
    const auto from = hn::IfThenElse(is_tempered, from_tempered, from_other);
    const auto p = exp_nonpositive(d, hn::Sub(hn::Load(d, s + j), from));
    hn::Store(p, d, s + j);
    sum_tempered = hn::Add(sum_tempered, hn::IfThenElse(is_tempered, p, zero));
    sum_other = hn::Add(sum_other, hn::IfThenElse(is_tempered, zero, p));
  }
  tempered.sum = hn::GetLane(hn::SumOfLanes(d, sum_tempered));
  other.sum = hn::GetLane(hn::SumOfLanes(d, sum_other));
  if (b.sink != nullptr) other.sum += std::exp(*b.sink - other.largest);
  const float log_tempered = tempered.sum == 0.0f ? -kInf : b.sum_scale * tempered.log();
  const float log_other = other.log();
  const float most = std::max(log_tempered, log_other);
  const float share_tempered = std::exp(log_tempered - most);
  const float share_other = std::exp(log_other - most);
  const float total = share_tempered + share_other;
  const auto of_tempered =
      hn::Set(d, tempered.sum == 0.0f ? 0.0f : share_tempered / (total * tempered.sum));
  const auto of_other = hn::Set(d, other.sum == 0.0f ? 0.0f : share_other / (total * other.sum));
  for (size_t j = 0; j < padded; j += lanes) {
    const auto is_tempered = hn::Gt(hn::Load(d, kind + j), zero);
    const auto weight = hn::IfThenElse(is_tempered, of_tempered, of_other);
    hn::Store(hn::Mul(hn::Load(d, s + j), weight), d, s + j);
  }
  return share_tempered / total;
}

// o = sum over keys of p[j] v[j], in whole vectors of v_stride elements.
template <DType kType>
HWY_INLINE void sum_values(const float* HWY_RESTRICT p, size_t n_keys,
                           const Cached<kType>* HWY_RESTRICT v, size_t v_stride,
                           float* HWY_RESTRICT o) {
  const hn::CappedTag<float, 16> d;
  const size_t lanes = hn::Lanes(d);
  for (size_t e = 0; e < v_stride; e += lanes) {
    auto even = hn::Zero(d), odd = hn::Zero(d);
    const auto value = [&](size_t j) { return load_cached<kType>(d, v + j * v_stride + e); };
    size_t j = 0;
    for (; j + 2 <= n_keys; j += 2) {
      even = hn::MulAdd(hn::Set(d, p[j]), value(j), even);
      odd = hn::MulAdd(hn::Set(d, p[j + 1]), value(j + 1), odd);
    }
    if (j < n_keys) even = hn::MulAdd(hn::Set(d, p[j]), value(j), even);
    hn::Store(hn::Add(even, odd), d, o + e);
  }
}

// The same of the last n_values elements of keys; k: from the first of them on.
template <DType kType>
HWY_INLINE void sum_keys(const float* HWY_RESTRICT p, size_t n_keys,
                         const Cached<kType>* HWY_RESTRICT k, size_t head_dim, size_t n_values,
                         float* HWY_RESTRICT o) {
  const hn::CappedTag<float, kKeyBlock> d;
  const size_t lanes = hn::Lanes(d);
  for (size_t e = 0; e < n_values; ++e) {
    auto sum = hn::Zero(d);
    for (size_t j = 0; j < n_keys; j += lanes) {
      const Cached<kType>* const at =
          k + (j / kKeyBlock * head_dim + e) * kKeyBlock + j % kKeyBlock;
      // Slots past the last key may hold anything, a NaN too.
      const auto keys =
          hn::IfThenElseZero(hn::FirstN(d, HWY_MIN(n_keys - j, lanes)), load_cached<kType>(d, at));
      sum = hn::MulAdd(hn::Load(d, p + j), keys, sum);
    }
    o[e] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

template <DType kType>
void attention_tempered_as(const TemperedBlock& b, float* scratch) {
  const auto* const k = static_cast<const Cached<kType>*>(b.k);
  const auto* const v = static_cast<const Cached<kType>*>(b.v);
  const size_t stride = round_up(size_t{b.pos[b.n_rows - 1]} + 1, kSlotMultiple);
  float* const kind = scratch;                    // [stride]
  float* const o = kind + stride;                 // [head_dim], padded
  float* const s = o + round_up(b.head_dim, 16);  // [kScoredRows][stride]
  const size_t end = size_t{b.pos[b.n_rows - 1]} + 1;
  for (size_t j = 0; j < end; ++j) kind[j] = b.tempered[j] != 0 ? 1.0f : 0.0f;
  std::fill(kind + end, kind + stride, 0.0f);
  for (size_t i = 0; i < b.n_rows;) {
    const size_t rows = b.n_rows - i >= kScoredRows ? kScoredRows : 1;
    const size_t n_keys = size_t{b.pos[i + rows - 1]} + 1;
    const float* const q = b.q + i * b.stride;
    if (rows == kScoredRows) {
      key_scores<kType, kScoredRows>(q, b.stride, k, b.head_dim, b.scale, n_keys, s, stride);
    } else {
      key_scores<kType, 1>(q, b.stride, k, b.head_dim, b.scale, n_keys, s, stride);
    }
    for (size_t r = 0; r < rows; ++r) {
      float* const own = s + r * stride;
      const size_t visible = size_t{b.pos[i + r]} + 1;
      const size_t padded = round_up(visible, kSlotMultiple);
      if (b.softcap != 0) {
        const hn::CappedTag<float, kKeyBlock> d;
        for (size_t j = 0; j < padded; j += hn::Lanes(d)) {
          hn::Store(soft_cap(d, hn::Load(d, own + j), b.softcap), d, own + j);
        }
      }
      const float mass = weigh_kinds(own, kind, b.first_key(b.pos[i + r]), visible, padded, b);
      if (b.mass != nullptr) b.mass[i + r] = mass;
      const size_t n_values = b.head_dim - b.values_from;
      if (b.values_from != 0) {
        sum_keys<kType>(own, visible, k + b.values_from * kKeyBlock, b.head_dim, n_values, o);
      } else {
        sum_values<kType>(own, visible, v, b.v_stride, o);
      }
      std::copy(o, o + n_values, b.out + (i + r) * b.stride + b.values_from);
    }
    i += rows;
  }
}

void AttentionTempered(const TemperedBlock& b, float* scratch) {
  with_cached(b.dtype,
              [&](auto type) { attention_tempered_as<decltype(type)::value>(b, scratch); });
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(AttentionTempered);

size_t attention_tempered_scratch_floats(size_t pos, size_t head_dim) {
  const size_t row = round_up(pos + 1, kSlotMultiple);
  return row + round_up(head_dim, 16) + HWY_STATIC_DISPATCH(kScoredRows) * row;
}

void attention_tempered(const TemperedBlock& block, float* scratch) {
  if (block.n_rows != 0) HWY_DYNAMIC_DISPATCH(AttentionTempered)(block, scratch);
}

void attention_tempered_ref(const TemperedBlock& b) {
  std::vector<double> p, o(b.head_dim);
  for (size_t i = 0; i < b.n_rows; ++i) {
    p.assign(size_t{b.pos[i]} + 1, 0.0);
    double sums[2] = {b.sink == nullptr ? 0 : std::exp(static_cast<double>(*b.sink)), 0};
    for (size_t j = b.first_key(b.pos[i]); j < p.size(); ++j) {
      const size_t key = j / kKeyBlock * kKeyBlock * b.head_dim + j % kKeyBlock;
      for (size_t e = 0; e < b.head_dim; ++e) {
        p[j] += static_cast<double>(b.q[i * b.stride + e]) *
                static_cast<double>(cached_value(b.k, b.dtype, key + e * kKeyBlock));
      }
      p[j] *= static_cast<double>(b.scale);
      const auto cap = static_cast<double>(b.softcap);
      if (cap != 0) p[j] = cap * std::tanh(p[j] / cap);
      if (b.tempered[j] != 0) p[j] /= static_cast<double>(b.temperature);
      sums[b.tempered[j] != 0] += p[j] = std::exp(p[j]);
    }
    const double shares[2] = {
        sums[0], sums[1] == 0 ? 0 : std::pow(sums[1], static_cast<double>(b.sum_scale))};
    if (b.mass != nullptr) b.mass[i] = static_cast<float>(shares[1] / (shares[0] + shares[1]));
    std::fill(o.begin(), o.end(), 0.0);
    for (size_t j = b.first_key(b.pos[i]); j < p.size(); ++j) {
      const size_t kind = b.tempered[j] != 0 ? 1 : 0;
      const double w = p[j] / sums[kind] * shares[kind] / (shares[0] + shares[1]);
      const size_t key = j / kKeyBlock * kKeyBlock * b.head_dim + j % kKeyBlock;
      for (size_t e = b.values_from; e < b.head_dim; ++e) {
        o[e] += w * static_cast<double>(b.values_from != 0
                                            ? cached_value(b.k, b.dtype, key + e * kKeyBlock)
                                            : cached_value(b.v, b.dtype, j * b.v_stride + e));
      }
    }
    for (size_t e = b.values_from; e < b.head_dim; ++e) {
      b.out[i * b.stride + e] = static_cast<float>(o[e]);
    }
  }
}

}  // namespace blend::kernels
#endif  // HWY_ONCE

#include "cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attention.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

#include "cpu/exp-inl.h"
#include "cpu/half-inl.h"
#include "cpu/lanes-inl.h"

#ifndef BLEND_KERNELS_ATTENTION_ONCE  // shared by all targets
#define BLEND_KERNELS_ATTENTION_ONCE
namespace blend::kernels {

// Keys of a tile: K and V of 256 keys and 64..128 elements (128-256 KiB) stay in L2 while the
// panels of a block go over them.
inline constexpr size_t kTile = 256;
// Query vectors that go through a tile together; their scores (12 KiB) stay in L1.
inline constexpr size_t kPanel = 12;
// Query vectors of a block: how often a tile is used before the next one is read.
inline constexpr size_t kBlockVectors = 96;

}  // namespace blend::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Register blocks: as many sums as the target has registers for, besides the operands.
constexpr bool kManyRegisters = kLanes == 16 || HWY_ARCH_ARM_A64;  // 32 of them
constexpr size_t kScoreVectors = kLanes >= 8 ? 2 : 16 / kLanes;    // of keys
// On Arm an element of a row is a register too, and compilers load those of all rows first.
constexpr size_t kFewLanesRows = kManyRegisters ? 4 : 2;
constexpr size_t kScoreRows = kLanes == 16 ? 12 : kLanes == 8 ? 6 : kFewLanesRows;
constexpr size_t kKeyStep = kScoreVectors * kLanes;                 // 16 or 32 keys
constexpr size_t kSumVectors = kManyRegisters ? 4 : kScoreVectors;  // of elements of V
constexpr size_t kSumRows = kLanes >= 8 ? 6 : kFewLanesRows;
// Where keys are values too: rows and elements of keys, whose sums are of whole vectors.
constexpr size_t kKeyRows = kManyRegisters ? 6 : 2;
constexpr size_t kKeyElements = 4;
// With one row or two these would be too few sums to hide the latency of a multiply-add: more
// vectors.
constexpr size_t wider(size_t rows) { return kLanes < 8 || rows > 2 ? 1 : 4 / rows; }

// s[i][j] = q[i] . k[j] for kRows vectors and the keys [j, n_keys) that are a whole number of
// kWide vectors. Returns where it ended.
template <DType kType, size_t kRows, size_t kWide>
HWY_INLINE size_t some_scores(const float* HWY_RESTRICT q, size_t head_dim,
                              const Cached<kType>* HWY_RESTRICT k, size_t j, size_t n_keys,
                              float* HWY_RESTRICT s) {
  const D d;
  for (; j + kWide * kLanes <= n_keys; j += kWide * kLanes) {
    const Cached<kType>* block[kWide];
    V sum[kRows][kWide];
    BLEND_UNROLL
    for (size_t v = 0; v < kWide; ++v) {
      const size_t key = j + v * kLanes;
      block[v] = k + key / kKeyBlock * kKeyBlock * head_dim + key % kKeyBlock;
      BLEND_UNROLL
      for (size_t i = 0; i < kRows; ++i) sum[i][v] = hn::Zero(d);
    }
    for (size_t e = 0; e < head_dim; ++e) {
      V keys[kWide];
      BLEND_UNROLL
      for (size_t v = 0; v < kWide; ++v) {
        keys[v] = load_cached<kType>(d, block[v] + e * kKeyBlock);
      }
      BLEND_UNROLL
      for (size_t i = 0; i < kRows; ++i) {
        const V qe = hn::Set(d, q[i * head_dim + e]);
        BLEND_UNROLL
        for (size_t v = 0; v < kWide; ++v) sum[i][v] = hn::MulAdd(qe, keys[v], sum[i][v]);
      }
    }
    BLEND_UNROLL
    for (size_t i = 0; i < kRows; ++i) {
      BLEND_UNROLL
      for (size_t v = 0; v < kWide; ++v) {
        hn::Store(sum[i][v], d, s + i * kTile + j + v * kLanes);
      }
    }
  }
  return j;
}

// The same for n_keys keys, rounded up to kKeyStep.
template <DType kType, size_t kRows>
void scores(const float* q, size_t head_dim, const Cached<kType>* k, size_t n_keys, float* s) {
  n_keys = round_up(n_keys, kKeyStep);
  constexpr size_t kWide = wider(kRows) * kScoreVectors;
  size_t j = some_scores<kType, kRows, kWide>(q, head_dim, k, 0, n_keys, s);
  if constexpr (kWide > kScoreVectors) {
    j = some_scores<kType, kRows, kScoreVectors>(q, head_dim, k, j, n_keys, s);
  }
}

// o[i] = o[i] * alpha[i] + sum over keys of p[i][key] * v[key], kColumns vectors of elements wide.
template <DType kType, size_t kRows, size_t kColumns>
HWY_INLINE void weigh(const float* HWY_RESTRICT p, size_t n_keys,
                      const Cached<kType>* HWY_RESTRICT v, size_t v_stride,
                      const float* HWY_RESTRICT alpha, float* HWY_RESTRICT o) {
  const D d;
  V sum[kRows][kColumns];
  BLEND_UNROLL
  for (size_t i = 0; i < kRows; ++i) {
    const V a = hn::Set(d, alpha[i]);
    BLEND_UNROLL
    for (size_t c = 0; c < kColumns; ++c) {
      sum[i][c] = hn::Mul(a, hn::Load(d, o + i * v_stride + c * kLanes));
    }
  }
  for (size_t j = 0; j < n_keys; ++j) {
    V row[kColumns];
    BLEND_UNROLL
    for (size_t c = 0; c < kColumns; ++c) {
      row[c] = load_cached<kType>(d, v + j * v_stride + c * kLanes);
    }
    BLEND_UNROLL
    for (size_t i = 0; i < kRows; ++i) {
      const V pj = hn::Set(d, p[i * kTile + j]);
      BLEND_UNROLL
      for (size_t c = 0; c < kColumns; ++c) sum[i][c] = hn::MulAdd(pj, row[c], sum[i][c]);
    }
  }
  BLEND_UNROLL
  for (size_t i = 0; i < kRows; ++i) {
    BLEND_UNROLL
    for (size_t c = 0; c < kColumns; ++c) {
      hn::Store(sum[i][c], d, o + i * v_stride + c * kLanes);
    }
  }
}

// The same where elements of keys are values, kWide of them from `k` on: lanes are keys here, so a
// tile's sum is across lanes. o: rows at `stride`.
template <DType kType, size_t kRows, size_t kWide>
HWY_INLINE void weigh_keys(const float* HWY_RESTRICT p, size_t n_keys,
                           const Cached<kType>* HWY_RESTRICT k, size_t head_dim,
                           const float* HWY_RESTRICT alpha, float* HWY_RESTRICT o, size_t stride) {
  const D d;
  V sum[kRows][kWide];
  BLEND_UNROLL
  for (size_t i = 0; i < kRows; ++i) {
    BLEND_UNROLL
    for (size_t e = 0; e < kWide; ++e) sum[i][e] = hn::Zero(d);
  }
  for (size_t j = 0; j < n_keys; j += kLanes) {
    const Cached<kType>* const block = k + j / kKeyBlock * kKeyBlock * head_dim + j % kKeyBlock;
    // Slots past the last key may hold anything, a NaN too.
    const auto seen = hn::FirstN(d, HWY_MIN(n_keys - j, kLanes));
    V pj[kRows];
    BLEND_UNROLL
    for (size_t i = 0; i < kRows; ++i) pj[i] = hn::Load(d, p + i * kTile + j);
    BLEND_UNROLL
    for (size_t e = 0; e < kWide; ++e) {
      const V keys = hn::IfThenElseZero(seen, load_cached<kType>(d, block + e * kKeyBlock));
      BLEND_UNROLL
      for (size_t i = 0; i < kRows; ++i) sum[i][e] = hn::MulAdd(pj[i], keys, sum[i][e]);
    }
  }
  BLEND_UNROLL
  for (size_t i = 0; i < kRows; ++i) {
    BLEND_UNROLL
    for (size_t e = 0; e < kWide; ++e) {
      float& to = o[i * stride + e];
      to = to * alpha[i] + hn::GetLane(hn::SumOfLanes(d, sum[i][e]));
    }
  }
}

template <DType kType, size_t kRows>
void weigh_all_keys(const float* p, size_t n_keys, const Cached<kType>* k, size_t head_dim,
                    size_t n_values, const float* alpha, float* o) {
  size_t e = 0;
  for (; e + kKeyElements <= n_values; e += kKeyElements) {
    weigh_keys<kType, kRows, kKeyElements>(p, n_keys, k + e * kKeyBlock, head_dim, alpha, o + e,
                                           n_values);
  }
  for (; e < n_values; ++e) {
    weigh_keys<kType, kRows, 1>(p, n_keys, k + e * kKeyBlock, head_dim, alpha, o + e, n_values);
  }
}

template <DType kType, size_t kRows>
void weigh_all_columns(const float* p, size_t n_keys, const Cached<kType>* v, size_t v_stride,
                       const float* alpha, float* o) {
  size_t e = 0;
  if constexpr (constexpr size_t kWide = wider(kRows) * kSumVectors; kWide > kSumVectors) {
    for (; e + kWide * kLanes <= v_stride; e += kWide * kLanes) {
      weigh<kType, kRows, kWide>(p, n_keys, v + e, v_stride, alpha, o + e);
    }
  }
  for (; e + kSumVectors * kLanes <= v_stride; e += kSumVectors * kLanes) {
    weigh<kType, kRows, kSumVectors>(p, n_keys, v + e, v_stride, alpha, o + e);
  }
  if constexpr (kSumVectors * kLanes > 16) {  // the padding is to 16 elements
    for (; e < v_stride; e += 16) {
      weigh<kType, kRows, 16 / kLanes>(p, n_keys, v + e, v_stride, alpha, o + e);
    }
  }
}

// Calls fn(a constant number of rows, the first row): kMost rows at a time, then the rest one by
// one.
template <size_t kMost, class Fn>
HWY_INLINE void by_rows(size_t n, const Fn& fn) {
  size_t i = 0;
  for (; i + kMost <= n; i += kMost) fn(std::integral_constant<size_t, kMost>(), i);
  const auto rest = [&]<size_t... kLess>(std::index_sequence<kLess...>) HWY_ATTR {
    (void)((n - i == kLess + 1 && (fn(std::integral_constant<size_t, kLess + 1>(), i), true)) ||
           ...);
  };
  rest(std::make_index_sequence<kMost - 1>());
}

template <DType kType>
HWY_INLINE void panel_scores(const float* q, size_t n, size_t head_dim, const Cached<kType>* k,
                             size_t n_keys, float* s) {
  by_rows<kScoreRows>(n, [&](auto rows, size_t i) HWY_ATTR {
    scores<kType, decltype(rows)::value>(q + i * head_dim, head_dim, k, n_keys, s + i * kTile);
  });
}

template <DType kType>
HWY_INLINE void panel_weigh(const float* p, size_t n, size_t n_keys, const Cached<kType>* v,
                            size_t v_stride, const float* alpha, float* o) {
  by_rows<kSumRows>(n, [&](auto rows, size_t i) HWY_ATTR {
    weigh_all_columns<kType, decltype(rows)::value>(p + i * kTile, n_keys, v, v_stride, alpha + i,
                                                    o + i * v_stride);
  });
}

// k: from the first value's element on.
template <DType kType>
HWY_INLINE void panel_weigh_keys(const float* p, size_t n, size_t n_keys, const Cached<kType>* k,
                                 size_t head_dim, size_t n_values, const float* alpha, float* o) {
  by_rows<kKeyRows>(n, [&](auto rows, size_t i) HWY_ATTR {
    weigh_all_keys<kType, decltype(rows)::value>(p + i * kTile, n_keys, k, head_dim, n_values,
                                                 alpha + i, o + i * n_values);
  });
}

// Scores -> exp(score - maximum so far); alpha is the factor by which earlier tiles shrink.
struct Softmax {
  float* largest;  // [vectors] so far
  float* sum;      // [vectors] so far
};

// hidden[i]: keys at the tile's beginning that vector i does not see; it sees at least one.
HWY_INLINE void panel_softmax(float* s, size_t n, const size_t* hidden, const size_t* visible,
                              size_t n_keys, Softmax state, float* alpha) {
  const D d;
  const size_t padded = round_up(n_keys, kKeyStep);
  const float kInf = std::numeric_limits<float>::infinity();
  HWY_ALIGN float largest[16];
  for (size_t i = 0; i < n; ++i) {
    float* row = s + i * kTile;
    for (size_t j = 0; j < hidden[i]; ++j) row[j] = -kInf;
    for (size_t j = visible[i]; j < padded; ++j) row[j] = -kInf;
    V m = hn::Load(d, row);
    for (size_t j = kLanes; j < padded; j += kLanes) m = hn::Max(m, hn::Load(d, row + j));
    largest[i] = std::max(state.largest[i], hn::GetLane(hn::MaxOfLanes(d, m)));
    alpha[i] = state.largest[i] - largest[i];
  }
  for (size_t i = 0; i < n; i += kLanes) {
    hn::Store(exp_nonpositive(d, hn::Load(d, alpha + i)), d, alpha + i);
  }
  for (size_t i = 0; i < n; ++i) {
    float* row = s + i * kTile;
    const V m = hn::Set(d, largest[i]);
    V sum = hn::Zero(d);
    for (size_t j = 0; j < padded; j += kLanes) {
      const V p = exp_nonpositive(d, hn::Sub(hn::Load(d, row + j), m));
      hn::Store(p, d, row + j);
      sum = hn::Add(sum, p);
    }
    state.largest[i] = largest[i];
    state.sum[i] = state.sum[i] * alpha[i] + hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

// Scores s -> cap * tanh(s / cap).
HWY_INLINE void panel_softcap(float* s, size_t n, size_t n_keys, float cap) {
  const D d;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < round_up(n_keys, kKeyStep); j += kLanes) {
      float* const at = s + i * kTile + j;
      hn::Store(soft_cap(d, hn::Load(d, at), cap), d, at);
    }
  }
}

template <DType kType>
void attention_as(const AttentionBlock& b, float* scratch) {
  const auto* const all_k = static_cast<const Cached<kType>*>(b.k);
  const auto* const all_v = static_cast<const Cached<kType>*>(b.v);
  const size_t n = b.n_rows * b.group;  // query vectors, row by row
  const size_t padded = round_up(n, 16);
  const bool in_keys = b.values_from != 0;
  const size_t o_stride = in_keys ? b.value_dim() : b.v_stride;
  float* s = scratch;                 // [kPanel][kTile]
  float* alpha = s + kPanel * kTile;  // [16]
  float* largest = alpha + 16;        // [n]
  float* sum = largest + padded;      // [n]
  float* o = sum + padded;            // [n][o_stride]
  float* q = o + n * o_stride;        // [n][head_dim]

  for (size_t i = 0; i < n; ++i) {
    const float* from = b.q + i / b.group * b.q_stride + i % b.group * b.head_dim;
    for (size_t e = 0; e < b.head_dim; ++e) q[i * b.head_dim + e] = from[e] * b.scale;
    // A sink is a score that came before all others.
    largest[i] =
        b.sinks == nullptr ? -std::numeric_limits<float>::infinity() : b.sinks[i % b.group];
    sum[i] = b.sinks == nullptr ? 0.0f : 1.0f;
  }
  std::fill(o, o + n * o_stride, 0.0f);
  std::fill(alpha, alpha + 16, 0.0f);

  const size_t end = static_cast<size_t>(b.pos[b.n_rows - 1]) + 1;
  // Rows [first_row, last_row) see keys of the tile.
  size_t first_row = 0, last_row = 0;
  for (size_t tile = b.first_key(b.pos[0]) / kTile * kTile; tile < end; tile += kTile) {
    while (b.pos[first_row] < tile) ++first_row;
    while (last_row < b.n_rows && b.first_key(b.pos[last_row]) < tile + kTile) ++last_row;
    const size_t last = last_row * b.group;
    for (size_t i = first_row * b.group; i < last; i += kPanel) {
      const size_t vectors = std::min(kPanel, last - i);
      size_t hidden[kPanel], visible[kPanel];  // each vector sees the keys [hidden, visible)
      for (size_t j = 0; j < vectors; ++j) {
        const uint32_t pos = b.pos[(i + j) / b.group];
        hidden[j] = std::max(b.first_key(pos), tile) - tile;
        visible[j] = std::min(kTile, pos + 1 - tile);
      }
      const size_t n_keys = std::min(kTile, b.pos[(i + vectors - 1) / b.group] + 1 - tile);
      panel_scores<kType>(q + i * b.head_dim, vectors, b.head_dim, all_k + tile * b.head_dim,
                          n_keys, s);
      if (b.softcap != 0) panel_softcap(s, vectors, n_keys, b.softcap);
      panel_softmax(s, vectors, hidden, visible, n_keys, {largest + i, sum + i}, alpha);
      if (in_keys) {
        panel_weigh_keys<kType>(s, vectors, n_keys,
                                all_k + tile * b.head_dim + b.values_from * kKeyBlock, b.head_dim,
                                o_stride, alpha, o + i * o_stride);
        continue;
      }
      panel_weigh<kType>(s, vectors, n_keys, all_v + tile * b.v_stride, b.v_stride, alpha,
                         o + i * b.v_stride);
    }
  }

  for (size_t i = 0; i < n; ++i) {
    float* to = b.out + i / b.group * b.out_stride + i % b.group * b.head_dim + b.values_from;
    const float inverse = 1.0f / sum[i];
    for (size_t e = 0; e < b.value_dim(); ++e) to[e] = o[i * o_stride + e] * inverse;
  }
}

void Attention(const AttentionBlock& b, float* scratch) {
  with_cached(b.dtype, [&](auto type) { attention_as<decltype(type)::value>(b, scratch); });
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(Attention);

size_t attention_rows_per_block(size_t group) {
  return std::max<size_t>(1, kBlockVectors / std::max<size_t>(1, group));
}

size_t attention_scratch_floats(size_t n_rows, size_t group, size_t head_dim) {
  const size_t n = n_rows * group;
  return round_up(
      kPanel * kTile + 16 + 2 * round_up(n, 16) + n * (round_up(head_dim, 16) + head_dim), 16);
}

void attention(const AttentionBlock& block, float* scratch) {
  if (block.n_rows != 0) HWY_DYNAMIC_DISPATCH(Attention)(block, scratch);
}

void attention_ref(const AttentionBlock& b) {
  std::vector<double> p, o(b.head_dim);
  for (size_t i = 0; i < b.n_rows * b.group; ++i) {
    const float* q = b.q + i / b.group * b.q_stride + i % b.group * b.head_dim;
    const size_t n = static_cast<size_t>(b.pos[i / b.group]) + 1;
    const size_t begin = b.first_key(b.pos[i / b.group]);
    p.assign(n, 0);
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (size_t j = begin; j < n; ++j) {
      const size_t key = j / kKeyBlock * kKeyBlock * b.head_dim + j % kKeyBlock;
      for (size_t e = 0; e < b.head_dim; ++e) {
        p[j] += static_cast<double>(q[e]) *
                static_cast<double>(cached_value(b.k, b.dtype, key + e * kKeyBlock));
      }
      p[j] *= static_cast<double>(b.scale);
      if (b.softcap != 0) {
        const auto cap = static_cast<double>(b.softcap);
        p[j] = cap * std::tanh(p[j] / cap);
      }
      largest = std::max(largest, p[j]);
    }
    if (b.sinks != nullptr) {
      const auto sink = static_cast<double>(b.sinks[i % b.group]);
      largest = std::max(largest, sink);
      sum = std::exp(sink - largest);
    }
    std::fill(o.begin(), o.end(), 0.0);
    for (size_t j = begin; j < n; ++j) {
      const double w = std::exp(p[j] - largest);
      sum += w;
      const size_t key = j / kKeyBlock * kKeyBlock * b.head_dim + j % kKeyBlock;
      for (size_t e = b.values_from; e < b.head_dim; ++e) {
        o[e] += w * static_cast<double>(b.values_from != 0
                                            ? cached_value(b.k, b.dtype, key + e * kKeyBlock)
                                            : cached_value(b.v, b.dtype, j * b.v_stride + e));
      }
    }
    float* to = b.out + i / b.group * b.out_stride + i % b.group * b.head_dim;
    for (size_t e = b.values_from; e < b.head_dim; ++e) to[e] = static_cast<float>(o[e] / sum);
  }
}

}  // namespace blend::kernels
#endif  // HWY_ONCE

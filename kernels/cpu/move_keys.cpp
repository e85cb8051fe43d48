#include "cpu/move_keys.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/move_keys.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

#include "cpu/convert.h"
#include "cpu/half-inl.h"
#include "cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {

// One block of destination slots. Its sixteen keys come from one source block, or from the end of
// one and the beginning of the next:
//
//   source   ... | B: . . . x x x x x | B+1: x x x . . . | ...      offset = 3 of 8
//   dest           D: x x x x x x x x
//
// D may be B or B+1: all keys of an element are loaded before any is stored.
template <DType kType>
class BlockMove {
 public:
  using Element = Cached<kType>;

  BlockMove(const KeyMove& move, size_t block, const Element* src, Element* dst)
      : dst_(dst + block * kKeyBlock * move.turn.head_dim) {
    const size_t begin = block * kKeyBlock;
    low_ = std::max(move.to, begin) - begin;
    high_ = std::min(move.to + move.n, begin + kKeyBlock) - begin;
    // Source of lane 0; before the cache's first slot where lane 0 is not moved.
    const int64_t first = static_cast<int64_t>(begin + move.from) - static_cast<int64_t>(move.to);
    const int64_t source = first >= 0 ? first / kBlock : -((kBlock - 1 - first) / kBlock);
    offset_ = static_cast<size_t>(first - source * kBlock);
    // A block that no lane needs may not exist.
    const auto stride = static_cast<int64_t>(kKeyBlock * move.turn.head_dim);
    if (offset_ + low_ < kKeyBlock) lower_ = src + source * stride;
    if (offset_ + high_ > kKeyBlock) upper_ = src + (source + 1) * stride;
  }

  // All sixteen are moved, so that the blocks they come from exist.
  bool whole() const { return low_ == 0 && high_ == kKeyBlock; }

  // ---- Whole blocks: a vector of keys from `lane` on, for one element

  HWY_INLINE V load(size_t element, size_t lane) const {
    const D d;
    // Reads as if B went on after its end, and B+1 had begun before its start. These lanes hold a
    // neighbouring element of either, and are not used.
    const Element* const from = lower_ + element * kKeyBlock + offset_ + lane;
    if (offset_ == 0) return load_cached<kType>(d, from);
    const hn::Rebind<Element, D> de;
    const auto n = static_cast<int64_t>(kKeyBlock) - static_cast<int64_t>(offset_ + lane);
    const auto in_lower = hn::FirstN(de, static_cast<size_t>(std::max<int64_t>(n, 0)));
    const Element* const next = upper_ + element * kKeyBlock + offset_ + lane - kKeyBlock;
    const auto keys = hn::IfThenElse(in_lower, hn::LoadU(de, from), hn::LoadU(de, next));
    if constexpr (kType == DType::f32) {
      return keys;
    } else {
      return widen_16<kType>(d, keys);
    }
  }
  // A key that a rotation takes past 16 bits' range shows as an infinity in its row's scores.
  HWY_INLINE void store(V keys, size_t element, size_t lane) const {
    const D d;
    Element* const out = dst_ + element * kKeyBlock + lane;
    if constexpr (kType == DType::f32) {
      hn::StoreU(keys, d, out);
    } else {
      hn::StoreU(round_to_16<kType>(d, keys), hn::Rebind<uint16_t, D>(), out);
    }
  }

  // ---- Blocks at the ends of a move

  // window: B | B+1 of one element, so that the sixteen are at offset().
  HWY_INLINE void load(size_t element, float* window) const {
    const D d;
    for (size_t i = 0; i < kKeyBlock; i += kLanes) {
      if (lower_ != nullptr) {
        hn::StoreU(load_cached<kType>(d, lower_ + element * kKeyBlock + i), d, window + i);
      }
      if (upper_ != nullptr) {
        hn::StoreU(load_cached<kType>(d, upper_ + element * kKeyBlock + i), d,
                   window + kKeyBlock + i);
      }
    }
  }
  HWY_INLINE void store(size_t element, const float* keys) const {
    Element* const out = dst_ + element * kKeyBlock;
    if constexpr (kType != DType::f32) {
      (void)encode_16<kType>(keys + low_, high_ - low_, reinterpret_cast<std::byte*>(out + low_));
    } else {
      for (size_t i = low_; i < high_; ++i) out[i] = keys[i];
    }
  }
  size_t offset() const { return offset_; }

 private:
  static constexpr auto kBlock = static_cast<int64_t>(kKeyBlock);
  Element* dst_;
  const Element* lower_ = nullptr;
  const Element* upper_ = nullptr;
  size_t low_ = 0, high_ = 0;  // lanes that are moved
  size_t offset_ = 0;
};

// Whole blocks: every vector of a pair of elements is loaded before one is stored.
template <DType kType>
void move_whole(const KeyMove& move, float sin_sign, const BlockMove<kType>& m) {
  constexpr size_t kVectors = kKeyBlock / kLanes;
  const D d;
  const size_t half = move.turn.rotary_dim / 2;
  const bool halves = move.turn.pairs == RopePairs::halves;
  for (size_t e = 0; e < half; ++e) {
    const size_t first = halves ? e : 2 * e, second = halves ? e + half : 2 * e + 1;
    const auto c = hn::Set(d, move.turn.cos[e]), s = hn::Set(d, sin_sign * move.turn.sin[e]);
    V a[kVectors], b[kVectors];
    BLEND_UNROLL
    for (size_t i = 0; i < kVectors; ++i) {
      a[i] = m.load(first, i * kLanes);
      b[i] = m.load(second, i * kLanes);
    }
    BLEND_UNROLL
    for (size_t i = 0; i < kVectors; ++i) {
      m.store(hn::Sub(hn::Mul(a[i], c), hn::Mul(b[i], s)), first, i * kLanes);
      m.store(hn::MulAdd(a[i], s, hn::Mul(b[i], c)), second, i * kLanes);
    }
  }
  for (size_t e = move.turn.rotary_dim; e < move.turn.head_dim; ++e) {
    V a[kVectors];
    BLEND_UNROLL
    for (size_t i = 0; i < kVectors; ++i) a[i] = m.load(e, i * kLanes);
    BLEND_UNROLL
    for (size_t i = 0; i < kVectors; ++i) m.store(a[i], e, i * kLanes);
  }
}

template <DType kType>
void move_block(const KeyMove& move, float sin_sign, size_t block, const Cached<kType>* src,
                Cached<kType>* dst) {
  const BlockMove<kType> m(move, block, src, dst);
  if (m.whole()) return move_whole<kType>(move, sin_sign, m);
  const D d;
  const size_t half = move.turn.rotary_dim / 2;
  const bool halves = move.turn.pairs == RopePairs::halves;
  HWY_ALIGN float a[2 * kKeyBlock] = {};
  HWY_ALIGN float b[2 * kKeyBlock] = {};
  HWY_ALIGN float x[kKeyBlock], y[kKeyBlock];
  for (size_t e = 0; e < half; ++e) {
    const size_t first = halves ? e : 2 * e, second = halves ? e + half : 2 * e + 1;
    m.load(first, a);
    m.load(second, b);
    const auto c = hn::Set(d, move.turn.cos[e]), s = hn::Set(d, sin_sign * move.turn.sin[e]);
    for (size_t i = 0; i < kKeyBlock; i += hn::Lanes(d)) {
      const auto va = hn::LoadU(d, a + m.offset() + i), vb = hn::LoadU(d, b + m.offset() + i);
      hn::StoreU(hn::Sub(hn::Mul(va, c), hn::Mul(vb, s)), d, x + i);
      hn::StoreU(hn::MulAdd(va, s, hn::Mul(vb, c)), d, y + i);
    }
    m.store(first, x);
    m.store(second, y);
  }
  for (size_t e = move.turn.rotary_dim; e < move.turn.head_dim; ++e) {
    m.load(e, a);
    m.store(e, a + m.offset());
  }
}

template <DType kType>
void move_keys_as(const KeyMove& move, float sin_sign, const Cached<kType>* src,
                  Cached<kType>* dst) {
  const size_t begin = move.to / kKeyBlock, end = (move.to + move.n - 1) / kKeyBlock + 1;
  // In the direction of the move, so that no key is overwritten before it was read.
  if (move.to <= move.from) {
    for (size_t block = begin; block < end; ++block) {
      move_block<kType>(move, sin_sign, block, src, dst);
    }
  } else {
    for (size_t block = end; block-- > begin;) {
      move_block<kType>(move, sin_sign, block, src, dst);
    }
  }
}

void MoveKeys(const KeyMove& move, float sin_sign, DType dtype, const void* src, void* dst) {
  with_cached(dtype, [&](auto type) {
    constexpr DType kType = decltype(type)::value;
    move_keys_as<kType>(move, sin_sign, static_cast<const Cached<kType>*>(src),
                        static_cast<Cached<kType>*>(dst));
  });
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(MoveKeys);

void move_keys(const KeyMove& move, float sin_sign, DType dtype, const void* src, void* dst) {
  if (move.n > 0) HWY_DYNAMIC_DISPATCH(MoveKeys)(move, sin_sign, dtype, src, dst);
}

void move_keys_ref(const KeyMove& move, float sin_sign, DType dtype, const void* src, void* dst) {
  const size_t head_dim = move.turn.head_dim, half = move.turn.rotary_dim / 2;
  const auto at = [&](size_t slot, size_t e) {
    return (slot / kKeyBlock * head_dim + e) * kKeyBlock + slot % kKeyBlock;
  };
  std::vector<float> keys(move.n * head_dim);  // all are read before any is written
  for (size_t i = 0; i < move.n; ++i) {
    for (size_t e = 0; e < head_dim; ++e) {
      keys[i * head_dim + e] = cached_value(src, dtype, at(move.from + i, e));
    }
  }
  for (size_t i = 0; i < move.n; ++i) {
    float* const key = keys.data() + i * head_dim;
    for (size_t p = 0; p < half; ++p) {
      const size_t first = move.turn.pairs == RopePairs::halves ? p : 2 * p;
      const size_t second = move.turn.pairs == RopePairs::halves ? p + half : 2 * p + 1;
      const double a = static_cast<double>(key[first]), b = static_cast<double>(key[second]);
      const double c = static_cast<double>(move.turn.cos[p]);
      const double s = static_cast<double>(sin_sign) * static_cast<double>(move.turn.sin[p]);
      key[first] = static_cast<float>(a * c - b * s);
      key[second] = static_cast<float>(a * s + b * c);
    }
    const auto size = static_cast<size_t>(dtype_size(dtype));
    for (size_t e = 0; e < head_dim; ++e) {
      (void)encode_ref(key + e, 1, dtype, static_cast<std::byte*>(dst) + at(move.to + i, e) * size);
    }
  }
}

}  // namespace blend::kernels
#endif  // HWY_ONCE

#include "cpu/gemm_pack.h"

#include <algorithm>
#include <cstring>

#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/gemm_pack.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Four elements of four rows at a time: loads, a transposition in registers, stores.
using D4 = hn::FixedTag<uint32_t, 4>;
using V4 = hn::Vec<D4>;

// Writes kWrite of the four rows' elements, 2 or 4.
template <size_t kWrite>
HWY_INLINE void four_by_four(V4 r0, V4 r1, V4 r2, V4 r3, size_t stride, uint32_t* out) {
  const D4 d;
  const hn::Repartition<uint64_t, D4> d64;
  const auto pairs = [&](V4 a, V4 b)
                         HWY_ATTR { return hn::BitCast(d64, hn::InterleaveLower(d, a, b)); };
  const auto upper = [&](V4 a, V4 b)
                         HWY_ATTR { return hn::BitCast(d64, hn::InterleaveUpper(d, a, b)); };
  const auto a01 = pairs(r0, r1), a23 = pairs(r2, r3);  // elements 0 and 1
  const auto b01 = upper(r0, r1), b23 = upper(r2, r3);  // elements 2 and 3
  const auto store = [&](auto v, size_t e) HWY_ATTR {
    const V4 four = hn::BitCast(d, v);
    if constexpr (kWrite == 4) {
      hn::StoreU(four, d, out + e * stride);
    } else {
      const hn::Half<D4> half;
      hn::StoreU(hn::LowerHalf(half, four), half, out + e * stride);
    }
  };
  store(hn::InterleaveLower(d64, a01, a23), 0);
  store(hn::InterleaveUpper(d64, a01, a23), 1);
  store(hn::InterleaveLower(d64, b01, b23), 2);
  store(hn::InterleaveUpper(d64, b01, b23), 3);
}

// Elements [first, last) of up to four rows, kWrite columns of out.
template <size_t kWrite>
HWY_INLINE void some_rows(const uint32_t* rows, size_t n_rows, size_t k, size_t first, size_t last,
                          size_t stride, uint32_t* out) {
  const D4 d;
  const auto row = [&](size_t i, size_t e) HWY_ATTR {
    return i < n_rows ? hn::LoadU(d, rows + i * k + e) : hn::Zero(d);
  };
  size_t e = first;
  for (; e + 4 <= last; e += 4) {
    four_by_four<kWrite>(row(0, e), row(1, e), row(2, e), row(3, e), stride, out + e * stride);
  }
  for (; e < last; ++e) {
    for (size_t i = 0; i < kWrite; ++i) out[e * stride + i] = i < n_rows ? rows[i * k + e] : 0;
  }
}

void Interleave(const uint32_t* rows, size_t n_rows, size_t k, size_t width, size_t stride,
                uint32_t* out) {
  // The output for this many elements stays in the first-level cache until all rows are there,
  // and each row is read for long enough to be prefetched.
  constexpr size_t kPart = 256;
  for (size_t first = 0; first < k; first += kPart) {
    const size_t last = std::min(k, first + kPart);
    size_t i = 0;
    const auto rest = [&] { return n_rows - std::min(n_rows, i); };
    for (; i + 4 <= width; i += 4) {
      some_rows<4>(rows + i * k, rest(), k, first, last, stride, out + i);
    }
    for (; i + 2 <= width; i += 2) {
      some_rows<2>(rows + i * k, rest(), k, first, last, stride, out + i);
    }
    for (; i < width; ++i) {
      for (size_t e = first; e < last; ++e) out[e * stride + i] = rest() > 0 ? rows[i * k + e] : 0;
    }
  }
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(Interleave);

void interleave_rows(const void* rows, size_t n_rows, size_t k, size_t width, size_t stride,
                     void* out) {
  HWY_DYNAMIC_DISPATCH(Interleave)
  (static_cast<const uint32_t*>(rows), n_rows, k, width, stride, static_cast<uint32_t*>(out));
}

// Used only when a model is opened: four stores to neighbours rather than vectors.
void interleave_rows_16(const void* rows, size_t n_rows, size_t k, size_t width, size_t stride,
                        uint16_t* out) {
  const auto* const from = static_cast<const std::byte*>(rows);
  const auto element = [&](size_t i, size_t e) {
    uint16_t value = 0;
    if (i < n_rows) std::memcpy(&value, from + (i * k + e) * 2, 2);
    return value;
  };
  for (size_t e = 0; e < k; ++e) {
    for (size_t i = 0; i < width; ++i) out[e * stride + i] = element(i, e);
  }
}

void interleave_rows_ref(const void* rows, size_t n_rows, size_t k, size_t width, size_t stride,
                         void* out) {
  const auto* const from = static_cast<const std::byte*>(rows);
  auto* const to = static_cast<std::byte*>(out);
  for (size_t e = 0; e < k; ++e) {
    for (size_t i = 0; i < width; ++i) {
      std::byte* const at = to + (e * stride + i) * 4;
      if (i < n_rows) {
        std::memcpy(at, from + (i * k + e) * 4, 4);
      } else {
        std::memset(at, 0, 4);
      }
    }
  }
}

}  // namespace blend::kernels
#endif  // HWY_ONCE

#include "cpu/gemm_int8.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "cpu/fetch_ahead.h"
#include "cpu/gemm_int8_dot.h"
#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/gemm_int8.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

#include "cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_ARCH_X86

#include "cpu/gemm_int8-inl.h"

// Two bytes at a time, as 16-bit numbers: pmaddwd, whose sums of two products cannot overflow.
// (Products of bytes, pmaddubsw, saturate at 16 bits.)
struct Words {
  static constexpr size_t kLanes = kernels::HWY_NAMESPACE::kLanes;
  static constexpr size_t kRows = kLanes == 16 ? 12 : kLanes == 8 ? 6 : 4;
  static constexpr size_t kGroup = 2, kVectorBytes = kLanes * kGroup;
  static constexpr bool kFourOfX = false;
  static constexpr size_t kDepth = 0;
  using D32 = hn::CappedTag<int32_t, 16>;
  using D16 = hn::Repartition<int16_t, D32>;
  using D8 = hn::Rebind<int8_t, D16>;
  using Sums = hn::Vec<D32>;
  using Bytes = hn::Vec<D16>;

  static HWY_INLINE Sums zero() { return hn::Zero(D32()); }
  static HWY_INLINE Bytes broadcast(uint32_t group) {
    return hn::BitCast(D16(), hn::Set(D32(), static_cast<int32_t>(group)));
  }
  static HWY_INLINE Bytes load(const int8_t* groups) {
    return hn::PromoteTo(D16(), hn::LoadU(D8(), groups));
  }
  static HWY_INLINE Sums dot(Sums sum, Bytes x, Bytes w) {
    Sums unused = zero();
    return hn::ReorderWidenMulAccumulate(D32(), x, w, sum, unused);
  }
  static HWY_INLINE void finish(Sums sum, const Int8Row& row, const int32_t* sums,
                                const float* steps, float* y, bool add) {
    const D d;
    const auto zeros = hn::Mul(hn::Set(D32(), row.zero), hn::LoadU(D32(), sums));
    const V factor = hn::Mul(hn::Set(d, row.scale), hn::LoadU(d, steps));
    V out = hn::Mul(hn::ConvertTo(d, hn::Sub(sum, zeros)), factor);
    if (add) out = hn::Add(hn::LoadU(d, y), out);
    hn::StoreU(out, d, y);
  }
};

// A part of a panel that was widened before, for all blocks of x: widening costs as much as
// multiplying by two rows.
struct WidenedWords : Words {
  static constexpr size_t kVectorBytes = kLanes * kGroup * sizeof(int16_t);
  static constexpr size_t kDepth = 256;
  static HWY_INLINE Bytes load(const int8_t* groups) {
    return hn::Load(D16(), reinterpret_cast<const int16_t*>(groups));
  }
  static HWY_INLINE Sums load_sums(const int32_t* sums) { return hn::Load(D32(), sums); }
  static HWY_INLINE void store_sums(Sums sum, int32_t* sums) { hn::Store(sum, D32(), sums); }
  static HWY_INLINE Sums add(Sums a, Sums b) { return hn::Add(a, b); }
};

// For a few blocks bytes are widened again, and panels are read to their ends: in parts, pieces of
// many panels one after another, memory is slower than the few blocks' arithmetic. (Zen 3, k, n
// = 2048, 8192: 8 rows 104 GFLOP/s in parts, 6 rows as one block 143.)
constexpr size_t kWholeRows = 4 * Words::kRows;

void WordsTile(const Int8Tile& t) {
  if (t.m <= kWholeRows) return int8_all<Words>(t);
  int8_parts<WidenedWords>(t, [&](const int8_t* at, size_t depth) {
    const WidenedWords::D16 d16;
    const size_t bytes = depth * kInt8Vectors * Words::kLanes * Words::kGroup;
    for (size_t e = 0; e < bytes; e += 2 * kLanes) {
      hn::Store(hn::PromoteTo(d16, hn::LoadU(WidenedWords::D8(), at + e)), d16, t.widened + e);
    }
    return reinterpret_cast<const int8_t*>(t.widened);
  });
}
size_t WordsRows() { return Words::kRows; }
size_t WordsColumns() { return kInt8Vectors * Words::kLanes; }
size_t WordsDepth() { return WidenedWords::kDepth; }
size_t WordsWhole() { return kWholeRows; }

#else

// On other CPUs these would be no faster than f32.
void WordsTile(const Int8Tile& /*tile*/) {}
size_t WordsRows() { return 0; }
size_t WordsColumns() { return 0; }
size_t WordsDepth() { return 0; }
size_t WordsWhole() { return 0; }

#endif

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(WordsTile);
HWY_EXPORT(WordsRows);
HWY_EXPORT(WordsColumns);
HWY_EXPORT(WordsDepth);
HWY_EXPORT(WordsWhole);

Int8Shape int8_shape(Int8Path path) {
  if (path != Int8Path::words) return int8_dot_shape(path);
  const size_t rows = HWY_DYNAMIC_DISPATCH(WordsRows)();
  return {rows, HWY_DYNAMIC_DISPATCH(WordsColumns)(), rows == 0 ? size_t{0} : size_t{2},
          HWY_DYNAMIC_DISPATCH(WordsDepth)(), HWY_DYNAMIC_DISPATCH(WordsWhole)()};
}

void int8_groups(Int8Path path, const uint8_t* q, size_t k, uint32_t* groups, Int8Row& row) {
  const size_t group = int8_shape(path).group;
  const size_t n_groups = (k + group - 1) / group;
  if (path == Int8Path::words) {
    auto* const words = reinterpret_cast<uint16_t*>(groups);
    for (size_t e = 0; e < k; ++e) words[e] = q[e];
    if (k % 2 != 0) words[k] = 0;
    return;
  }
  auto* const bytes = reinterpret_cast<uint8_t*>(groups);
  if (bytes != q) std::memcpy(bytes, q, k);
  std::fill(bytes + k, bytes + n_groups * group, uint8_t{0});
  if (path != Int8Path::neon_dot) return;
  // The bytes are signed there, so all of x moves by 128, and its zero with it.
  for (size_t g = 0; g < n_groups; ++g) groups[g] ^= 0x80808080u;
  row.zero -= 128;
}

void int8_tile(Int8Path path, const Int8Tile& tile) {
  if (tile.m == 0 || tile.n == 0) return;
  if (path == Int8Path::words) {
    HWY_DYNAMIC_DISPATCH(WordsTile)(tile);
  } else {
    int8_dot_tile(path, tile);
  }
}

void int8_tile_ref(Int8Path path, const Int8Tile& t) {
  const Int8Shape shape = int8_shape(path);
  const auto x = [&](size_t i, size_t group, size_t e) -> int64_t {
    const uint32_t* const at =
        t.as_it_is ? t.x + i * t.n_groups + group
                   : t.x + (i / shape.rows * t.n_groups + group) * shape.rows + i % shape.rows;
    if (path == Int8Path::words) return reinterpret_cast<const uint16_t*>(at)[e];
    const uint8_t q = reinterpret_cast<const uint8_t*>(at)[e];
    return path == Int8Path::neon_dot ? static_cast<int8_t>(q) : q;
  };
  for (size_t i = 0; i < t.m; ++i) {
    for (size_t j = 0; j < t.n; ++j) {
      const int8_t* const w =
          t.w + (j / shape.columns * t.n_groups * shape.columns + j % shape.columns) * shape.group;
      int64_t sum = -int64_t{t.rows[i].zero} * t.sums[j];
      for (size_t group = 0; group < t.n_groups; ++group) {
        for (size_t e = 0; e < shape.group; ++e) {
          sum += x(i, group, e) * w[group * shape.columns * shape.group + e];
        }
      }
      float& y = t.y[i * t.y_stride + j];
      const double out = static_cast<double>(sum) * static_cast<double>(t.rows[i].scale) *
                         static_cast<double>(t.steps[j]);
      y = static_cast<float>(t.accumulate ? static_cast<double>(y) + out : out);
    }
  }
}

}  // namespace blend::kernels
#endif  // HWY_ONCE

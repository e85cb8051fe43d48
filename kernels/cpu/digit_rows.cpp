#include "cpu/digit_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/digit_rows.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

#include "cpu/weight_codes-inl.h"

// Not with AVX-512, where it was not measured.
#undef BLEND_DIGITS
#if HWY_ARCH_X86 && HWY_TARGET == HWY_AVX2
#define BLEND_DIGITS 1
#include <hwy/cache_control.h>
#include <immintrin.h>

#include "cpu/digit_rows-inl.h"
#else
#define BLEND_DIGITS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {

#if BLEND_DIGITS
bool Take(BlockType blocks) {
  return with_unit(blocks, [](auto) {});
}
void PackDigits(const float* x, size_t m, size_t k, std::byte* packed) {
  for (size_t i = 0; i < m; ++i) pack_digits(x + i * k, k, packed + i * DigitRow::bytes(k));
}
void Multiply(const FewRows& p) {
  with_unit(p.blocks, [&](auto unit) { multiply_all<decltype(unit)>(p); });
}
#else
bool Take(BlockType /*blocks*/) { return false; }
void PackDigits(const float* /*x*/, size_t /*m*/, size_t /*k*/, std::byte* /*packed*/) {}
void Multiply(const FewRows& /*p*/) {}
#endif

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(Take);
HWY_EXPORT(PackDigits);
HWY_EXPORT(Multiply);

bool digit_rows_take(BlockType blocks) {
  return blocks != BlockType::none && HWY_DYNAMIC_DISPATCH(Take)(blocks);
}
void digit_rows_pack(const float* x, size_t m, size_t k, std::byte* packed) {
  HWY_DYNAMIC_DISPATCH(PackDigits)(x, m, k, packed);
}
void digit_rows(const FewRows& product) { HWY_DYNAMIC_DISPATCH(Multiply)(product); }

}  // namespace blend::kernels
#endif  // HWY_ONCE

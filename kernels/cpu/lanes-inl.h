// Vectors of f32 whose size is known: kernels keep sums in arrays of them.
//
// Included once per SIMD target; see any kernel.
#if defined(BLEND_KERNELS_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BLEND_KERNELS_LANES_INL_H
#undef BLEND_KERNELS_LANES_INL_H
#else
#define BLEND_KERNELS_LANES_INL_H
#endif

#include <hwy/highway.h>

#include <cstddef>

namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr size_t kLanes = HWY_LANES(float) < 16 ? HWY_LANES(float) : 16;

}  // namespace blend::kernels::HWY_NAMESPACE

#endif  // per-target include guard

#include "cpu/block_decode.h"

#include <cstdint>
#include <cstring>

#include "cpu/simd.h"
#include "formats/weight_grids.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/block_decode.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace {

#include "formats/weight_blocks-inl.h"
#include "formats/weight_codes-inl.h"
#include "formats/weight_decode-inl.h"

}  // namespace

void DecodeBlocks(BlockType type, const std::byte* data, size_t n, float* out) {
  decode_run(type, reinterpret_cast<const uint8_t*>(data), n, out);
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(DecodeBlocks);

void decode_blocks(BlockType type, const std::byte* data, size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(DecodeBlocks)(type, data, n, out);
}

}  // namespace blend::kernels
#endif  // HWY_ONCE

#include "formats/weight_blocks.h"

#include <cstring>
#include <iterator>

#include "formats/weight_grids.h"

namespace blend {
namespace {

struct Layout {
  const char* name;
  uint32_t ggml;  // number of the type in files
  size_t elements;
  size_t bytes;
};
// In BlockType's order.
constexpr Layout kLayouts[] = {
    {"none", 0, 1, 0},        {"q4_0", 2, 32, 18},     {"q4_1", 3, 32, 20},
    {"q5_0", 6, 32, 22},      {"q5_1", 7, 32, 24},     {"q8_0", 8, 32, 34},
    {"q4_k", 12, 256, 144},   {"q5_k", 13, 256, 176},  {"q6_k", 14, 256, 210},
    {"q2_k", 10, 256, 84},    {"q3_k", 11, 256, 110},  {"iq4_nl", 20, 32, 18},
    {"iq4_xs", 23, 256, 136}, {"mxfp4", 39, 32, 17},   {"nvfp4", 40, 64, 36},
    {"iq2_xxs", 16, 256, 66}, {"iq2_xs", 17, 256, 74}, {"iq2_s", 22, 256, 82},
    {"iq3_xxs", 18, 256, 98}, {"iq3_s", 21, 256, 110}, {"iq1_s", 19, 256, 50},
    {"iq1_m", 29, 256, 56},   {"tq1_0", 34, 256, 54},  {"tq2_0", 35, 256, 66},
};
static_assert(std::size(kLayouts) == kBlockTypes);

const Layout& layout(BlockType type) { return kLayouts[static_cast<size_t>(type)]; }

#include "formats/weight_blocks-inl.h"
#include "formats/weight_codes-inl.h"
#include "formats/weight_decode-inl.h"

}  // namespace

const char* block_type_name(BlockType type) { return layout(type).name; }
uint32_t ggml_type_of(BlockType type) { return layout(type).ggml; }
BlockType block_type_of(uint32_t ggml_type) {
  for (int i = 1; i < kBlockTypes; ++i) {
    if (kLayouts[i].ggml == ggml_type) return static_cast<BlockType>(i);
  }
  return BlockType::none;
}
size_t block_elements(BlockType type) { return layout(type).elements; }
size_t block_bytes(BlockType type) { return layout(type).bytes; }

void decode_blocks(BlockType type, const std::byte* data, size_t n, float* out) {
  decode_run(type, reinterpret_cast<const uint8_t*>(data), n, out);
}

void decode_weights(DType dtype, BlockType blocks, const std::byte* data, size_t n, float* out) {
  if (blocks != BlockType::none) {
    decode_blocks(blocks, data, n, out);
  } else if (dtype == DType::f32) {
    std::memcpy(out, data, n * sizeof(float));
  } else {
    for (size_t i = 0; i < n; ++i) {
      uint16_t h = 0;
      std::memcpy(&h, data + i * sizeof h, sizeof h);
      out[i] = dtype == DType::f16 ? f16_to_f32(h) : bf16_to_f32(h);
    }
  }
}

}  // namespace blend

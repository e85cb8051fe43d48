#include "base/weight_blocks.h"

#include <cstring>
#include <iterator>

namespace blend {
namespace {

struct Layout {
  const char* name;
  size_t elements;
  size_t bytes;
};
// In BlockType's order.
constexpr Layout kLayouts[] = {
    {"none", 1, 0},   {"q4_0", 32, 18},   {"q4_1", 32, 20},   {"q5_0", 32, 22},   {"q5_1", 32, 24},
    {"q8_0", 32, 34}, {"q4_k", 256, 144}, {"q5_k", 256, 176}, {"q6_k", 256, 210},
};
static_assert(std::size(kLayouts) == static_cast<size_t>(BlockType::q6_k) + 1);

const Layout& layout(BlockType type) { return kLayouts[static_cast<size_t>(type)]; }

#include "base/weight_blocks-inl.h"

}  // namespace

const char* block_type_name(BlockType type) { return layout(type).name; }
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

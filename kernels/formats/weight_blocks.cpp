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

// What a block is unpacked to. As aligned as any vector: GCC 12 was seen to make aligned loads of
// such arrays although they were not, depending on the function around them.
template <typename Codes>
struct alignas(64) Unpacked {
  static constexpr size_t kParts = Codes::kElements / Codes::kPart;
  alignas(64) int8_t codes[Codes::kElements];
  alignas(64) float scale[kParts];
  alignas(64) float least[kParts];
};

// One block of a type that with_codes() knows.
template <typename Codes>
void decode_codes(const uint8_t* b, float* out) {
  Unpacked<Codes> u;
  Codes::unpack(b, u.codes, u.scale, u.least);
  for (size_t part = 0; part < u.kParts; ++part) {
    for (size_t j = part * Codes::kPart; j < (part + 1) * Codes::kPart; ++j) {
      out[j] = u.scale[part] * static_cast<float>(u.codes[j]);
      if constexpr (Codes::kLeast) out[j] -= u.least[part];
    }
  }
}

// Blocks of `type` (not none) from `at` on, until n elements are written.
void decode_run(BlockType type, const uint8_t* at, size_t n, float* out) {
  const auto each = [&](auto decode) {
    const size_t elements = block_elements(type), bytes = block_bytes(type);
    for (size_t i = 0; i < n; i += elements, at += bytes) decode(at, out + i);
  };
  switch (type) {
    case BlockType::none:
      return;
    case BlockType::q4_0:
      return each(q4_0);
    case BlockType::q4_1:
      return each(q4_1);
    case BlockType::q5_0:
      return each(q5_0);
    case BlockType::q5_1:
      return each(q5_1);
    case BlockType::q8_0:
      return each(q8_0);
    case BlockType::q4_k:
      return each(q4_k);
    case BlockType::q5_k:
      return each(q5_k);
    case BlockType::q6_k:
      return each(q6_k);
    default:
      with_codes(type, [&](auto codes) { each(decode_codes<decltype(codes)>); });
  }
}

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

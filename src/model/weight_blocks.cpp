#include "model/weight_blocks.h"

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

float half_at(const uint8_t* p) {
  uint16_t h = 0;
  std::memcpy(&h, p, sizeof h);
  return f16_to_f32(h);
}
float low(uint8_t b) { return static_cast<float>(b & 15); }
float high(uint8_t b) { return static_cast<float>(b >> 4); }

// ---- Blocks of 32: one scale, and in the _1 types a smallest value. Byte j holds the elements j
// and j + 16.

// [d][nibbles: 16]
void q4_0(const uint8_t* b, float* out) {
  const float d = half_at(b);
  for (size_t j = 0; j < 16; ++j) {
    out[j] = (low(b[2 + j]) - 8) * d;
    out[j + 16] = (high(b[2 + j]) - 8) * d;
  }
}

// [d][m][nibbles: 16]
void q4_1(const uint8_t* b, float* out) {
  const float d = half_at(b), m = half_at(b + 2);
  for (size_t j = 0; j < 16; ++j) {
    out[j] = low(b[4 + j]) * d + m;
    out[j + 16] = high(b[4 + j]) * d + m;
  }
}

// The fifth bits of a block: bit j is element j's.
float fifth(const uint8_t* bits, size_t j) {
  return (bits[j / 8] >> (j % 8) & 1) != 0 ? 16.0f : 0.0f;
}

// [d][fifth bits: 4][nibbles: 16]
void q5_0(const uint8_t* b, float* out) {
  const float d = half_at(b);
  for (size_t j = 0; j < 16; ++j) {
    out[j] = (low(b[6 + j]) + fifth(b + 2, j) - 16) * d;
    out[j + 16] = (high(b[6 + j]) + fifth(b + 2, j + 16) - 16) * d;
  }
}

// [d][m][fifth bits: 4][nibbles: 16]
void q5_1(const uint8_t* b, float* out) {
  const float d = half_at(b), m = half_at(b + 2);
  for (size_t j = 0; j < 16; ++j) {
    out[j] = (low(b[8 + j]) + fifth(b + 4, j)) * d + m;
    out[j + 16] = (high(b[8 + j]) + fifth(b + 4, j + 16)) * d + m;
  }
}

// [d][signed bytes: 32]
void q8_0(const uint8_t* b, float* out) {
  const float d = half_at(b);
  for (size_t j = 0; j < 32; ++j) out[j] = static_cast<float>(static_cast<int8_t>(b[2 + j])) * d;
}

// ---- Blocks of 256: eight or sixteen parts, whose own scales are integers times the block's.

// Scale and least value of part `i` of eight: six bits each, in 12 bytes. Those of the parts 0-3
// are whole; the parts 4-7 have their upper two bits above those.
struct PartScale {
  float scale, least;
};
PartScale part_scale(const uint8_t* s, size_t i) {
  if (i < 4) return {static_cast<float>(s[i] & 63), static_cast<float>(s[i + 4] & 63)};
  return {static_cast<float>((s[i + 4] & 15) | (s[i - 4] >> 6) << 4),
          static_cast<float>(s[i + 4] >> 4 | (s[i] >> 6) << 4)};
}

// [d][dmin][scales: 12][nibbles: 128]. 32 bytes hold two parts of 32: the low nibbles, the high.
void q4_k(const uint8_t* b, float* out) {
  const float d = half_at(b), dmin = half_at(b + 2);
  const uint8_t* q = b + 16;
  for (size_t part = 0; part < 8; part += 2, q += 32) {
    for (size_t half = 0; half < 2; ++half, out += 32) {
      const PartScale p = part_scale(b + 4, part + half);
      const float scale = d * p.scale, least = dmin * p.least;
      for (size_t j = 0; j < 32; ++j) {
        out[j] = scale * (half == 0 ? low(q[j]) : high(q[j])) - least;
      }
    }
  }
}

// [d][dmin][scales: 12][fifth bits: 32][nibbles: 128]. Bit i of byte j belongs to element j of part
// i.
void q5_k(const uint8_t* b, float* out) {
  const float d = half_at(b), dmin = half_at(b + 2);
  const uint8_t *bits = b + 16, *q = b + 48;
  for (size_t part = 0; part < 8; ++part, out += 32) {
    const PartScale p = part_scale(b + 4, part);
    const float scale = d * p.scale, least = dmin * p.least;
    for (size_t j = 0; j < 32; ++j) {
      const uint8_t byte = q[part / 2 * 32 + j];
      const float fifth_bit = (bits[j] >> part & 1) != 0 ? 16.0f : 0.0f;
      out[j] = scale * ((part % 2 == 0 ? low(byte) : high(byte)) + fifth_bit) - least;
    }
  }
}

// [nibbles: 128][upper two bits: 64][signed scales: 16][d]. Each half of 128 elements has 64 bytes
// of nibbles and 32 of upper bits: run r of 32 elements takes nibbles from bytes r % 2 * 32 on, the
// high ones for r >= 2, and the bits 2r of the upper bytes. A scale is for 16 elements.
void q6_k(const uint8_t* b, float* out) {
  const float d = half_at(b + 208);
  for (size_t half = 0; half < 2; ++half) {
    const uint8_t *q = b + half * 64, *upper = b + 128 + half * 32, *scales = b + 192 + half * 8;
    for (size_t run = 0; run < 4; ++run, out += 32) {
      for (size_t j = 0; j < 32; ++j) {
        const uint8_t byte = q[run % 2 * 32 + j];
        const int nibble = run < 2 ? byte & 15 : byte >> 4;
        const int value = (nibble | (upper[j] >> 2 * run & 3) << 4) - 32;
        const auto scale = static_cast<int8_t>(scales[2 * run + j / 16]);
        out[j] = d * static_cast<float>(scale) * static_cast<float>(value);
      }
    }
  }
}

}  // namespace

const char* block_type_name(BlockType type) { return layout(type).name; }
size_t block_elements(BlockType type) { return layout(type).elements; }
size_t block_bytes(BlockType type) { return layout(type).bytes; }

void decode_blocks(BlockType type, const std::byte* data, size_t n, float* out) {
  using Decode = void (*)(const uint8_t* block, float* out);
  constexpr Decode kDecode[] = {nullptr, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k};
  static_assert(std::size(kDecode) == std::size(kLayouts));
  const Layout& l = layout(type);
  const auto* at = reinterpret_cast<const uint8_t*>(data);
  const Decode decode = kDecode[static_cast<size_t>(type)];
  for (size_t i = 0; i < n; i += l.elements, at += l.bytes) decode(at, out + i);
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

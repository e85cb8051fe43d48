// Decoders of quantized blocks: one plain function for each type of four bits and more.
//
// Included inside a namespace, without a guard: by weight_blocks.cpp, and by kernels/cpu once for
// every instruction set, where the compiler makes vectors of the loops.
// Include <cstring> and "formats/half.h" first.

inline float half_at(const uint8_t* p) {
  uint16_t h = 0;
  std::memcpy(&h, p, sizeof h);
  return f16_to_f32(h);
}
// Element j of a block of 32 whose byte j has element j in its low and j + 16 in its high nibble.
// `value(nibble, j)` makes the number. A fully unrolled loop is not vectorized.
template <typename Value>
inline void nibbles(const uint8_t* q, float* out, Value value) {
  _Pragma("GCC unroll 1") for (size_t j = 0; j < 16; ++j) out[j] = value(q[j] & 15, j);
  _Pragma("GCC unroll 1") for (size_t j = 0; j < 16; ++j) out[j + 16] = value(q[j] >> 4, j + 16);
}
inline float low(uint8_t b) { return static_cast<float>(b & 15); }
inline float high(uint8_t b) { return static_cast<float>(b >> 4); }

// ---- Blocks of 32: one scale, and in the _1 types a smallest value. Byte j holds the elements j
// and j + 16.

// [d][nibbles: 16]
inline void q4_0(const uint8_t* b, float* out) {
  const float d = half_at(b);
  nibbles(b + 2, out, [d](int q, size_t) { return static_cast<float>(q - 8) * d; });
}

// [d][m][nibbles: 16]
inline void q4_1(const uint8_t* b, float* out) {
  const float d = half_at(b), m = half_at(b + 2);
  nibbles(b + 4, out, [d, m](int q, size_t) { return static_cast<float>(q) * d + m; });
}

// The fifth bits of a block: bit j is element j's.
inline uint32_t fifth_bits(const uint8_t* p) {
  return p[0] | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24;
}
inline int fifth(uint32_t bits, size_t j) { return static_cast<int>((bits >> j & 1u) << 4); }

// [d][fifth bits: 4][nibbles: 16]
inline void q5_0(const uint8_t* b, float* out) {
  const float d = half_at(b);
  nibbles(b + 6, out, [d, bits = fifth_bits(b + 2)](int q, size_t j) {
    return static_cast<float>((q | fifth(bits, j)) - 16) * d;
  });
}

// [d][m][fifth bits: 4][nibbles: 16]
inline void q5_1(const uint8_t* b, float* out) {
  const float d = half_at(b), m = half_at(b + 2);
  nibbles(b + 8, out, [d, m, bits = fifth_bits(b + 4)](int q, size_t j) {
    return static_cast<float>(q | fifth(bits, j)) * d + m;
  });
}

// [d][signed bytes: 32]
inline void q8_0(const uint8_t* b, float* out) {
  const float d = half_at(b);
  for (size_t j = 0; j < 32; ++j) out[j] = static_cast<float>(static_cast<int8_t>(b[2 + j])) * d;
}

// ---- Blocks of 256: eight or sixteen parts, whose own scales are integers times the block's.

// Scale and least value of part `i` of eight: six bits each, in 12 bytes. Those of the parts 0-3
// are whole; the parts 4-7 have their upper two bits above those.
struct PartScale {
  float scale, least;
};
inline PartScale part_scale(const uint8_t* s, size_t i) {
  if (i < 4) return {static_cast<float>(s[i] & 63), static_cast<float>(s[i + 4] & 63)};
  return {static_cast<float>((s[i + 4] & 15) | (s[i - 4] >> 6) << 4),
          static_cast<float>(s[i + 4] >> 4 | (s[i] >> 6) << 4)};
}

// [d][dmin][scales: 12][nibbles: 128]. 32 bytes hold two parts of 32: the low nibbles, the high.
inline void q4_k(const uint8_t* b, float* out) {
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
inline void q5_k(const uint8_t* b, float* out) {
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
inline void q6_k(const uint8_t* b, float* out) {
  const float d = half_at(b + 208);
  for (size_t half = 0; half < 2; ++half) {
    const uint8_t *q = b + half * 64, *upper = b + 128 + half * 32, *scales = b + 192 + half * 8;
    // 16 elements that share all but their bytes: one vector.
    const auto sixteen = [&](size_t run, size_t first, unsigned nibble, unsigned bits) {
      const float scale = d * static_cast<float>(static_cast<int8_t>(scales[2 * run + first / 16]));
      const uint8_t* const bytes = q + run % 2 * 32;
      _Pragma("GCC unroll 1") for (size_t j = first; j < first + 16; ++j) {
        const int value = (bytes[j] >> nibble & 15) | (upper[j] >> bits & 3) << 4;
        out[run * 32 + j] = scale * static_cast<float>(value - 32);
      }
    };
    sixteen(0, 0, 0, 0), sixteen(0, 16, 0, 0);
    sixteen(1, 0, 0, 2), sixteen(1, 16, 0, 2);
    sixteen(2, 0, 4, 4), sixteen(2, 16, 4, 4);
    sixteen(3, 0, 4, 6), sixteen(3, 16, 4, 6);
    out += 128;
  }
}

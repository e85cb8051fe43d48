// Quantized blocks as one signed byte an element, the "code", and a scale and a least value for
// every part of a block: element = scale * code - least. One struct for each type:
//
//   kElements of a block in kBytes, kPart elements a scale; kLeast: whether there are least values
//   unpack(b, codes, scale, least)   codes: [kElements], scale, least: [kElements / kPart]; `least`
//                                    is written where kLeast
//
// Included as weight_blocks-inl.h is, and after it. Include "formats/weight_grids.h" first.

inline uint16_t u16_at(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
inline uint32_t u32_at(const uint8_t* p) { return u16_at(p) | uint32_t{u16_at(p + 2)} << 16; }

// ---- Two and three bits: sixteen parts of 16. A half of 128 elements has 32 bytes; its run j of
// 32 elements takes the bits 2j of them.

template <typename Value>
inline void two_bits(const uint8_t* q, int8_t* codes, Value value) {
  for (size_t half = 0; half < 2; ++half, q += 32) {
    for (size_t run = 0; run < 4; ++run, codes += 32) {
      for (size_t j = 0; j < 32; ++j) {
        codes[j] = static_cast<int8_t>(value(q[j] >> 2 * run & 3, 4 * half + run, j));
      }
    }
  }
}

// [scale and least: 16][two bits: 64][d][dmin]
struct Q2K {
  static constexpr size_t kElements = 256, kBytes = 84, kPart = 16;
  static constexpr bool kLeast = true;
  static void unpack(const uint8_t* b, int8_t* codes, float* scale, float* least) {
    const float d = half_at(b + 80), dmin = half_at(b + 82);
    for (size_t i = 0; i < 16; ++i) scale[i] = d * low(b[i]), least[i] = dmin * high(b[i]);
    two_bits(b + 16, codes, [](int q, size_t, size_t) { return q; });
  }
};

// [third bits: 32][two bits: 64][scales: 12][d]. Bit i of byte j belongs to element j of run i
// of 32. A scale has six bits: the lower four in the first eight bytes, first those of the scales 0
// to 7.
struct Q3K {
  static constexpr size_t kElements = 256, kBytes = 110, kPart = 16;
  static constexpr bool kLeast = false;
  static void unpack(const uint8_t* b, int8_t* codes, float* scale, float*) {
    const float d = half_at(b + 108);
    const uint8_t* const s = b + 96;
    for (size_t i = 0; i < 16; ++i) {
      const int lower = s[i % 8] >> 4 * (i / 8) & 15, upper = s[8 + i % 4] >> 2 * (i / 4) & 3;
      scale[i] = d * static_cast<float>((lower | upper << 4) - 32);
    }
    two_bits(b + 32, codes,
             [b](int q, size_t run, size_t j) { return (b[j] >> run & 1) != 0 ? q : q - 4; });
  }
};

// ---- Four bits that are an index into sixteen values.

inline constexpr int8_t kNonlinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
// Numbers of four bits, twice their value: 0, .5, 1, 1.5, 2, 3, 4, 6.
inline constexpr int8_t kE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// n bytes: their low nibbles, then the high ones.
inline void look_up(const uint8_t* q, size_t n, const int8_t* values, int8_t* codes) {
  for (size_t j = 0; j < n; ++j) codes[j] = values[q[j] & 15], codes[n + j] = values[q[j] >> 4];
}

// [d][nibbles: 16]
struct Iq4Nl {
  static constexpr size_t kElements = 32, kBytes = 18, kPart = 32;
  static constexpr bool kLeast = false;
  static void scales(const uint8_t* b, float* scale) { scale[0] = half_at(b); }
  static void unpack(const uint8_t* b, int8_t* codes, float* scale, float*) {
    scales(b, scale);
    look_up(b + 2, 16, kNonlinear, codes);
  }
};

// [d][upper two bits of the scales: 2][lower four: 4][nibbles: 128]. 16 bytes hold 32 elements.
struct Iq4Xs {
  static constexpr size_t kElements = 256, kBytes = 136, kPart = 32;
  static constexpr bool kLeast = false;
  static void scales(const uint8_t* b, float* scale) {
    const float d = half_at(b);
    const uint32_t upper = u16_at(b + 2);
    for (size_t i = 0; i < 8; ++i) {
      const auto bits =
          static_cast<int>((b[4 + i / 2] >> 4 * (i % 2) & 15u) | (upper >> 2 * i & 3u) << 4);
      scale[i] = d * static_cast<float>(bits - 32);
    }
  }
  static void unpack(const uint8_t* b, int8_t* codes, float* scale, float*) {
    scales(b, scale);
    for (size_t i = 0; i < 8; ++i) look_up(b + 8 + 16 * i, 16, kNonlinear, codes + 32 * i);
  }
};

inline float float_of_bits(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// [exponent][nibbles: 16] (OCP Microscaling Formats 1.0)
struct Mxfp4 {
  static constexpr size_t kElements = 32, kBytes = 17, kPart = 32;
  static constexpr bool kLeast = false;
  // Half of 2^(exponent - 127), since the values are doubled.
  static void scales(const uint8_t* b, float* scale) {
    const uint32_t e = b[0];
    scale[0] = float_of_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  }
  static void unpack(const uint8_t* b, int8_t* codes, float* scale, float*) {
    scales(b, scale);
    look_up(b + 1, 16, kE2m1, codes);
  }
};

// [scales of eight bits: 4][nibbles: 32]. 8 bytes hold 16 elements.
struct Nvfp4 {
  static constexpr size_t kElements = 64, kBytes = 36, kPart = 16;
  static constexpr bool kLeast = false;
  // Four bits of exponent, three of mantissa, halved as above; 127 is no number, and taken for 0.
  static float half_of(uint8_t s) {
    const uint32_t exponent = s >> 3 & 15u, mantissa = s & 7u;
    if (s == 127) return 0;
    if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-10F;
    return float_of_bits((exponent + 119) << 23 | mantissa << 20);
  }
  static void unpack(const uint8_t* b, int8_t* codes, float* scale, float*) {
    for (size_t i = 0; i < 4; ++i) {
      scale[i] = half_of(b[i]);
      look_up(b + 4 + 8 * i, 8, kE2m1, codes + 16 * i);
    }
  }
};

// ---- Entries of a code book (formats/weight_grids.h), whose elements have their signs apart.

inline constexpr uint64_t kEachByte = 0x0101010101010101;

// Eight elements, those negative whose bit is 1.
inline void put_signed(uint64_t entry, uint8_t signs, int8_t* codes) {
  const uint64_t mask = kBytesOfBits[signs];
  const uint64_t value = (entry ^ mask) + (mask & kEachByte);  // no byte is 0: nothing is carried
  std::memcpy(codes, &value, sizeof value);
}
inline uint64_t two_entries(uint32_t first, uint32_t second) {
  return first | uint64_t{second} << 32;
}
// Seven signs; the eighth makes their number even.
inline uint8_t even_signs(uint32_t seven) {
  uint32_t parity = seven ^ seven >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return static_cast<uint8_t>((seven & 127) | (parity & 1) << 7);
}
// Four bits of a scale, a half added.
inline float half_more(uint32_t bits) { return 0.5f + static_cast<float>(bits); }
// Two of them a byte.
inline void sixteen_scales(const uint8_t* b, float d, float* scale) {
  for (size_t i = 0; i < 16; ++i) scale[i] = d * half_more(b[i / 2] >> 4 * (i % 2) & 15) * 0.25f;
}

// [d]([entries: 4][signs: 4 x 7 bits, scale: 4 bits]) x 8
struct Iq2Xxs {
  static constexpr size_t kElements = 256, kBytes = 66, kPart = 32;
  static constexpr bool kLeast = false;
  static void unpack(const uint8_t* b, int8_t* codes, float* scale, float*) {
    const float d = half_at(b);
    const uint8_t* q = b + 2;
    for (size_t i = 0; i < 8; ++i, q += 8) {
      const uint32_t more = u32_at(q + 4);
      scale[i] = d * half_more(more >> 28) * 0.25f;
      for (size_t j = 0; j < 4; ++j, codes += 8) {
        put_signed(kIq2XxsGrid[q[j]], even_signs(more >> 7 * j & 127), codes);
      }
    }
  }
};

// [d][entry: 9 bits, signs: 7 bits] x 32 [scales of four bits: 8]
struct Iq2Xs {
  static constexpr size_t kElements = 256, kBytes = 74, kPart = 16;
  static constexpr bool kLeast = false;
  static void unpack(const uint8_t* b, int8_t* codes, float* scale, float*) {
    const float d = half_at(b);
    sixteen_scales(b + 66, d, scale);
    for (size_t i = 0; i < 32; ++i, codes += 8) {
      const uint32_t q = u16_at(b + 2 + 2 * i);
      put_signed(kIq2XsGrid[q & 511], even_signs(q >> 9), codes);
    }
  }
};

// [d][entries: 32][signs: 32][upper two bits of the entries: 8][scales of four bits: 8]
struct Iq2S {
  static constexpr size_t kElements = 256, kBytes = 82, kPart = 16;
  static constexpr bool kLeast = false;
  static void unpack(const uint8_t* b, int8_t* codes, float* scale, float*) {
    const float d = half_at(b);
    sixteen_scales(b + 74, d, scale);
    for (size_t i = 0; i < 32; ++i, codes += 8) {
      const uint32_t upper = b[66 + i / 4] >> 2 * (i % 4) & 3u;
      put_signed(kIq2SGrid[b[2 + i] | upper << 8], b[34 + i], codes);
    }
  }
};

// [d][entries: 64][signs: 4 x 7 bits, scale: 4 bits] x 8
struct Iq3Xxs {
  static constexpr size_t kElements = 256, kBytes = 98, kPart = 32;
  static constexpr bool kLeast = false;
  static void unpack(const uint8_t* b, int8_t* codes, float* scale, float*) {
    const float d = half_at(b);
    const uint8_t* q = b + 2;
    for (size_t i = 0; i < 8; ++i) {
      const uint32_t more = u32_at(b + 66 + 4 * i);
      scale[i] = d * half_more(more >> 28) * 0.5f;
      for (size_t j = 0; j < 4; ++j, q += 2, codes += 8) {
        put_signed(two_entries(kIq3XxsGrid[q[0]], kIq3XxsGrid[q[1]]),
                   even_signs(more >> 7 * j & 127), codes);
      }
    }
  }
};

// [d][entries: 64][ninth bits of the entries: 8][signs: 32][scales of four bits: 4]
struct Iq3S {
  static constexpr size_t kElements = 256, kBytes = 110, kPart = 32;
  static constexpr bool kLeast = false;
  static void unpack(const uint8_t* b, int8_t* codes, float* scale, float*) {
    const float d = half_at(b);
    for (size_t i = 0; i < 8; ++i) {
      scale[i] = d * static_cast<float>(1 + 2 * (b[106 + i / 2] >> 4 * (i % 2) & 15));
    }
    const uint8_t *const q = b + 2, *const ninth = b + 66, *const signs = b + 74;
    const auto entry = [&](size_t i) {
      return kIq3SGrid[q[i] | (ninth[i / 8] >> i % 8 & 1u) << 8];
    };
    for (size_t i = 0; i < 32; ++i, codes += 8) {
      put_signed(two_entries(entry(2 * i), entry(2 * i + 1)), signs[i], codes);
    }
  }
};

// ---- Entries of -1, 0 and 1, an eighth of the scale added or taken off. Codes are eight times the
// elements.

inline void put_shifted(uint64_t entry, bool down, int8_t* codes) {
  const uint64_t value = (down ? entry - kEachByte : entry + kEachByte) ^ 0x80 * kEachByte;
  std::memcpy(codes, &value, sizeof value);
}

// [d][entries: 32]([upper three bits of four entries, scale: 3 bits, down: 1 bit]) x 8
struct Iq1S {
  static constexpr size_t kElements = 256, kBytes = 50, kPart = 32;
  static constexpr bool kLeast = false;
  static void unpack(const uint8_t* b, int8_t* codes, float* scale, float*) {
    const float d = half_at(b);
    for (size_t i = 0; i < 8; ++i) {
      const uint32_t more = u16_at(b + 34 + 2 * i);
      scale[i] = d * static_cast<float>(2 * (more >> 12 & 7) + 1) * 0.125f;
      for (size_t j = 0; j < 4; ++j, codes += 8) {
        put_shifted(kIq1SGrid[b[2 + 4 * i + j] | (more >> 3 * j & 7) << 8], (more & 0x8000) != 0,
                    codes);
      }
    }
  }
};

// [entries: 32][upper three bits and down of an entry: 4 bits x 32]
// [four scales of 3 bits, four bits of d] x 4
struct Iq1M {
  static constexpr size_t kElements = 256, kBytes = 56, kPart = 16;
  static constexpr bool kLeast = false;
  static void unpack(const uint8_t* b, int8_t* codes, float* scale, float*) {
    const uint8_t* const s = b + 48;
    uint8_t bits[2] = {};
    for (size_t i = 0; i < 4; ++i) {
      bits[i / 2] = static_cast<uint8_t>(bits[i / 2] | s[2 * i + 1] >> 4 << 4 * (i % 2));
    }
    const float d = half_at(bits);
    for (size_t i = 0; i < 16; ++i) {
      const uint32_t three = u16_at(s + 2 * (i / 4)) >> 3 * (i % 4) & 7u;
      scale[i] = d * static_cast<float>(2 * three + 1) * 0.125f;
    }
    for (size_t i = 0; i < 32; ++i, codes += 8) {
      const uint32_t more = b[32 + i / 2] >> 4 * (i % 2) & 15u;
      put_shifted(kIq1SGrid[b[i] | (more & 7) << 8], (more & 8) != 0, codes);
    }
  }
};

// ---- -1, 0 and 1 themselves, one scale a block.

// [five of them a byte: 48][four a byte: 4][d]. A byte holds the digits of its number to the base 3
// as a fraction of 256: times 3, 9, ... the next digit comes on top.
struct Tq1_0 {
  static constexpr size_t kElements = 256, kBytes = 54, kPart = 256;
  static constexpr bool kLeast = false;
  static void digits(const uint8_t* q, size_t n, size_t n_digits, int8_t* codes) {
    uint32_t power = 1;
    for (size_t digit = 0; digit < n_digits; ++digit, power *= 3, codes += n) {
      for (size_t j = 0; j < n; ++j) {
        codes[j] = static_cast<int8_t>(static_cast<int>((q[j] * power & 255u) * 3 >> 8) - 1);
      }
    }
  }
  static void unpack(const uint8_t* b, int8_t* codes, float* scale, float*) {
    scale[0] = half_at(b + 52);
    digits(b, 32, 5, codes);
    digits(b + 32, 16, 5, codes + 160);
    digits(b + 48, 4, 4, codes + 240);
  }
};

// [two bits: 64][d]
struct Tq2_0 {
  static constexpr size_t kElements = 256, kBytes = 66, kPart = 256;
  static constexpr bool kLeast = false;
  static void unpack(const uint8_t* b, int8_t* codes, float* scale, float*) {
    scale[0] = half_at(b + 64);
    two_bits(b, codes, [](int q, size_t, size_t) { return q - 1; });
  }
};

// Calls fn with an object of the type's struct. False: it has none.
template <typename Fn>
inline bool with_codes(BlockType type, Fn fn) {
  switch (type) {
    case BlockType::q2_k:
      return fn(Q2K()), true;
    case BlockType::q3_k:
      return fn(Q3K()), true;
    case BlockType::iq4_nl:
      return fn(Iq4Nl()), true;
    case BlockType::iq4_xs:
      return fn(Iq4Xs()), true;
    case BlockType::mxfp4:
      return fn(Mxfp4()), true;
    case BlockType::nvfp4:
      return fn(Nvfp4()), true;
    case BlockType::iq2_xxs:
      return fn(Iq2Xxs()), true;
    case BlockType::iq2_xs:
      return fn(Iq2Xs()), true;
    case BlockType::iq2_s:
      return fn(Iq2S()), true;
    case BlockType::iq3_xxs:
      return fn(Iq3Xxs()), true;
    case BlockType::iq3_s:
      return fn(Iq3S()), true;
    case BlockType::iq1_s:
      return fn(Iq1S()), true;
    case BlockType::iq1_m:
      return fn(Iq1M()), true;
    case BlockType::tq1_0:
      return fn(Tq1_0()), true;
    case BlockType::tq2_0:
      return fn(Tq2_0()), true;
    default:
      return false;
  }
}

// What digit_rows.h multiplies: units of W whose codes are taken from their bits, and x as digits.
// AVX2's instructions.
//
// Included inside a namespace and inside the compiler's attributes of an instruction set, so it
// includes nothing and has no guard: the including file has <algorithm>, <cstddef>, <cstdint>,
// <cstring>, <limits>, <immintrin.h>, "cpu/digit_rows.h", "cpu/simd.h" and "formats/half.h", and in
// the namespace formats/weight_blocks-inl.h and formats/weight_codes-inl.h. Lambdas would not have
// the attributes.

// ---- x

// Stores 32 integers of 20 bits and a sign as digits, a pair's vector of each apart.
HWY_INLINE void put_digits(__m256i (&v)[4], int8_t* digits) {
  const __m256i half = _mm256_set1_epi32(64), low = _mm256_set1_epi32(127);
  // packs interleaves the halves of its vectors.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (size_t digit = 0; digit < 3; ++digit) {
    __m256i d[4];
    for (size_t i = 0; i < 4; ++i) {
      d[i] = v[i];
      if (digit == 2) continue;
      d[i] = _mm256_sub_epi32(_mm256_and_si256(_mm256_add_epi32(v[i], half), low), half);
      v[i] = _mm256_srai_epi32(_mm256_sub_epi32(v[i], d[i]), 7);
    }
    const __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(d[0], d[1]), _mm256_packs_epi32(d[2], d[3]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(digits + digit * DigitRow::kDigitStride),
                        _mm256_permutevar8x32_epi32(bytes, order));
  }
}

HWY_INLINE int32_t sum_of_lanes(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
}
HWY_INLINE uint32_t greatest_of_lanes(__m256i v) {
  __m128i s = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_max_epu32(s, _mm_shuffle_epi32(s, 0x4E));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_max_epu32(s, _mm_shuffle_epi32(s, 0xB1))));
}

inline void pack_digits(const float* x, size_t k, std::byte* packed) {
  const DigitRow row(packed, k);
  const size_t n = k / kDigitGroup, padded = DigitRow::padded(n);
  auto* const digits = reinterpret_cast<int8_t*>(packed);
  auto* const scale = const_cast<float*>(row.scale);
  auto* const sum = const_cast<float*>(row.sum);
  auto* const half_scale = const_cast<float*>(row.half_scale);
  auto* const half_sum = const_cast<float*>(row.half_sum);
  std::fill(scale, scale + 6 * padded, 0.0f);
  if (n % 4 != 0) {
    std::fill(digits + n / 4 * 6 * DigitRow::kDigitStride, digits + DigitRow::digit_bytes(n),
              int8_t{0});
  }
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  for (size_t g = 0; g < n; ++g, x += kDigitGroup) {
    __m256 v[4];
    __m256i greatest = _mm256_setzero_si256();
    for (size_t i = 0; i < 4; ++i) {
      v[i] = _mm256_loadu_ps(x + 8 * i);
      greatest = _mm256_max_epu32(greatest, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
    }
    constexpr uint32_t kOdd = 0x7f800000u, kTiny = 27u << 23;   // 2^-100
    const uint32_t power = greatest_of_lanes(greatest) & kOdd;  // of two, no greater
    // Less than any sensible weight makes visible; so the inverse stays finite.
    if (power < kTiny) {
      for (size_t digit = 0; digit < 3; ++digit) {
        int8_t* const zeros = digits + DigitRow::at(g) + digit * DigitRow::kDigitStride;
        std::fill(zeros, zeros + kDigitGroup, int8_t{0});
      }
      continue;
    }
    const bool odd = power == kOdd;
    constexpr uint32_t kOne = 127u << 23, kBits = 19u << 23;
    const float step = odd ? std::numeric_limits<float>::quiet_NaN() : float_of_bits(power - kBits);
    const float inverse = odd ? 0.0f : float_of_bits(2 * kOne + kBits - power);
    __m256i integers[4];
    for (size_t i = 0; i < 4; ++i) {
      // A NaN becomes the least integer, whose product with the step is no number either.
      integers[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)));
    }
    const int32_t first = sum_of_lanes(_mm256_add_epi32(integers[0], integers[1]));
    const int32_t second = sum_of_lanes(_mm256_add_epi32(integers[2], integers[3]));
    put_digits(integers, digits + DigitRow::at(g));
    scale[g] = half_scale[2 * g] = half_scale[2 * g + 1] = step;
    half_sum[2 * g] = step * static_cast<float>(first);
    half_sum[2 * g + 1] = step * static_cast<float>(second);
    sum[g] = step * static_cast<float>(int64_t{first} + second);
  }
}

inline void pack_rows(const float* x, size_t m, size_t k, std::byte* packed) {
  for (size_t i = 0; i < m; ++i) pack_digits(x + i * k, k, packed + i * DigitRow::bytes(k));
}

// ---- W

// A unit of a row of W: 256 elements in one block or eight of 32; a row's last unit may have
// fewer blocks. For each type
//   kElements      of a block
//   kBytes         of a unit, kPart elements that share a step
//   steps(at, n, step, least)   step: [kUnit / kPart], least: the same where kLeast; n blocks
//   codes<g>(at)   the codes of the g-th group, unsigned
//   kOffset        what is taken from a code to make it a value
constexpr size_t kUnit = 256, kUnitGroups = kUnit / kDigitGroup;

HWY_INLINE float half_as_float(const uint8_t* at) {
  uint16_t h = 0;
  std::memcpy(&h, at, sizeof h);
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}
HWY_INLINE __m256i load32(const uint8_t* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}
HWY_INLINE __m256i each_byte(int value) { return _mm256_set1_epi8(static_cast<char>(value)); }
// Shifts of bytes, of which `mask` is kept.
template <int kLeft>
HWY_INLINE __m256i bits_of(__m256i v, int mask) {
  if constexpr (kLeft > 0) v = _mm256_slli_epi16(v, kLeft);
  if constexpr (kLeft < 0) v = _mm256_srli_epi16(v, -kLeft);
  return _mm256_and_si256(v, each_byte(mask));
}
// 16 bytes: their low nibbles, then the high ones.
HWY_INLINE __m256i nibbles_of_16(const uint8_t* at) {
  const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(both, 4), both), each_byte(15));
}
// 32 bytes: the low nibbles of each for even g, the high ones for odd.
template <size_t g>
HWY_INLINE __m256i nibbles_of_32(const uint8_t* at) {
  constexpr int kLeft = g % 2 == 0 ? 0 : -4;
  return bits_of<kLeft>(load32(at), 15);
}
// Bytes of all ones where a bit is set, in the order of the bits.
HWY_INLINE __m256i bytes_of_bits(const uint8_t* at) {
  uint32_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  const __m256i own_byte =
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i own_bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m256i spread =
      _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int32_t>(bits)), own_byte);
  return _mm256_cmpeq_epi8(_mm256_and_si256(spread, own_bit), own_bit);
}

HWY_INLINE int16_t i16_at(const uint8_t* at) {
  int16_t h = 0;
  std::memcpy(&h, at, sizeof h);
  return h;
}
// The halves at the beginning of up to eight blocks, as f32.
template <size_t kBlockBytes>
HWY_INLINE __m256 halves(const uint8_t* at, size_t n) {
  constexpr size_t s = kBlockBytes;
  if (n == 8) {
    return _mm256_cvtph_ps(_mm_setr_epi16(
        i16_at(at), i16_at(at + s), i16_at(at + 2 * s), i16_at(at + 3 * s), i16_at(at + 4 * s),
        i16_at(at + 5 * s), i16_at(at + 6 * s), i16_at(at + 7 * s)));
  }
  int16_t half[8] = {};
  for (size_t b = 0; b < n; ++b) half[b] = i16_at(at + b * s);
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(half)));
}
HWY_INLINE __m256 half_of_all(const uint8_t* at) { return _mm256_set1_ps(half_as_float(at)); }
HWY_INLINE __m256 eight_times(__m256 by, __m256i integers) {
  return _mm256_mul_ps(by, _mm256_cvtepi32_ps(integers));
}
HWY_INLINE __m128i load8(const uint8_t* at) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
}
HWY_INLINE __m128i load16(const uint8_t* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}
// The steps of sixteen parts.
HWY_INLINE void sixteen_times(__m256 by, __m128i bytes, __m256* step) {
  step[0] = eight_times(by, _mm256_cvtepi8_epi32(bytes));
  step[1] = eight_times(by, _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)));
}

template <size_t kBlockBytes, int kMiddle>
struct OfEight {
  static constexpr size_t kElements = 32, kBytes = 8 * kBlockBytes, kPart = 32;
  static constexpr bool kLeast = false;
  static constexpr int kOffset = kMiddle;
  static HWY_INLINE void steps(const uint8_t* at, size_t n, __m256* step, __m256*) {
    step[0] = halves<kBlockBytes>(at, n);
  }
};
struct Q4_0 : OfEight<18, 8> {
  template <size_t g>
  static HWY_INLINE __m256i codes(const uint8_t* at) {
    return nibbles_of_16(at + g * 18 + 2);
  }
};
struct Q5_0 : OfEight<22, 16> {
  template <size_t g>
  static HWY_INLINE __m256i codes(const uint8_t* at) {
    at += g * 22;
    return _mm256_or_si256(nibbles_of_16(at + 6),
                           _mm256_and_si256(bytes_of_bits(at + 2), each_byte(16)));
  }
};
HWY_INLINE __m256i look_up_32(const int8_t (&table)[16], int offset, __m256i nibbles) {
  const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  const __m128i moved = _mm_add_epi8(values, _mm_set1_epi8(static_cast<char>(offset)));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(moved), nibbles);
}
struct IQ4_NL : OfEight<18, 127> {
  template <size_t g>
  static HWY_INLINE __m256i codes(const uint8_t* at) {
    return look_up_32(kNonlinear, kOffset, nibbles_of_16(at + g * 18 + 2));
  }
};
struct MXFP4 : OfEight<17, 12> {
  // Half of 2^(exponent - 127), as Mxfp4::scales().
  static HWY_INLINE void steps(const uint8_t* at, size_t n, __m256* step, __m256*) {
    uint64_t bytes = 0;
    BLEND_UNROLL
    for (size_t b = 0; b < 8; ++b) {
      if (b < n) bytes |= uint64_t{at[17 * b]} << 8 * b;
    }
    const __m256i e = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(bytes)));
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i less = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    step[0] = _mm256_castsi256_ps(
        _mm256_blendv_epi8(normal, less, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
  }
  template <size_t g>
  static HWY_INLINE __m256i codes(const uint8_t* at) {
    return look_up_32(kE2m1, kOffset, nibbles_of_16(at + g * 17 + 1));
  }
};

template <size_t kBlockBytes>
struct OfEightWithLeast {
  static constexpr size_t kElements = 32, kBytes = 8 * kBlockBytes, kPart = 32;
  static constexpr bool kLeast = true;
  static constexpr int kOffset = 0;
  static HWY_INLINE void steps(const uint8_t* at, size_t n, __m256* step, __m256* least) {
    step[0] = halves<kBlockBytes>(at, n);
    least[0] = _mm256_sub_ps(_mm256_setzero_ps(), halves<kBlockBytes>(at + 2, n));
  }
};
struct Q4_1 : OfEightWithLeast<20> {
  template <size_t g>
  static HWY_INLINE __m256i codes(const uint8_t* at) {
    return nibbles_of_16(at + g * 20 + 4);
  }
};
struct Q5_1 : OfEightWithLeast<24> {
  template <size_t g>
  static HWY_INLINE __m256i codes(const uint8_t* at) {
    at += g * 24;
    return _mm256_or_si256(nibbles_of_16(at + 8),
                           _mm256_and_si256(bytes_of_bits(at + 4), each_byte(16)));
  }
};

struct EightParts {
  static constexpr size_t kElements = 256, kPart = 32;
  static constexpr bool kLeast = true;
  static constexpr int kOffset = 0;
  // Of the three words after the two halves: the lower six bits of each byte of the first are the
  // first four scales, those of the second the first four leasts. The other scales have their lower
  // four bits in the third's low nibbles, the other leasts theirs in the high ones, and their upper
  // two in the upper ones of the first and second.
  static HWY_INLINE __m128i scales_and_leasts(__m128i words) {
    const __m128i lower =
        _mm_and_si128(_mm_srlv_epi32(_mm_shuffle_epi32(words, 0xED), _mm_setr_epi32(0, 0, 0, 4)),
                      _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f));
    const __m128i upper = _mm_and_si128(_mm_srli_epi32(_mm_shuffle_epi32(words, 0x84), 2),
                                        _mm_setr_epi32(0, 0x30303030, 0, 0x30303030));
    return _mm_or_si128(lower, upper);
  }
  static HWY_INLINE void steps(const uint8_t* at, size_t, __m256* step, __m256* least) {
    const __m128i words = load16(at);
    const __m128i all = scales_and_leasts(words);
    const __m128 d = _mm_cvtph_ps(words);
    step[0] = eight_times(_mm256_broadcastss_ps(d), _mm256_cvtepu8_epi32(all));
    least[0] = eight_times(_mm256_broadcastss_ps(_mm_movehdup_ps(d)),
                           _mm256_cvtepu8_epi32(_mm_srli_si128(all, 8)));
  }
};
struct Q4_K : EightParts {
  static constexpr size_t kBytes = 144;
  template <size_t g>
  static HWY_INLINE __m256i codes(const uint8_t* at) {
    return nibbles_of_32<g>(at + 16 + g / 2 * 32);
  }
};
struct Q5_K : EightParts {
  static constexpr size_t kBytes = 176;
  template <size_t g>
  static HWY_INLINE __m256i codes(const uint8_t* at) {
    return _mm256_or_si256(nibbles_of_32<g>(at + 48 + g / 2 * 32),
                           bits_of<4 - static_cast<int>(g)>(load32(at + 16), 16));
  }
};
// Eight fields of kBits each, from the lowest on.
template <int kBits>
HWY_INLINE __m256i every(uint32_t word) {
  const __m256i places =
      _mm256_setr_epi32(0, kBits, 2 * kBits, 3 * kBits, 4 * kBits, 5 * kBits, 6 * kBits, 7 * kBits);
  return _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int32_t>(word)), places),
                          _mm256_set1_epi32((1 << kBits) - 1));
}
struct IQ4_XS {
  static constexpr size_t kElements = 256, kBytes = 136, kPart = 32;
  static constexpr bool kLeast = false;
  static constexpr int kOffset = 127;
  static HWY_INLINE void steps(const uint8_t* at, size_t, __m256* step, __m256*) {
    uint32_t lower = 0;
    uint16_t upper = 0;
    std::memcpy(&upper, at + 2, sizeof upper);
    std::memcpy(&lower, at + 4, sizeof lower);
    const __m256i six = _mm256_or_si256(every<4>(lower), _mm256_slli_epi32(every<2>(upper), 4));
    step[0] = eight_times(half_of_all(at), _mm256_sub_epi32(six, _mm256_set1_epi32(32)));
  }
  template <size_t g>
  static HWY_INLINE __m256i codes(const uint8_t* at) {
    return look_up_32(kNonlinear, kOffset, nibbles_of_16(at + 8 + g * 16));
  }
};

struct Q2_K {
  static constexpr size_t kElements = 256, kBytes = 84, kPart = 16;
  static constexpr bool kLeast = true;
  static constexpr int kOffset = 0;
  static HWY_INLINE void steps(const uint8_t* at, size_t, __m256* step, __m256* least) {
    const __m256 d = half_of_all(at + 80), dmin = half_of_all(at + 82);
    for (size_t v = 0; v < 2; ++v) {
      const __m256i both = _mm256_cvtepu8_epi32(load8(at + 8 * v));
      step[v] = eight_times(d, _mm256_and_si256(both, _mm256_set1_epi32(15)));
      least[v] = eight_times(dmin, _mm256_srli_epi32(both, 4));
    }
  }
  template <size_t g>
  static HWY_INLINE __m256i codes(const uint8_t* at) {
    return bits_of<-2 * static_cast<int>(g % 4)>(load32(at + 16 + g / 4 * 32), 3);
  }
};
struct Q3_K {
  static constexpr size_t kElements = 256, kBytes = 110, kPart = 16;
  static constexpr bool kLeast = false;
  static constexpr int kOffset = 4;
  static constexpr size_t kHalf = 108;  // where that of the block is
  // Sixteen signed bytes.
  static HWY_INLINE __m128i scales(const uint8_t* at) {
    uint32_t upper = 0;
    std::memcpy(&upper, at + 104, sizeof upper);
    const __m128i two = _mm_set1_epi8(0x30);
    const __m128i words = _mm_set1_epi32(static_cast<int32_t>(upper));
    // Two bits of each byte belong to four scales that follow each other.
    const __m128i high = _mm_and_si128(
        _mm_unpacklo_epi64(_mm_unpacklo_epi32(_mm_slli_epi32(words, 4), _mm_slli_epi32(words, 2)),
                           _mm_unpacklo_epi32(words, _mm_srli_epi32(words, 2))),
        two);
    const __m128i lower = load8(at + 96);
    const __m128i low =
        _mm_and_si128(_mm_unpacklo_epi64(lower, _mm_srli_epi32(lower, 4)), _mm_set1_epi8(15));
    return _mm_sub_epi8(_mm_or_si128(low, high), _mm_set1_epi8(32));
  }
  static HWY_INLINE void steps(const uint8_t* at, size_t, __m256* step, __m256*) {
    sixteen_times(half_of_all(at + kHalf), scales(at), step);
  }
  template <size_t g>
  static HWY_INLINE __m256i codes(const uint8_t* at) {
    return _mm256_or_si256(bits_of<-2 * static_cast<int>(g % 4)>(load32(at + 32 + g / 4 * 32), 3),
                           bits_of<2 - static_cast<int>(g)>(load32(at), 4));
  }
};
struct Q6_K {
  static constexpr size_t kElements = 256, kBytes = 210, kPart = 16;
  static constexpr bool kLeast = false;
  static constexpr int kOffset = 32;
  static constexpr size_t kHalf = 208;
  static HWY_INLINE __m128i scales(const uint8_t* at) { return load16(at + 192); }
  static HWY_INLINE void steps(const uint8_t* at, size_t, __m256* step, __m256*) {
    sixteen_times(half_of_all(at + kHalf), scales(at), step);
  }
  template <size_t g>
  static HWY_INLINE __m256i codes(const uint8_t* at) {
    constexpr size_t kHalf = g / 4, kIn = g % 4;
    constexpr int kLow = kIn < 2 ? 0 : -4, kHigh = 4 - 2 * static_cast<int>(kIn);
    return _mm256_or_si256(bits_of<kLow>(load32(at + 64 * kHalf + kIn % 2 * 32), 15),
                           bits_of<kHigh>(load32(at + 128 + 32 * kHalf), 48));
  }
};

// Calls fn with the type's struct above. False: it has none. Q8_0 is slower so from memory (a Zen 3
// core, one row, k = 2048: 19 GFLOP/s in f32 and 17); code books were not tried.
template <class Fn>
bool with_unit(BlockType type, Fn fn) {
  switch (type) {
    case BlockType::q4_0:
      return fn(Q4_0()), true;
    case BlockType::q4_1:
      return fn(Q4_1()), true;
    case BlockType::q5_0:
      return fn(Q5_0()), true;
    case BlockType::q5_1:
      return fn(Q5_1()), true;
    case BlockType::q4_k:
      return fn(Q4_K()), true;
    case BlockType::q5_k:
      return fn(Q5_K()), true;
    case BlockType::q6_k:
      return fn(Q6_K()), true;
    case BlockType::q2_k:
      return fn(Q2_K()), true;
    case BlockType::q3_k:
      return fn(Q3_K()), true;
    case BlockType::iq4_nl:
      return fn(IQ4_NL()), true;
    case BlockType::iq4_xs:
      return fn(IQ4_XS()), true;
    case BlockType::mxfp4:
      return fn(MXFP4()), true;
    default:
      return false;
  }
}

// The products of digit_rows.h, with AVX2.
//
// Included once per SIMD target, after weight_codes-inl.h; see digit_rows.cpp.
#if defined(BLEND_KERNELS_DIGIT_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BLEND_KERNELS_DIGIT_ROWS_INL_H
#undef BLEND_KERNELS_DIGIT_ROWS_INL_H
#else
#define BLEND_KERNELS_DIGIT_ROWS_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {

// ---- x

// Stores 32 integers of 20 bits and a sign as digits.
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
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(digits + digit * kDigitGroup),
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
      std::fill(digits + g * 3 * kDigitGroup, digits + (g + 1) * 3 * kDigitGroup, int8_t{0});
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
    put_digits(integers, digits + g * 3 * kDigitGroup);
    scale[g] = half_scale[2 * g] = half_scale[2 * g + 1] = step;
    half_sum[2 * g] = step * static_cast<float>(first);
    half_sum[2 * g + 1] = step * static_cast<float>(second);
    sum[g] = step * static_cast<float>(int64_t{first} + second);
  }
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

// The halves at the beginning of up to eight blocks, as f32.
template <size_t kBlockBytes>
HWY_INLINE __m256 halves(const uint8_t* at, size_t n) {
  HWY_ALIGN uint16_t half[8] = {};
  __m128i all;
  const auto one = [at](size_t b) HWY_ATTR {
    uint16_t h = 0;
    std::memcpy(&h, at + b * kBlockBytes, sizeof h);
    return static_cast<int16_t>(h);
  };
  if (n == 8) {
    all = _mm_setr_epi16(one(0), one(1), one(2), one(3), one(4), one(5), one(6), one(7));
  } else {
    for (size_t b = 0; b < n; ++b) half[b] = static_cast<uint16_t>(one(b));
    all = _mm_load_si128(reinterpret_cast<const __m128i*>(half));
  }
  return _mm256_cvtph_ps(all);
}
HWY_INLINE __m256 half_of_all(const uint8_t* at) { return _mm256_set1_ps(half_value(at)); }
HWY_INLINE __m256 eight_times(__m256 by, __m256i integers) {
  return _mm256_mul_ps(by, _mm256_cvtepi32_ps(integers));
}
HWY_INLINE __m128i load8(const uint8_t* at) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
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
  static HWY_INLINE void steps(const uint8_t* at, size_t, __m256* step, __m256* least) {
    const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const __m128i lower =
        _mm_and_si128(_mm_srlv_epi32(_mm_shuffle_epi32(words, 0xED), _mm_setr_epi32(0, 0, 0, 4)),
                      _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f));
    const __m128i upper = _mm_and_si128(_mm_srli_epi32(_mm_shuffle_epi32(words, 0x84), 2),
                                        _mm_setr_epi32(0, 0x30303030, 0, 0x30303030));
    const __m128i all = _mm_or_si128(lower, upper);
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
struct IQ4_XS {
  static constexpr size_t kElements = 256, kBytes = 136, kPart = 32;
  static constexpr bool kLeast = false;
  static constexpr int kOffset = 127;
  static HWY_INLINE void steps(const uint8_t* at, size_t, __m256* step, __m256*) {
    const auto every = [at](size_t from, int stride, int mask) HWY_ATTR {
      uint32_t word = 0;
      std::memcpy(&word, at + from, sizeof word);
      const __m256i places =
          _mm256_mullo_epi32(_mm256_set1_epi32(stride), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
      const __m256i words = _mm256_set1_epi32(static_cast<int32_t>(word));
      return _mm256_and_si256(_mm256_srlv_epi32(words, places), _mm256_set1_epi32(mask));
    };
    const __m256i six = _mm256_or_si256(every(4, 4, 15), _mm256_slli_epi32(every(2, 2, 3), 4));
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
  static HWY_INLINE void steps(const uint8_t* at, size_t, __m256* step, __m256*) {
    const __m256 d = half_of_all(at + 108);
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
    const __m128i all = _mm_sub_epi8(_mm_or_si128(low, high), _mm_set1_epi8(32));
    step[0] = eight_times(d, _mm256_cvtepi8_epi32(all));
    step[1] = eight_times(d, _mm256_cvtepi8_epi32(_mm_srli_si128(all, 8)));
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
  static HWY_INLINE void steps(const uint8_t* at, size_t, __m256* step, __m256*) {
    const __m256 d = half_of_all(at + 208);
    step[0] = eight_times(d, _mm256_cvtepi8_epi32(load8(at + 192)));
    step[1] = eight_times(d, _mm256_cvtepi8_epi32(load8(at + 200)));
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

// ---- Their product

// The sum of products of 32 codes and integers, in eight lanes of four each.
HWY_INLINE __m256 sum_of_products(__m256i codes, const int8_t* digits) {
  const auto products = [&](size_t digit, int weight) HWY_ATTR {
    const __m256i d =
        _mm256_load_si256(reinterpret_cast<const __m256i*>(digits + digit * kDigitGroup));
    return _mm256_madd_epi16(_mm256_maddubs_epi16(codes, d),
                             _mm256_set1_epi16(static_cast<int16_t>(weight)));
  };
  return _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_add_epi32(products(0, 1), products(1, 1 << 7)),
                                             products(2, 1 << 14)));
}

// kW rows of W from j on, kX rows of x from i on.
template <class W, size_t kW, size_t kX>
struct Some {
  static constexpr size_t kParts = kUnit / W::kPart;
  static constexpr bool kHalves = W::kPart < kDigitGroup;  // two steps a group
  using Sums = __m256[kW][kX];
  using Steps = float[kW][kX][kParts];

  // The steps of a unit of n blocks times those of x, and what its least values take from the sums.
  // `scale` and `sum` of x: [kParts]; rows lie row_bytes and x_bytes apart.
  static HWY_INLINE void begin(const uint8_t* at, size_t row_bytes, size_t n, const float* scale,
                               const float* sum, size_t x_bytes, Steps& steps, Sums& sums) {
    BLEND_UNROLL
    for (size_t r = 0; r < kW; ++r) {
      __m256 step[2], least[2];
      W::steps(at + r * row_bytes, n, step, least);
      BLEND_UNROLL
      for (size_t i = 0; i < kParts / 8; ++i) {
        if constexpr (W::kOffset != 0) {
          least[i] = _mm256_mul_ps(step[i], _mm256_set1_ps(static_cast<float>(W::kOffset)));
        }
        BLEND_UNROLL
        for (size_t c = 0; c < kX; ++c) {
          const size_t of_x = c * (x_bytes / sizeof(float)) + 8 * i;
          const __m256 both = _mm256_mul_ps(step[i], _mm256_loadu_ps(scale + of_x));
          _mm256_store_ps(steps[r][c] + 8 * i, both);
          if constexpr (W::kLeast || W::kOffset != 0) {
            sums[r][c] = _mm256_fnmadd_ps(least[i], _mm256_loadu_ps(sum + of_x), sums[r][c]);
          }
        }
      }
    }
  }
  template <size_t g>
  static HWY_INLINE void add(const uint8_t* at, size_t row_bytes, const int8_t* digits,
                             size_t x_bytes, const Steps& steps, Sums& sums) {
    BLEND_UNROLL
    for (size_t r = 0; r < kW; ++r) {
      const __m256i codes = W::template codes<g>(at + r * row_bytes);
      BLEND_UNROLL
      for (size_t c = 0; c < kX; ++c) {
        const __m256 products = sum_of_products(codes, digits + c * x_bytes + g * 3 * kDigitGroup);
        __m256 step;
        if constexpr (kHalves) {
          step = _mm256_castpd_ps(
              _mm256_broadcast_sd(reinterpret_cast<const double*>(steps[r][c] + 2 * g)));
          step = _mm256_permutevar_ps(step, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
        } else {
          step = _mm256_broadcast_ss(steps[r][c] + g);
        }
        sums[r][c] = _mm256_fmadd_ps(products, step, sums[r][c]);
      }
    }
  }

  template <size_t... g>
  static HWY_INLINE void multiply(const FewRows& p, size_t j, size_t i, std::index_sequence<g...>) {
    const size_t row_bytes = p.k / W::kElements * (W::kBytes / (kUnit / W::kElements));
    const size_t x_bytes = DigitRow::bytes(p.k);
    const auto* at = reinterpret_cast<const uint8_t*>(p.w) + j * row_bytes;
    const auto* ahead = at + kW * row_bytes;
    const DigitRow x(p.digits + i * x_bytes, p.k);
    const float* scale = kHalves ? x.half_scale : x.scale;
    const float* sum = kHalves ? x.half_sum : x.sum;
    const int8_t* digits = x.digits;
    Sums sums;
    BLEND_UNROLL
    for (size_t n = 0; n < kW * kX; ++n) sums[n / kX][n % kX] = _mm256_setzero_ps();
    HWY_ALIGN Steps steps;
    size_t left = p.k / kDigitGroup;
    for (; left >= kUnitGroups; left -= kUnitGroups) {
      BLEND_UNROLL
      for (size_t line = 0; line < kW * W::kBytes; line += 64) hwy::Prefetch(ahead + line);
      begin(at, row_bytes, kUnit / W::kElements, scale, sum, x_bytes, steps, sums);
      (add<g>(at, row_bytes, digits, x_bytes, steps, sums), ...);
      at += W::kBytes;
      ahead += kW * W::kBytes;
      scale += kParts;
      sum += kParts;
      digits += kUnitGroups * 3 * kDigitGroup;
    }
    if constexpr (W::kElements < kUnit) {
      if (left != 0) {
        begin(at, row_bytes, left, scale, sum, x_bytes, steps, sums);
        ((g < left ? add<g>(at, row_bytes, digits, x_bytes, steps, sums) : void()), ...);
      }
    }
    BLEND_UNROLL
    for (size_t c = 0; c < kX; ++c) {
      float* const y = p.y + (i + c) * p.y_stride + j;
      BLEND_UNROLL
      for (size_t r = 0; r < kW; ++r) {
        const __m256 v = sums[r][c];
        __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
        s = _mm_add_ps(s, _mm_movehl_ps(s, s));
        const float total = _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
        y[r] = p.accumulate ? y[r] + total : total;
      }
    }
  }
};
template <class W, size_t kW, size_t kX>
void multiply_some(const FewRows& p, size_t j, size_t i) {
  Some<W, kW, kX>::multiply(p, j, i, std::make_index_sequence<kUnitGroups>());
}

// Rows of x are in the second-level cache: each is read once for some rows of W.
constexpr size_t kTogether = 2;
template <class W, size_t kRowsOfW>
void multiply_rows(const FewRows& p, size_t j) {
  size_t i = 0;
  for (; i + 4 <= p.m; i += 4) multiply_some<W, kRowsOfW, 4>(p, j, i);
  for (; i + 2 <= p.m; i += 2) multiply_some<W, kRowsOfW, 2>(p, j, i);
  if (i < p.m) multiply_some<W, kRowsOfW, 1>(p, j, i);
}
template <class W>
void multiply_all(const FewRows& p) {
  size_t j = 0;
  for (; j + kTogether <= p.n; j += kTogether) multiply_rows<W, kTogether>(p, j);
  for (; j < p.n; ++j) multiply_rows<W, 1>(p, j);
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

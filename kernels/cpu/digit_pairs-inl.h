// Units of digit_units-inl.h in vectors of 64 bytes: two groups' codes, sixteen steps. AVX-512's
// instructions.
//
// Included as digit_units-inl.h is, and after it.

// ---- Codes: pair_codes<i>(W(), at) are those of the i-th pair of a unit's groups (DigitRow), for
// types whose pairs lie together. Others are put together from two groups.

HWY_INLINE __m512i load64(const uint8_t* at) { return _mm512_loadu_si512(at); }
HWY_INLINE __m512i load32_twice(const uint8_t* at) { return _mm512_broadcast_i64x4(load32(at)); }
HWY_INLINE __m512i each_of_64(int value) { return _mm512_set1_epi8(static_cast<char>(value)); }
HWY_INLINE __m512i two_halves(int16_t first, int16_t second) {
  return _mm512_inserti64x4(_mm512_set1_epi16(first), _mm256_set1_epi16(second), 1);
}
HWY_INLINE __m512i two_halves_of_bytes(int first, int second) {
  return _mm512_inserti64x4(each_of_64(first), each_byte(second), 1);
}
// Bits from `first` on for the first half, from `second` on for the second.
HWY_INLINE __m512i right_by(__m512i v, int16_t first, int16_t second, int mask) {
  return _mm512_and_si512(_mm512_srlv_epi16(v, two_halves(first, second)), each_of_64(mask));
}
// `more` is added where a group's bit of 32 bytes is set.
template <size_t first>
HWY_INLINE __m512i add_where_set(__m512i codes, const uint8_t* bits, int more) {
  const __m512i own = two_halves_of_bytes(1 << first, 1 << (first + 2));
  const __mmask64 set = _mm512_test_epi8_mask(load32_twice(bits), own);
  return _mm512_mask_add_epi8(codes, set, codes, each_of_64(more));
}
template <size_t i>
HWY_INLINE __m512i nibbles_of_64(const uint8_t* at) {
  __m512i v = load64(at);
  if constexpr (i % 2 != 0) v = _mm512_srli_epi16(v, 4);
  return _mm512_and_si512(v, each_of_64(15));
}
template <size_t i>
HWY_INLINE __m512i pair_codes(Q4_K, const uint8_t* at) {
  return nibbles_of_64<i>(at + 16 + i / 2 * 64);
}
template <size_t i>
HWY_INLINE __m512i pair_codes(Q5_K, const uint8_t* at) {
  return add_where_set<DigitRow::first_of_pair(i)>(nibbles_of_64<i>(at + 48 + i / 2 * 64), at + 16,
                                                   16);
}
template <size_t i>
HWY_INLINE __m512i two_bits_of_64(const uint8_t* at) {
  constexpr int16_t kFirst = 2 * (i % 2);
  return right_by(load32_twice(at + i / 2 * 32), kFirst, kFirst + 4, 3);
}
template <size_t i>
HWY_INLINE __m512i pair_codes(Q2_K, const uint8_t* at) {
  return two_bits_of_64<i>(at + 16);
}
template <size_t i>
HWY_INLINE __m512i pair_codes(Q3_K, const uint8_t* at) {
  return add_where_set<DigitRow::first_of_pair(i)>(two_bits_of_64<i>(at + 32), at, 4);
}
template <size_t i>
HWY_INLINE __m512i pair_codes(Q6_K, const uint8_t* at) {
  const __m512i low = right_by(load32_twice(at + i / 2 * 64 + i % 2 * 32), 0, 4, 15);
  const __m512i bits = load32_twice(at + 128 + i / 2 * 32);
  const __m512i high = i % 2 == 0 ? _mm512_sllv_epi16(bits, two_halves(4, 0))
                                  : right_by(_mm512_sllv_epi16(bits, two_halves(2, 0)), 0, 2, 255);
  return _mm512_or_si512(low, _mm512_and_si512(high, each_of_64(48)));
}
// A group's first half is in the low nibbles of sixteen bytes, its second in the high ones.
template <size_t i>
HWY_INLINE __m512i pair_codes(IQ4_XS, const uint8_t* at) {
  const __m512i four = load64(at + 8 + i / 2 * 64);
  constexpr int kOwn = i % 2 == 0 ? 0xA0 : 0xF5;
  const __m512i nibbles =
      _mm512_and_si512(_mm512_srlv_epi64(_mm512_shuffle_i64x2(four, four, kOwn),
                                         _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4)),
                       each_of_64(15));
  const __m128i table = _mm_add_epi8(load16(reinterpret_cast<const uint8_t*>(kNonlinear)),
                                     _mm_set1_epi8(IQ4_XS::kOffset));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), nibbles);
}

// ---- Steps

// [kParts], the rest 0.
template <size_t kParts>
HWY_INLINE __m512 parts(const __m256* v) {
  if constexpr (kParts == 16) return _mm512_insertf32x8(_mm512_castps256_ps512(v[0]), v[1], 1);
  return _mm512_zextps256_ps512(v[0]);
}
template <size_t kParts>
HWY_INLINE __m512 parts(const float* v) {
  if constexpr (kParts == 16) return _mm512_loadu_ps(v);
  return _mm512_zextps256_ps512(_mm256_loadu_ps(v));
}

// Of any type.
template <class W>
struct PairSteps {
  static constexpr size_t kParts = kUnit / W::kPart;
  static constexpr bool kTakes = W::kLeast || W::kOffset != 0;
  __m512 step, least;

  HWY_INLINE PairSteps(const uint8_t* at, size_t n) {
    if constexpr (requires { W::scales(at); }) {
      step = _mm512_mul_ps(_mm512_set1_ps(half_as_float(at + W::kHalf)),
                           _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(W::scales(at))));
    } else {
      __m256 steps[2], leasts[2];
      W::steps(at, n, steps, leasts);
      step = parts<kParts>(steps);
      if constexpr (W::kLeast) least = parts<kParts>(leasts);
    }
    if constexpr (W::kOffset != 0) least = _mm512_mul_ps(step, _mm512_set1_ps(W::kOffset));
  }
  HWY_INLINE void times(const float* scale, const float* sum, __m512& steps, __m512& sums) const {
    if constexpr (kTakes) sums = _mm512_fnmadd_ps(least, parts<kParts>(sum), sums);
    steps = _mm512_mul_ps(step, parts<kParts>(scale));
  }
};
// Eight steps and eight least values, which are in the upper half.
template <class W>
requires std::is_base_of_v<EightParts, W>
struct PairSteps<W> {
  __m512 both;

  HWY_INLINE PairSteps(const uint8_t* at, size_t) {
    const __m128i words = load16(at);
    const __m512i bytes = _mm512_cvtepu8_epi32(EightParts::scales_and_leasts(words));
    const __m512i half = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m512 d = _mm512_castps128_ps512(_mm_cvtph_ps(words));
    both = _mm512_mul_ps(_mm512_permutexvar_ps(half, d), _mm512_cvtepi32_ps(bytes));
  }
  HWY_INLINE void times(const float* scale, const float* sum, __m512& steps, __m512& sums) const {
    const __m512 of_x = _mm512_insertf32x8(parts<8>(scale), _mm256_loadu_ps(sum), 1);
    steps = _mm512_mul_ps(both, of_x);
    sums = _mm512_mask_sub_ps(sums, 0xff00, sums, steps);
  }
};
template <>
struct PairSteps<Q2_K> {
  __m512 step, least;

  HWY_INLINE PairSteps(const uint8_t* at, size_t) {
    const __m512i bytes = _mm512_cvtepu8_epi32(load16(at));
    const __m512i low = _mm512_and_si512(bytes, _mm512_set1_epi32(15));
    const __m512i high = _mm512_srli_epi32(bytes, 4);
    step = _mm512_mul_ps(_mm512_set1_ps(half_as_float(at + 80)), _mm512_cvtepi32_ps(low));
    least = _mm512_mul_ps(_mm512_set1_ps(half_as_float(at + 82)), _mm512_cvtepi32_ps(high));
  }
  HWY_INLINE void times(const float* scale, const float* sum, __m512& steps, __m512& sums) const {
    sums = _mm512_fnmadd_ps(least, _mm512_loadu_ps(sum), sums);
    steps = _mm512_mul_ps(step, _mm512_loadu_ps(scale));
  }
};

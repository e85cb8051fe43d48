// The products of digit_rows.h, written once for all instructions that multiply bytes.
//
// Included as digit_units-inl.h is, and after it. A Lanes has
//   kTogether        rows of W at a time, for each of which a row of x is read once
//   Sums, Codes      vector types
//   Steps<W>         of a unit's parts: steps of W times those of x
//   zero(), total(Sums)
//   UnitSteps<W>     (at, n): steps and least values of a unit of n blocks of a row of W
//     times(scale, sum, sums)  those times `scale`; sums -= least values * sum
//   kPieces          of a unit, one vector of codes each; first(i), last(i): their groups
//   codes<W, i>(at), first_codes<W, i>(at)
//                    those of the i-th piece; of its first group, the others 0
//   add<W, i>(codes, digits, steps, sums)
//                    sums += codes * digits * steps

// kW rows of W from j on, kX rows of x from i on.
template <class Lanes, class W, size_t kW, size_t kX>
struct SomeRows {
  static constexpr size_t kParts = kUnit / W::kPart;
  using Sums = typename Lanes::Sums[kW][kX];
  using Steps = typename Lanes::template Steps<W>[kW][kX];

  // For a unit of n blocks. `scale` and `sum` of x: [kParts]; rows lie row_bytes and x_bytes apart.
  static HWY_INLINE void begin(const uint8_t* at, size_t row_bytes, size_t n, const float* scale,
                               const float* sum, size_t x_bytes, Steps& steps, Sums& sums) {
    BLEND_UNROLL
    for (size_t r = 0; r < kW; ++r) {
      const typename Lanes::template UnitSteps<W> unit(at + r * row_bytes, n);
      BLEND_UNROLL
      for (size_t c = 0; c < kX; ++c) {
        const size_t of_x = c * (x_bytes / sizeof(float));
        unit.times(scale + of_x, sum + of_x, steps[r][c], sums[r][c]);
      }
    }
  }
  // n: the groups that are left of the unit.
  template <size_t i>
  static HWY_INLINE void add(const uint8_t* at, size_t row_bytes, size_t n, const int8_t* digits,
                             size_t x_bytes, const Steps& steps, Sums& sums) {
    if (n <= Lanes::first(i)) return;
    BLEND_UNROLL
    for (size_t r = 0; r < kW; ++r) {
      const uint8_t* const row = at + r * row_bytes;
      const typename Lanes::Codes codes = n <= Lanes::last(i)
                                              ? Lanes::template first_codes<W, i>(row)
                                              : Lanes::template codes<W, i>(row);
      BLEND_UNROLL
      for (size_t c = 0; c < kX; ++c) {
        Lanes::template add<W, i>(codes, digits + c * x_bytes, steps[r][c], sums[r][c]);
      }
    }
  }

  template <size_t... i>
  static HWY_INLINE void multiply(const FewRows& p, size_t j, size_t first,
                                  std::index_sequence<i...>) {
    const size_t row_bytes = p.k / W::kElements * (W::kBytes / (kUnit / W::kElements));
    const size_t x_bytes = DigitRow::bytes(p.k);
    const auto* at = reinterpret_cast<const uint8_t*>(p.w) + j * row_bytes;
    const auto* ahead = at + kW * row_bytes;
    const DigitRow x(p.digits + first * x_bytes, p.k);
    constexpr bool kHalves = W::kPart < kDigitGroup;  // two steps a group
    const float* scale = kHalves ? x.half_scale : x.scale;
    const float* sum = kHalves ? x.half_sum : x.sum;
    const int8_t* digits = x.digits;
    Sums sums;
    BLEND_UNROLL
    for (size_t n = 0; n < kW * kX; ++n) sums[n / kX][n % kX] = Lanes::zero();
    Steps steps;
    size_t left = p.k / kDigitGroup;
    for (; left >= kUnitGroups; left -= kUnitGroups) {
      BLEND_UNROLL
      for (size_t line = 0; line < kW * W::kBytes; line += 64) __builtin_prefetch(ahead + line);
      begin(at, row_bytes, kUnit / W::kElements, scale, sum, x_bytes, steps, sums);
      (add<i>(at, row_bytes, kUnitGroups, digits, x_bytes, steps, sums), ...);
      at += W::kBytes;
      ahead += kW * W::kBytes;
      scale += kParts;
      sum += kParts;
      digits += DigitRow::digit_bytes(kUnitGroups);
    }
    if constexpr (W::kElements < kUnit) {
      if (left != 0) {
        begin(at, row_bytes, left, scale, sum, x_bytes, steps, sums);
        (add<i>(at, row_bytes, left, digits, x_bytes, steps, sums), ...);
      }
    }
    BLEND_UNROLL
    for (size_t c = 0; c < kX; ++c) {
      float* const y = p.y + (first + c) * p.y_stride + j;
      BLEND_UNROLL
      for (size_t r = 0; r < kW; ++r) {
        const float total = Lanes::total(sums[r][c]);
        y[r] = p.accumulate ? y[r] + total : total;
      }
    }
  }
};
template <class Lanes, class W, size_t kW, size_t kX>
void multiply_some(const FewRows& p, size_t j, size_t i) {
  SomeRows<Lanes, W, kW, kX>::multiply(p, j, i, std::make_index_sequence<Lanes::kPieces>());
}

// Rows of x are in the second-level cache: each is read once for some rows of W.
template <class Lanes, class W, size_t kW>
void multiply_rows(const FewRows& p, size_t j) {
  size_t i = 0;
  constexpr size_t kFewer =
      std::min<size_t>(kW, 2);  // sums and steps of more do not stay in registers
  for (; i + 4 <= p.m; i += 4) {
    for (size_t r = 0; r < kW; r += kFewer) multiply_some<Lanes, W, kFewer, 4>(p, j + r, i);
  }
  for (; i + 2 <= p.m; i += 2) multiply_some<Lanes, W, kW, 2>(p, j, i);
  if (i < p.m) multiply_some<Lanes, W, kW, 1>(p, j, i);
}
template <class Lanes, class W>
void multiply_all(const FewRows& p) {
  size_t j = 0;
  for (; j + Lanes::kTogether <= p.n; j += Lanes::kTogether) {
    multiply_rows<Lanes, W, Lanes::kTogether>(p, j);
  }
  for (; j < p.n; ++j) multiply_rows<Lanes, W, 1>(p, j);
}

#include "cpu/rans_rows.h"

#include <array>
#include <cstring>
#include <type_traits>
#include <vector>

#include "cpu/rans_model.h"
#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/rans_rows.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

#ifndef BLEND_KERNELS_RANS_ONCE
#define BLEND_KERNELS_RANS_ONCE
namespace blend::kernels {

// For each table and each of the 2^10 places of a state's lowest bits: the distance that the symbol
// there stands for (the escape's is one past the largest), its frequency, and the place less the
// first of the symbol's.
struct RansTables {
  static constexpr uint32_t kPlaces = 1u << kRansBits;
  std::array<int32_t, size_t{kRansTables} * kPlaces> at;
  std::array<std::array<uint16_t, kRansEscape + 2>, kRansTables> first;  // of each symbol

  RansTables() {
    for (uint32_t t = 0; t < kRansTables; ++t) {
      uint32_t place = 0;
      for (uint32_t symbol = 0; symbol <= kRansEscape; ++symbol) {
        const auto distance = static_cast<int32_t>(symbol) - kRansReach;
        const uint32_t n = symbol == kRansEscape
                               ? kRansFrequencies[t][kRansReach + 1]
                               : kRansFrequencies[t][distance < 0 ? -distance : distance];
        first[t][symbol] = static_cast<uint16_t>(place);
        for (uint32_t i = 0; i < n; ++i, ++place) {
          at[t * kPlaces + place] = distance * (1 << 20) + static_cast<int32_t>(n << 10 | i);
        }
      }
      first[t][kRansEscape + 1] = static_cast<uint16_t>(place);
    }
  }
};
inline const RansTables& rans_tables() {
  static const RansTables kTables;
  return kTables;
}

// Where the words of a mask's lanes are among those that were read: for lane i the number of lanes
// before it that take one.
using WordPlaces = std::array<std::array<uint8_t, 8>, 256>;
inline constexpr WordPlaces kWordPlaces = [] {
  WordPlaces places{};
  for (size_t mask = 0; mask < 256; ++mask) {
    uint8_t n = 0;
    for (size_t i = 0; i < 8; ++i) {
      places[mask][i] = n;
      n = static_cast<uint8_t>(n + (mask >> i & 1));
    }
  }
  return places;
}();

inline int16_t load_i16(const uint8_t* p) {
  int16_t x = 0;
  std::memcpy(&x, p, sizeof x);
  return x;
}

inline int32_t within_most(int32_t number) { return std::clamp(number, -kRansMost, kRansMost); }

// Columns [c, end) of a row, one by one.
inline bool decode_columns(const RansTables& tables, RansReader& r, size_t row, uint32_t shift,
                           size_t c, size_t end, int32_t* mean, int32_t* size, int16_t* out) {
  const RansPace pace = rans_pace(row);
  for (; c < end; ++c) {
    uint32_t& x = r.states[c & (r.n_states - 1)];
    const RansPlace place = rans_place(size[c], shift);
    const auto low = static_cast<int32_t>(x & ((1u << place.low) - 1));
    x >>= place.low;
    const int32_t found = tables.at[place.table << kRansBits | (x & (RansTables::kPlaces - 1))];
    const auto entry = static_cast<uint32_t>(found);
    x = (entry >> 10 & 1023) * (x >> kRansBits) + (entry & 1023);
    if (x < kRansFirst) {
      if (r.words_end - r.words < 2) return false;
      x = x << 16 | static_cast<uint16_t>(load_i16(r.words));
      r.words += 2;
    }
    const int32_t distance = found >> 20;
    int32_t number = 0;
    if (distance > kRansReach) {
      if (r.escapes_end - r.escapes < 2) return false;
      number = load_i16(r.escapes);
      r.escapes += 2;
    } else {
      number = rans_expected(mean[c], shift) + distance * (1 << place.low) + low;
    }
    number = within_most(number);
    out[c] = static_cast<int16_t>(number);
    rans_follow(number, shift, pace, mean[c], size[c]);
  }
  return true;
}

}  // namespace blend::kernels
#endif  // BLEND_KERNELS_RANS_ONCE

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DI = hn::CappedTag<int32_t, 8>;
using DU = hn::Rebind<uint32_t, DI>;
using DF = hn::Rebind<float, DI>;
using VI = hn::Vec<DI>;

// Reads for the lanes whose state fell below 2^16, in the order of the lanes.
HWY_INLINE hn::Vec<DU> Refill(DU du, hn::Vec<DU> x, const uint8_t*& from) {
  const hn::Rebind<uint16_t, DU> d16;
  const hn::Rebind<uint8_t, DU> d8;
  const auto low = hn::Eq(hn::ShiftRight<16>(x), hn::Zero(du));
  uint8_t bits[8] = {};
  hn::StoreMaskBits(du, low, bits);
  constexpr size_t kLanes = hn::MaxLanes(DU());
  const uint32_t mask = bits[0] & ((1u << kLanes) - 1);
  const auto words = hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from)));
  const auto places = hn::PromoteTo(du, hn::LoadU(d8, kWordPlaces[mask].data()));
  const auto taken = hn::TableLookupLanes(words, hn::IndicesFromVec(du, places));
  from += 2 * static_cast<size_t>(std::popcount(mask));
  return hn::IfThenElse(low, hn::Or(hn::ShiftLeft<16>(x), taken), x);
}

// What decode_columns() does, for as many columns as there are lanes, whose words must be there.
// words, states: the reader's. The place of the words is the caller's variable: what is stored
// through pointers to numbers could be the reader's own.
HWY_INLINE bool DecodeLanes(const int32_t* HWY_RESTRICT tables, RansReader& r,
                            const uint8_t*& words, uint32_t* HWY_RESTRICT states, RansPace pace,
                            uint32_t shift, int32_t* HWY_RESTRICT mean, int32_t* HWY_RESTRICT size,
                            int16_t* HWY_RESTRICT out) {
  const DI d;
  const DU du;
  const hn::Rebind<int16_t, DI> d16;
  constexpr auto kLast = static_cast<int32_t>(kRansTables) - 1;
  const auto whole_shift = static_cast<int>(shift + 4);
  auto x = hn::LoadU(du, states);
  const VI m = hn::LoadU(d, mean);
  const VI s = hn::LoadU(d, size);

  const VI log4 = hn::Sub(hn::ShiftRight<21>(hn::BitCast(d, hn::ConvertTo(DF(), s))),
                          hn::Set(d, 127 * 4 + 4 * static_cast<int32_t>(shift)));
  const VI place = hn::Min(hn::Max(log4, hn::Zero(d)), hn::Set(d, kLast + 4 * kRansMostLow));
  const VI low_bits =
      hn::ShiftRight<2>(hn::Max(hn::Sub(place, hn::Set(d, kLast - 3)), hn::Zero(d)));
  const VI table = hn::Sub(place, hn::ShiftLeft<2>(low_bits));
  VI low = hn::Zero(d);
  const bool has_low = !hn::AllTrue(d, hn::Eq(low_bits, hn::Zero(d)));
  if (has_low) {
    const auto bits = hn::BitCast(du, low_bits);
    const auto ones = hn::Sub(hn::Shl(hn::Set(du, 1), bits), hn::Set(du, 1));
    low = hn::BitCast(d, hn::And(x, ones));
    x = hn::Shr(x, bits);
  }
  const auto lowest = hn::And(x, hn::Set(du, RansTables::kPlaces - 1));
  const VI at = hn::Or(hn::ShiftLeft<kRansBits>(table), hn::BitCast(d, lowest));
  const auto entry = hn::BitCast(du, hn::GatherIndex(d, tables, at));
  const auto ten = hn::Set(du, 1023);
  x = hn::Add(hn::Mul(hn::And(hn::ShiftRight<10>(entry), ten), hn::ShiftRight<kRansBits>(x)),
              hn::And(entry, ten));
  hn::StoreU(Refill(du, x, words), du, states);

  const VI symbol = hn::ShiftRight<20>(hn::BitCast(d, entry));
  VI distance = symbol;
  if (has_low) {
    const auto bits = hn::BitCast(du, low_bits);
    distance = hn::Add(hn::BitCast(d, hn::Shl(hn::BitCast(du, distance), bits)), low);
  }
  const VI expected = hn::ShiftRightSame(hn::Add(m, hn::Set(d, rans_half(shift + 4))), whole_shift);
  VI number = hn::Add(expected, distance);
  if (const auto escaped = hn::Eq(symbol, hn::Set(d, kRansReach + 1)); !hn::AllFalse(d, escaped)) {
    constexpr size_t kLanes = hn::MaxLanes(DI());
    int32_t numbers[kLanes], symbols[kLanes];
    hn::StoreU(number, d, numbers);
    hn::StoreU(symbol, d, symbols);
    for (size_t i = 0; i < kLanes; ++i) {
      if (symbols[i] != kRansReach + 1) continue;
      if (r.escapes_end - r.escapes < 2) return false;
      numbers[i] = load_i16(r.escapes);
      r.escapes += 2;
    }
    number = hn::LoadU(d, numbers);
  }
  number = hn::Min(hn::Max(number, hn::Set(d, -kRansMost)), hn::Set(d, kRansMost));
  hn::StoreU(hn::DemoteTo(d16, number), d16, out);

  const VI off = hn::Sub(hn::ShiftLeftSame(number, whole_shift), m);
  const VI step = hn::ShiftRightSame(hn::Add(off, hn::Set(d, rans_half(pace.mean))),
                                     static_cast<int>(pace.mean));
  const VI wider = hn::Sub(hn::Abs(off), s);
  const VI grow = hn::ShiftRightSame(hn::Add(wider, hn::Set(d, rans_half(pace.size))),
                                     static_cast<int>(pace.size));
  hn::StoreU(hn::Add(m, step), d, mean);
  hn::StoreU(hn::Max(hn::Add(s, grow), hn::Set(d, 1)), d, size);
  return true;
}

bool DecodeRow(RansReader& r, size_t row, uint32_t shift, size_t cols, int32_t* mean, int32_t* size,
               int16_t* out) {
  const RansTables& tables = rans_tables();
  const RansPace pace = rans_pace(row);
  constexpr size_t kLanes = hn::MaxLanes(DI());
  const size_t last_state = r.n_states - 1;
  const uint8_t* words = r.words;
  const uint8_t* const words_end = r.words_end;
  size_t c = 0;
  for (; c + kLanes <= cols && static_cast<size_t>(words_end - words) >= 2 * kLanes; c += kLanes) {
    if (!DecodeLanes(tables.at.data(), r, words, r.states + (c & last_state), pace, shift, mean + c,
                     size + c, out + c)) {
      return false;
    }
  }
  r.words = words;
  return decode_columns(tables, r, row, shift, c, cols, mean, size, out);
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(DecodeRow);

bool rans_decode_row(RansReader& reader, size_t row, uint32_t shift, size_t cols, int32_t* mean,
                     int32_t* size, int16_t* out) {
  return HWY_DYNAMIC_DISPATCH(DecodeRow)(reader, row, shift, cols, mean, size, out);
}

bool rans_decode_row_ref(RansReader& reader, size_t row, uint32_t shift, size_t cols, int32_t* mean,
                         int32_t* size, int16_t* out) {
  return decode_columns(rans_tables(), reader, row, shift, 0, cols, mean, size, out);
}

void rans_code_row(const int32_t* numbers, size_t row, uint32_t shift, size_t cols, int32_t* mean,
                   int32_t* size, RansCode* codes) {
  const RansTables& tables = rans_tables();
  const RansPace pace = rans_pace(row);
  for (size_t c = 0; c < cols; ++c) {
    const RansPlace place = rans_place(size[c], shift);
    const int32_t distance = numbers[c] - rans_expected(mean[c], shift);
    const int32_t high = distance >> place.low;
    const bool escapes = high < -kRansReach || high > kRansReach ||
                         kRansFrequencies[place.table][high < 0 ? -high : high] == 0;
    const uint32_t symbol = escapes ? kRansEscape : static_cast<uint32_t>(high + kRansReach);
    const auto& first = tables.first[place.table];
    codes[c] = {first[symbol], static_cast<uint16_t>(first[symbol + 1] - first[symbol]),
                static_cast<uint8_t>(escapes ? 0 : distance & ((1 << place.low) - 1)),
                static_cast<uint8_t>(place.low), escapes};
    rans_follow(numbers[c], shift, pace, mean[c], size[c]);
  }
}

uint16_t* rans_put_row(const RansCode* codes, size_t cols, size_t n_states, uint32_t* states,
                       uint16_t* words) {
  for (size_t c = cols; c > 0; --c) {
    const RansCode& code = codes[c - 1];
    uint32_t& state = states[(c - 1) & (n_states - 1)];
    // So that what the decoder finds before it reads a word is below 2^32.
    if (state >= uint64_t{code.frequency} << (32 - kRansBits - code.low_bits)) {
      *--words = static_cast<uint16_t>(state);
      state >>= 16;
    }
    const uint32_t whole = state / code.frequency;
    const uint32_t high = (whole << kRansBits) + (state - whole * code.frequency) + code.start;
    state = high << code.low_bits | code.low;
  }
  return words;
}

}  // namespace blend::kernels
#endif  // HWY_ONCE

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

// For each table and each of the 2^10 slots of a state's lowest bits, from the highest bit on: the
// frequency of the symbol there (10 bits), its distance (6; the escape's is one past the largest),
// and the slot less the first of the symbol's (10).
struct RansTables {
  static constexpr uint32_t kPlaces = 1u << kRansBits;
  std::array<uint32_t, size_t{kRansTables} * kPlaces> at;
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
          at[t * kPlaces + place] = n << 22 | (static_cast<uint32_t>(distance) & 63) << 16 | i;
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

// Indexed by which lanes take a word: where its two bytes are among those read, for each byte of
// the lanes. Others get zeros (the highest bit is set).
struct RansWordPlaces {
  alignas(32) std::array<std::array<uint8_t, 32>, 256> at;
};
inline constexpr RansWordPlaces kRansWordPlaces = [] {
  RansWordPlaces places{};
  for (size_t mask = 0; mask < 256; ++mask) {
    uint8_t next = 0;
    for (size_t lane = 0; lane < 8; ++lane) {
      uint8_t* const at = &places.at[mask][4 * lane];
      at[0] = at[1] = at[2] = at[3] = 0x80;
      if ((mask >> lane & 1) == 0) continue;
      at[0] = next++;
      at[1] = next++;
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
    const uint32_t entry = tables.at[place.table << kRansBits | (x & (RansTables::kPlaces - 1))];
    x = (entry >> 22) * (x >> kRansBits) + (entry & 1023);
    if (x < kRansFirst) {
      if (r.words_end - r.words < 2) return false;
      x = x << 16 | static_cast<uint16_t>(load_i16(r.words));
      r.words += 2;
    }
    const int32_t distance = static_cast<int32_t>(entry << 10) >> 26;
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

#if HWY_TARGET != HWY_SCALAR
using DI = hn::CappedTag<int32_t, 8>;
using DU = hn::Rebind<uint32_t, DI>;
using DF = hn::Rebind<float, DI>;
using VI = hn::Vec<DI>;
using VU = hn::Vec<DU>;
constexpr size_t kReadAtOnce = 16;  // bytes

// The entries of a table, one by one into a vector: a gather is slower where the processor has
// it in microcode, and the next row's states wait for this.
HWY_INLINE VU Entries(DU du, const uint32_t* tables, VU places) {
  constexpr size_t kLanes = hn::MaxLanes(DU());
  HWY_ALIGN uint32_t at[kLanes];
  HWY_ALIGN uint32_t entries[kLanes];
  hn::Store(places, du, at);
  for (size_t i = 0; i < kLanes; ++i) entries[i] = tables[at[i]];
  return hn::Load(du, entries);
}

// Reads for the lanes whose state fell below 2^16, in the order of the lanes.
HWY_INLINE VU Refill(DU du, VU x, const uint8_t*& from) {
  const hn::Repartition<uint8_t, DU> d8;
  const auto fell = hn::Eq(hn::ShiftRight<16>(x), hn::Zero(du));
  uint8_t bits[8] = {};
  hn::StoreMaskBits(du, fell, bits);
  constexpr size_t kLanes = hn::MaxLanes(DU());
  const uint32_t mask = bits[0] & ((1u << kLanes) - 1);
  const auto places = hn::Load(d8, kRansWordPlaces.at[mask].data());
  const auto taken = hn::TableLookupBytesOr0(hn::LoadDup128(d8, from), places);
  from += 2 * static_cast<size_t>(std::popcount(mask));
  const VU up = hn::And(hn::VecFromMask(du, fell), hn::Set(du, 16));
  return hn::Or(hn::Shl(x, up), hn::BitCast(du, taken));
}

// Like decode_columns(), for as many columns as there are lanes, where kReadAtOnce bytes of
// words are left. The position of the words is the caller's variable: a store through pointers
// to numbers could alias the reader's own. No branches depend on the numbers except the escape's:
// channels of one row differ in size.
HWY_INLINE bool DecodeLanes(const uint32_t* HWY_RESTRICT tables, RansReader& r,
                            const uint8_t*& words, VU& state, RansPace pace, uint32_t shift,
                            int32_t* HWY_RESTRICT mean, int32_t* HWY_RESTRICT size,
                            int16_t* HWY_RESTRICT out) {
  const DI d;
  const DU du;
  const hn::Rebind<int16_t, DI> d16;
  constexpr auto kLast = static_cast<int32_t>(kRansTables) - 1;
  const auto whole_shift = static_cast<int>(shift + 4);
  const VI m = hn::LoadU(d, mean);
  const VI s = hn::LoadU(d, size);

  const VI log4 = hn::Sub(hn::ShiftRight<21>(hn::BitCast(d, hn::ConvertTo(DF(), s))),
                          hn::Set(d, 127 * 4 + 4 * static_cast<int32_t>(shift)));
  const VI place = hn::Min(hn::Max(log4, hn::Zero(d)), hn::Set(d, kLast + 4 * kRansMostLow));
  const VI low_bits =
      hn::ShiftRight<2>(hn::Max(hn::Sub(place, hn::Set(d, kLast - 3)), hn::Zero(d)));
  const VI table = hn::Sub(place, hn::ShiftLeft<2>(low_bits));
  const VU bits = hn::BitCast(du, low_bits);
  const VU x = hn::Shr(state, bits);
  const VI low = hn::BitCast(d, hn::Sub(state, hn::Shl(x, bits)));
  const VU lowest = hn::And(x, hn::Set(du, RansTables::kPlaces - 1));
  const VU entry =
      Entries(du, tables, hn::Or(hn::BitCast(du, hn::ShiftLeft<kRansBits>(table)), lowest));
  const VU before = hn::Mul(hn::ShiftRight<22>(entry), hn::ShiftRight<kRansBits>(x));
  state = Refill(du, hn::Add(before, hn::And(entry, hn::Set(du, 1023))), words);

  const VI symbol = hn::ShiftRight<26>(hn::BitCast(d, hn::ShiftLeft<10>(entry)));
  const VI distance = hn::Add(hn::BitCast(d, hn::Shl(hn::BitCast(du, symbol), bits)), low);
  const VI expected = hn::ShiftRightSame(hn::Add(m, hn::Set(d, rans_half(shift + 4))), whole_shift);
  VI number = hn::Add(expected, distance);
  const auto escaped = hn::Eq(symbol, hn::Set(d, kRansReach + 1));
  if (HWY_UNLIKELY(!hn::AllFalse(d, escaped))) {
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

// one_vector: all states are in one, which stays in a register from column to column.
template <bool one_vector>
HWY_INLINE bool DecodeColumns(RansReader& r, size_t row, uint32_t shift, size_t cols, int32_t* mean,
                              int32_t* size, int16_t* out) {
  const DU du;
  const RansTables& tables = rans_tables();
  const RansPace pace = rans_pace(row);
  constexpr size_t kLanes = hn::MaxLanes(DI());
  const size_t last_state = r.n_states - 1;
  const uint8_t* words = r.words;
  const uint8_t* const words_end = r.words_end;
  VU state = hn::LoadU(du, r.states);
  size_t c = 0;
  for (; c + kLanes <= cols && static_cast<size_t>(words_end - words) >= kReadAtOnce; c += kLanes) {
    uint32_t* const states = r.states + (c & last_state);
    if (!one_vector) state = hn::LoadU(du, states);
    if (!DecodeLanes(tables.at.data(), r, words, state, pace, shift, mean + c, size + c, out + c)) {
      return false;
    }
    if (!one_vector) hn::StoreU(state, du, states);
  }
  if (one_vector) hn::StoreU(state, du, r.states);
  r.words = words;
  return decode_columns(tables, r, row, shift, c, cols, mean, size, out);
}

bool DecodeRow(RansReader& r, size_t row, uint32_t shift, size_t cols, int32_t* mean, int32_t* size,
               int16_t* out) {
  return r.n_states == hn::MaxLanes(DI())
             ? DecodeColumns<true>(r, row, shift, cols, mean, size, out)
             : DecodeColumns<false>(r, row, shift, cols, mean, size, out);
}
#else   // a lane at a time is decode_columns()
bool DecodeRow(RansReader& r, size_t row, uint32_t shift, size_t cols, int32_t* mean, int32_t* size,
               int16_t* out) {
  return decode_columns(rans_tables(), r, row, shift, 0, cols, mean, size, out);
}
#endif  // HWY_TARGET != HWY_SCALAR

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
    // So that the state a decoder finds before it reads a word is below 2^32.
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

// The model of the coder of cpu/rans_rows.h: a column's next number lies near the mean of those
// before, about as far away as those were. All arithmetic is in integers, so that decoder and
// encoder agree to the bit, on every machine.
//
// A row has a shift: its numbers stand for multiples of 2^shift. Means and sizes (mean distances
// from the mean) are kept in sixteenths of 1.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace blend::kernels {

inline constexpr uint32_t kRansBits = 10;       // a table's frequencies add up to 2^10
inline constexpr uint32_t kRansTables = 24;     // by size, four to an octave
inline constexpr uint32_t kRansEscape = 31;     // the symbol of numbers too far from the mean
inline constexpr int32_t kRansReach = 15;       // symbols 0 .. 30 are distances of -15 .. 15
inline constexpr int32_t kRansMostLow = 6;      // low bits of a distance that are not modelled
inline constexpr int32_t kRansMost = 32767;     // numbers are -32767 .. 32767
inline constexpr uint32_t kRansMostShift = 3;   // of a row
inline constexpr uint32_t kRansSizeCodes = 92;  // initial sizes

// Frequencies of the distances 0, 1 (and -1), ... 15 (and -15), and of the escape: a logistic
// distribution of the size that the table is for, from a sixteenth to four. Distances that would
// come less than once in two tables have no share, and escape.
inline constexpr uint16_t kRansFrequencies[kRansTables][kRansReach + 2] = {
    {1021, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {1021, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {1021, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {1017, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {1009, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {987, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {959, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {923, 50, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {863, 79, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {785, 117, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {709, 151, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {643, 178, 11, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {563, 206, 22, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {477, 226, 40, 6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {415, 232, 59, 11, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {365, 230, 75, 19, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {307, 220, 94, 31, 9, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {255, 201, 108, 47, 18, 7, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {219, 182, 114, 59, 27, 12, 5, 2, 1, 0, 0, 0, 0, 0, 0, 0, 1},
    {186, 165, 115, 68, 36, 18, 9, 4, 2, 1, 0, 0, 0, 0, 0, 0, 2},
    {158, 144, 110, 74, 46, 27, 15, 8, 4, 2, 1, 1, 0, 0, 0, 0, 2},
    {130, 121, 101, 76, 54, 36, 23, 14, 9, 5, 3, 2, 1, 1, 0, 0, 2},
    {109, 104, 92, 74, 57, 41, 29, 20, 13, 9, 6, 4, 3, 2, 1, 1, 3},
    {93, 91, 83, 71, 57, 45, 34, 25, 18, 13, 9, 6, 4, 3, 2, 1, 7},
};

// Position of the next number's symbol, and how many of its low bits are coded separately.
struct RansPlace {
  uint32_t table;
  uint32_t low;
};
inline RansPlace rans_place(int32_t size, uint32_t shift) {
  // The exponent and two bits of mantissa: the logarithm, four to an octave.
  const int32_t log4 = (std::bit_cast<int32_t>(static_cast<float>(size)) >> 21) - 127 * 4;
  constexpr auto kLast = static_cast<int32_t>(kRansTables) - 1;
  const int32_t c = std::clamp(log4 - 4 * static_cast<int32_t>(shift), 0, kLast + 4 * kRansMostLow);
  const int32_t low = std::max(0, c - (kLast - 3)) >> 2;
  return {static_cast<uint32_t>(c - 4 * low), static_cast<uint32_t>(low)};
}

// The rates at which mean and size follow the numbers: 2^-these, near to one over the rows so far,
// and a sixteenth at least. The first number is the first mean.
struct RansPace {
  uint32_t mean;
  uint32_t size;
};
constexpr RansPace rans_pace(size_t row) {
  constexpr size_t kSteady = 16;
  const auto octave = [](size_t rows) {  // the nearest: 181 / 128 is the root of two
    return static_cast<uint32_t>(std::bit_width(rows * 181 >> 7)) - 1;
  };
  return {octave(std::min(row + 1, kSteady)), octave(std::min(row + 3, kSteady))};
}

inline int32_t rans_half(uint32_t bits) { return (1 << bits) >> 1; }
inline int32_t rans_expected(int32_t mean, uint32_t shift) {
  return (mean + rans_half(shift + 4)) >> (shift + 4);
}
inline void rans_follow(int32_t number, uint32_t shift, RansPace pace, int32_t& mean,
                        int32_t& size) {
  const int32_t off = number * (1 << (shift + 4)) - mean;
  mean += (off + rans_half(pace.mean)) >> pace.mean;
  size += ((off < 0 ? -off : off) - size + rans_half(pace.size)) >> pace.size;
  size = std::max(size, 1);
}

// An initial size: four to an octave, in sixteenths.
constexpr int32_t rans_size(uint32_t code) {
  return static_cast<int32_t>(((4 + (code & 3)) << (code >> 2)) >> 2);
}

}  // namespace blend::kernels

// Rows of small whole numbers, entropy-coded by interleaved rANS (Duda 2013; Giesen 2014 for the
// interleaving): column c is coded by state c modulo the number of states, under the model of
// cpu/rans_model.h, which keeps a mean and a size for each column and is sent nothing.
//
// A state lies in [2^16, 2^32) between numbers. Words of 16 bits leave it, at most one a
// number; the decoder reads them in the order of rows and columns, so that it may take any number
// of columns at once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace blend::kernels {

inline constexpr size_t kRansStates = 32;         // most
inline constexpr uint32_t kRansFirst = 1u << 16;  // an encoder's states to begin with

// Source of the rows of one block. Bytes may be of any kind: nothing after the ends is read.
struct RansReader {
  const uint8_t* words = nullptr;  // of 16 bits each, little-endian, at any alignment
  const uint8_t* words_end = nullptr;
  const uint8_t* escapes = nullptr;  // i16 each: numbers that are too far from their mean
  const uint8_t* escapes_end = nullptr;
  size_t n_states = 0;  // 8, 16 or 32
  uint32_t states[kRansStates] = {};
};

// Decodes the row-th row of a plane. mean, size: [cols], of the rows before; out: [cols]. Returns
// false when the bytes end too soon.
bool rans_decode_row(RansReader& reader, size_t row, uint32_t shift, size_t cols, int32_t* mean,
                     int32_t* size, int16_t* out);
// The same, column by column on any machine.
bool rans_decode_row_ref(RansReader& reader, size_t row, uint32_t shift, size_t cols, int32_t* mean,
                         int32_t* size, int16_t* out);

// How a number is coded: found going forwards, put going backwards.
struct RansCode {
  uint16_t start;      // of its symbol's share of 2^10
  uint16_t frequency;  // that share
  uint8_t low;         // bits that are not modelled
  uint8_t low_bits;
  bool escapes;  // the number goes to the escapes too
};
// Codes the row-th row, after which mean and size have followed it. numbers: [cols], each -32767
// to 32767; codes: [cols].
void rans_code_row(const int32_t* numbers, size_t row, uint32_t shift, size_t cols, int32_t* mean,
                   int32_t* size, RansCode* codes);
// Puts a row into the states, its last column first. Writes the words that leave them before
// `words`, in the decoder's order, and returns where the first one is.
uint16_t* rans_put_row(const RansCode* codes, size_t cols, size_t n_states, uint32_t* states,
                       uint16_t* words);

}  // namespace blend::kernels

#include "model/hf_decode.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace blend {
namespace {

constexpr size_t kBlock = 32;  // elements of a Q4_0, a Q8_0 and an MXFP4

// Four bits of exponent with a bias of 7, three of mantissa; no infinity, 0x7f is NaN.
std::array<float, 256> e4m3_values() {
  std::array<float, 256> values{};
  for (unsigned i = 0; i < values.size(); ++i) {
    const int exponent = static_cast<int>(i >> 3 & 15), mantissa = static_cast<int>(i & 7);
    float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    if ((i & 0x7f) == 0x7f) value = std::numeric_limits<float>::quiet_NaN();
    values[i] = (i & 0x80) != 0 ? -value : value;
  }
  return values;
}

// Element i of a matrix of `dtype`.
void put(float value, DType dtype, size_t i, std::byte* out) {
  if (dtype == DType::f32) {
    std::memcpy(out + i * sizeof value, &value, sizeof value);
    return;
  }
  const uint16_t half = dtype == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
  std::memcpy(out + i * sizeof half, &half, sizeof half);
}

bool fits_f16(const ScaleGrid& scales, size_t rows) {
  for (size_t row = 0; row < rows; ++row) {
    for (size_t col = 0; col < scales.cols; ++col) {
      const float value = scales.at(row, col);
      if (f16_to_f32(f32_to_f16(value)) != value) return false;
    }
  }
  return true;
}

// Element i of a row of words.
unsigned element(const std::byte* row, size_t i, uint32_t bits) {
  const auto byte = std::to_integer<unsigned>(row[i * bits / 8]);
  return bits == 8 ? byte : byte >> (i % 2 * 4) & 15;
}

// A block of Q4_0 or Q8_0 after its scale.
void repack_block(const std::byte* row, size_t first, uint32_t bits, std::byte* out) {
  for (size_t i = 0; i < kBlock; ++i) {
    const unsigned value = element(row, first + i, bits);
    if (bits == 8) {
      out[i] = static_cast<std::byte>(value ^ 0x80);
    } else if (i < kBlock / 2) {
      out[i] = static_cast<std::byte>(value);
    } else {
      out[i - kBlock / 2] |= static_cast<std::byte>(value << 4);
    }
  }
}

}  // namespace

float ScaleGrid::at(size_t row, size_t col) const {
  const size_t i = row * cols + col;
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, data + i * sizeof value, sizeof value);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, data + i * sizeof half, sizeof half);
  return dtype == DType::f16 ? f16_to_f32(half) : bf16_to_f32(half);
}

Result<OwnedMatrix> decode_fp8(const std::byte* data, size_t rows, size_t cols,
                               const ScaleGrid& scales, size_t block_rows, size_t block_cols,
                               DType dtype) {
  static const std::array<float, 256> kValues = e4m3_values();
  OwnedMatrix out;
  out.dtype = dtype;
  BLEND_ASSIGN(out.data,
               AlignedBuffer::allocate(rows * cols * static_cast<size_t>(dtype_size(dtype))));
  for (size_t row = 0; row < rows; ++row) {
    for (size_t first = 0; first < cols; first += block_cols) {
      const float scale = scales.at(row / block_rows, first / block_cols);
      const size_t end = std::min(cols, first + block_cols);
      for (size_t i = row * cols + first; i < row * cols + end; ++i) {
        put(kValues[std::to_integer<size_t>(data[i])] * scale, dtype, i, out.data.data());
      }
    }
  }
  return out;
}

Result<OwnedMatrix> decode_packed(const std::byte* data, size_t rows, size_t cols, uint32_t bits,
                                  const ScaleGrid& scales, size_t group) {
  const size_t per_word = 32 / bits, row_bytes = (cols + per_word - 1) / per_word * 4;
  OwnedMatrix out;
  if (group % kBlock != 0 || cols % kBlock != 0 || !fits_f16(scales, rows)) {
    const float half = bits == 8 ? 128 : 8;
    BLEND_ASSIGN(out.data, AlignedBuffer::allocate(rows * cols * sizeof(float)));
    for (size_t row = 0; row < rows; ++row) {
      for (size_t i = 0; i < cols; ++i) {
        const auto value = static_cast<float>(element(data + row * row_bytes, i, bits)) - half;
        out.data.as<float>()[row * cols + i] = value * scales.at(row, i / group);
      }
    }
    return out;
  }
  out.blocks = bits == 8 ? BlockType::q8_0 : BlockType::q4_0;
  const size_t bytes = block_bytes(out.blocks), per_row = cols / kBlock;
  BLEND_ASSIGN(out.data, AlignedBuffer::allocate(rows * per_row * bytes));
  std::byte* to = out.data.data();
  for (size_t row = 0; row < rows; ++row) {
    for (size_t block = 0; block < per_row; ++block, to += bytes) {
      const uint16_t scale = f32_to_f16(scales.at(row, block * kBlock / group));
      std::memcpy(to, &scale, sizeof scale);
      repack_block(data + row * row_bytes, block * kBlock, bits, to + sizeof scale);
    }
  }
  return out;
}

void repack_mxfp4(const std::byte* blocks, const std::byte* scales, size_t blocks_per_row,
                  const uint32_t* order, size_t n_rows, std::byte* out) {
  constexpr size_t kBytes = kBlock / 2;
  for (size_t place = 0; place < n_rows; ++place) {
    const size_t row = order[place] * blocks_per_row;
    for (size_t block = row; block < row + blocks_per_row; ++block, out += 1 + kBytes) {
      out[0] = scales[block];
      repack_block(blocks + block * kBytes, 0, 4, out + 1);
    }
  }
}

}  // namespace blend

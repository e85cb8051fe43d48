// Weights as quantized Hugging Face directories hold them, made into what libblend computes with:
// blocks of ggml's types where these hold the same numbers, else single elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/buffer.h"
#include "base/status.h"
#include "formats/half.h"
#include "formats/weight_blocks.h"

namespace blend {

// A matrix of its own memory. Movable.
struct OwnedMatrix {
  DType dtype = DType::f32;
  BlockType blocks = BlockType::none;
  AlignedBuffer data;
};

// Scales as files have them: of `dtype`, in rows of `cols`.
struct ScaleGrid {
  const std::byte* data = nullptr;
  DType dtype = DType::f32;
  size_t cols = 0;

  float at(size_t row, size_t col) const;
};

// [rows, cols] of e4m3, each block of block_rows x block_cols times its scale; the last blocks may
// be smaller. Rounded to `dtype`.
Result<OwnedMatrix> decode_fp8(const std::byte* data, size_t rows, size_t cols,
                               const ScaleGrid& scales, size_t block_rows, size_t block_cols,
                               DType dtype);

// [rows, cols] of integers of `bits` (4 or 8) less half their range, in rows of whole 32-bit words
// that begin at the low end, each `group` times their scale. Q4_0 or Q8_0 where `group` is a
// multiple of 32 and all scales have the same value in f16; else f32, which holds every product.
Result<OwnedMatrix> decode_packed(const std::byte* data, size_t rows, size_t cols, uint32_t bits,
                                  const ScaleGrid& scales, size_t group);

// n blocks of MXFP4: 16 bytes, of which byte i has the elements 2 i and 2 i + 1, and a byte of
// scale -> ggml's. order[i]: the row that comes at place i; each row has blocks_per_row.
void repack_mxfp4(const std::byte* blocks, const std::byte* scales, size_t blocks_per_row,
                  const uint32_t* order, size_t n_rows, std::byte* out);

}  // namespace blend

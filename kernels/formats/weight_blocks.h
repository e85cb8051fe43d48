// Quantized weights: ggml's block types. A row of a matrix is a run of blocks, each a few bits an
// element and the scales to read them by.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/half.h"

namespace blend {

enum class BlockType : uint8_t {
  none,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q4_k,
  q5_k,
  q6_k,
  q2_k,
  q3_k,
  iq4_nl,
  iq4_xs,
  mxfp4,
  nvfp4,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq3_xxs,
  iq3_s,
  iq1_s,
  iq1_m,
  tq1_0,
  tq2_0,
};
// How many there are, none included: the types are 0 .. kBlockTypes - 1.
inline constexpr int kBlockTypes = static_cast<int>(BlockType::tq2_0) + 1;

// "q4_k"; "none".
const char* block_type_name(BlockType type);
// Its number in ggml's files; not of none.
uint32_t ggml_type_of(BlockType type);
// The type of that number; none where it is no type of blocks, or one that nobody here reads.
BlockType block_type_of(uint32_t ggml_type);
// Elements of a block; a row's length is a multiple of it: 32, 64 or 256; 1 for none.
size_t block_elements(BlockType type);
// Bytes of a block; 0 for none.
size_t block_bytes(BlockType type);

// Bytes of a row of `cols` elements, of `dtype` where `blocks` is none.
inline size_t weight_row_bytes(DType dtype, BlockType blocks, size_t cols) {
  if (blocks == BlockType::none) return cols * static_cast<size_t>(dtype_size(dtype));
  return cols / block_elements(blocks) * block_bytes(blocks);
}

// out[i] = element i of the n / block_elements() blocks at `data`, which may be unaligned; n: a
// multiple of block_elements(); `type` is not none. The same numbers as ggml's dequantize_row_*.
void decode_blocks(BlockType type, const std::byte* data, size_t n, float* out);
// The same where `blocks` may be none: then the elements are of `dtype`. Plain loops; the CPU
// backend has faster ones for f16 and bf16.
void decode_weights(DType dtype, BlockType blocks, const std::byte* data, size_t n, float* out);

}  // namespace blend

// `quantization_config` of a config.json: how the weights of a Hugging Face directory are encoded.
#pragma once

#include <cstdint>

#include "base/json_reader.h"
#include "formats/half.h"

namespace blend {

struct HfQuantization {
  enum class Method : uint8_t {
    none,
    // Matrices of e4m3, and a scale for each block_rows x block_cols of their elements.
    fp8,
    // Integers of `bits`, several in one of 32 bits, and a scale for each `group` elements of a row
    // (compressed-tensors).
    packed,
    // Matrices of experts in MXFP4, blocks and their scales apart (gpt-oss).
    mxfp4,
  };
  Method method = Method::none;
  uint32_t block_rows = 0;
  uint32_t block_cols = 0;
  uint32_t bits = 0;
  uint32_t group = 0;        // 0: the whole row
  DType dtype = DType::f32;  // that the model computes in: what has no exact form is rounded to it
};

// UNSUPPORTED names the method, or what of it libblend does not read.
Result<HfQuantization> read_hf_quantization(const JsonView& root);

}  // namespace blend

// Weights other than matrices: the embedding table and vectors (norms, biases).
#pragma once

#include "backend/weight.h"
#include "backend/weight_error.h"
#include "base/buffer.h"
#include "cpu/block_decode.h"
#include "cpu/convert.h"
#include "model/model_source.h"

namespace blend::cpu {

// n elements of `tensor` from `data` on, which begins a block where it is quantized.
inline void decode(const TensorView& tensor, const std::byte* data, size_t n, float* out) {
  if (tensor.blocks == BlockType::none) {
    kernels::decode(data, tensor.dtype, n, out);
  } else {
    kernels::decode_blocks(tensor.blocks, data, n, out);
  }
}
inline void decode_row(const TensorView& tensor, int64_t row, float* out) {
  decode(tensor, tensor.row(row), static_cast<size_t>(tensor.cols()), out);
}

// Refers to the mapped file: rows are decoded as they are looked up. Immutable.
class CpuTable final : public Weight {
 public:
  explicit CpuTable(const TensorView& view) : view_(view) {}
  size_t bytes() const override { return 0; }
  const TensorView& view() const { return view_; }
  int64_t cols() const { return view_.cols(); }

 private:
  TensorView view_;
};

// f32. Immutable.
class CpuVector final : public Weight {
 public:
  CpuVector(AlignedBuffer data, int64_t n) : data_(std::move(data)), n_(n) {}
  size_t bytes() const override { return data_.bytes(); }
  const float* data() const { return data_.as<float>(); }
  int64_t size() const { return n_; }

 private:
  AlignedBuffer data_;
  int64_t n_;
};

// The first element of a vector; null where there is none.
inline const float* elements_of(const Weight* vector) {
  return vector == nullptr ? nullptr : static_cast<const CpuVector*>(vector)->data();
}

}  // namespace blend::cpu

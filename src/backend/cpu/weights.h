// Weights other than matrices: the embedding table and the norms' vectors.
#pragma once

#include "backend/backend.h"
#include "backend/weight_error.h"
#include "base/buffer.h"

namespace blend::cpu {

// Refers to the mapped file: rows are decoded as they are looked up. Immutable.
class CpuTable final : public Weight {
 public:
  explicit CpuTable(const TensorView& view)
      : data_(view.data), dtype_(view.dtype), rows_(view.shape[0]), cols_(view.shape[1]) {}
  size_t bytes() const override { return 0; }
  DType dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  size_t row_bytes() const {
    return static_cast<size_t>(cols_) * static_cast<size_t>(dtype_size(dtype_));
  }
  const std::byte* row(int64_t i) const { return data_ + static_cast<size_t>(i) * row_bytes(); }

 private:
  const std::byte* data_;
  DType dtype_;
  int64_t rows_, cols_;
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

}  // namespace blend::cpu

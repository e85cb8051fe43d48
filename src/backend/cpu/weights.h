// Weights other than matrices: the embedding table and the norms' vectors.
#pragma once

#include <cmath>
#include <string>

#include "backend/backend.h"
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

// The error for `value`, found at element `index` of `tensor`.
inline Status not_finite(const TensorView& tensor, size_t index, float value) {
  std::string place;
  if (tensor.shape.size() == 2) {
    const size_t cols = static_cast<size_t>(tensor.shape[1]);
    place = std::to_string(index / cols) + ", " + std::to_string(index % cols);
  } else {
    place = std::to_string(index);
  }
  return make_error(BLEND_E_NUMERIC,
                    "tensor '%s' holds %s at [%s]: the weights are damaged; fetch or convert the "
                    "model again",
                    tensor.name.c_str(), std::isnan(value) ? "a NaN" : "an infinity",
                    place.c_str());
}

}  // namespace blend::cpu

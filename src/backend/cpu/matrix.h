// Matrices of weights in the forms of the CPU's GEMM.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backend/weight.h"
#include "base/buffer.h"
#include "model/model_source.h"

namespace blend::kernels {
struct FewRows;
}

namespace blend::cpu {

// W [out, in]. Immutable, so safe for concurrent use.
class CpuMatrix : public Weight {
 public:
  enum class Kind { packed, decoded, int8 };  // PackedMatrix, DecodedMatrix, Int8Matrix

  int64_t out() const { return out_; }
  int64_t in() const { return in_; }
  virtual Kind kind() const = 0;

 protected:
  CpuMatrix(int64_t out, int64_t in) : out_(out), in_(in) {}
  int64_t out_ = 0, in_ = 0;
};

// Panels as the GEMM reads them (kernels/cpu/gemm_f32.h), in f32 or the model's 16-bit type.
// Made by Gemm::pack(). Immutable.
class PackedMatrix final : public CpuMatrix {
 public:
  // panels: of `columns` rows of W each, the last padded with zeros.
  PackedMatrix(int64_t out, int64_t in, DType dtype, int64_t columns, AlignedBuffer panels)
      : CpuMatrix(out, in), dtype_(dtype), columns_(columns), panels_(std::move(panels)) {}
  Kind kind() const override { return Kind::packed; }
  size_t bytes() const override { return panels_.bytes(); }
  DType dtype() const { return dtype_; }
  int64_t columns() const { return columns_; }
  // From row `first` of W on, a multiple of columns().
  const std::byte* panels(int64_t first) const {
    return panels_.data() + static_cast<size_t>(first * in_ * dtype_size(dtype_));
  }

 private:
  DType dtype_;
  int64_t columns_;
  AlignedBuffer panels_;
};

// Weights whose rows are decoded at each use. Immutable.
class DecodedMatrix : public CpuMatrix {
 public:
  Kind kind() const final { return Kind::decoded; }
  // Rows [first, first + n) as f32, [n, in], into `into`.
  virtual void decode(int64_t first, int64_t n, float* into) const = 0;
  // Describes the rows from `first` on in `product`, to be multiplied with few rows of x, and
  // returns how many of them are contiguous.
  virtual int64_t kept_rows(int64_t first, kernels::FewRows& product) const = 0;

 protected:
  using CpuMatrix::CpuMatrix;
};

// Matrices of a model file stacked along their rows, or some rows of each. Valid while their
// ModelSource lives.
class StackedParts {
 public:
  // INTERNAL where they have different columns, or no elements.
  static Result<StackedParts> of(std::span<const TensorView* const> parts);

  int64_t rows() const { return rows_; }
  int64_t cols() const { return parts_[0].cols(); }
  std::span<const TensorView> parts() const { return parts_; }
  // The part that has row i, and which of its rows that is.
  std::pair<const TensorView*, int64_t> part_of(int64_t i) const;
  // Row i as f32, [cols()]. NUMERIC names the tensor and position of a NaN or infinity.
  Status decode_row(int64_t i, float* row) const;

 private:
  std::vector<TensorView> parts_;
  int64_t rows_ = 0;
};

// The mapped file's own bytes, of any type: no memory but the page cache's, which processes share.
// Immutable; valid while the ModelSource of its parts lives.
class MappedMatrix final : public DecodedMatrix {
 public:
  explicit MappedMatrix(StackedParts parts)
      : DecodedMatrix(parts.rows(), parts.cols()), parts_(std::move(parts)) {}
  size_t bytes() const override { return 0; }
  void decode(int64_t first, int64_t n, float* into) const override;
  int64_t kept_rows(int64_t first, kernels::FewRows& product) const override;

 private:
  StackedParts parts_;
};

}  // namespace blend::cpu

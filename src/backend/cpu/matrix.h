// Matrices of weights as the CPU's GEMM takes them.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/buffer.h"

namespace blend::kernels {
struct FewRows;
}

namespace blend::cpu {

// W [out, in]. Immutable, so safe for concurrent use.
class CpuMatrix : public Weight {
 public:
  int64_t out() const { return out_; }
  int64_t in() const { return in_; }
  // An Int8Matrix (int8_gemm.h), or else a FloatMatrix.
  virtual bool int8() const { return false; }

 protected:
  CpuMatrix(int64_t out, int64_t in) : out_(out), in_(in) {}
  int64_t out_ = 0, in_ = 0;
};

// Weights that are multiplied as f32. Immutable.
class FloatMatrix : public CpuMatrix {
 public:
  // oneDNN's format BA16a64b, panels of 64 rows of W; false: rows as they are, [out, in].
  virtual bool blocked() const = 0;
  // Rows are made as they are asked for, in memory of the caller; false: slice() only points.
  virtual bool decoded() const = 0;
  // Rows [first, first + n) as f32; `first` is a multiple of kPanelColumns where blocked(). Into
  // `into` (n * in() floats) where decoded(), which is not looked at elsewhere.
  virtual const float* slice(int64_t first, int64_t n, float* into) const = 0;
  // Where decoded(): says in `product` what the rows from `first` on are, for few rows of x to be
  // multiplied with, and returns how many of them lie behind one another.
  virtual int64_t kept_rows(int64_t first, kernels::FewRows& product) const;

 protected:
  using CpuMatrix::CpuMatrix;
};

// f32 in the form that the GEMM is fastest with. Made by Gemm::pack(). Immutable.
class PackedMatrix final : public FloatMatrix {
 public:
  PackedMatrix(int64_t out, int64_t in, bool blocked, size_t panel_bytes, AlignedBuffer data)
      : FloatMatrix(out, in),
        blocked_(blocked),
        panel_bytes_(panel_bytes),
        data_(std::move(data)) {}
  size_t bytes() const override { return data_.bytes(); }
  bool blocked() const override { return blocked_; }
  bool decoded() const override { return false; }
  const float* slice(int64_t first, int64_t n, float* into) const override;

 private:
  bool blocked_;
  size_t panel_bytes_;  // of 64 rows of W
  AlignedBuffer data_;
};

// Matrices of a model file stacked along their rows. Valid while their ModelSource lives.
class StackedParts {
 public:
  // INTERNAL where they have not the same columns, or no elements.
  static Result<StackedParts> of(std::span<const TensorView* const> parts);

  int64_t rows() const { return rows_; }
  int64_t cols() const { return parts_[0]->cols(); }
  std::span<const TensorView* const> parts() const { return parts_; }
  // The part that has row i, and which of its rows that is.
  std::pair<const TensorView*, int64_t> part_of(int64_t i) const;
  // Row i as f32, [cols()]. NUMERIC names the tensor and the place of a NaN or infinity.
  Status decode_row(int64_t i, float* row) const;

 private:
  std::vector<const TensorView*> parts_;
  int64_t rows_ = 0;
};

// The mapped file's own bytes, of any type: no memory but the page cache's, which processes share.
// Immutable; valid while the ModelSource of its parts lives.
class MappedMatrix final : public FloatMatrix {
 public:
  explicit MappedMatrix(StackedParts parts)
      : FloatMatrix(parts.rows(), parts.cols()), parts_(std::move(parts)) {}
  size_t bytes() const override { return 0; }
  bool blocked() const override { return false; }
  bool decoded() const override { return true; }
  const float* slice(int64_t first, int64_t n, float* into) const override;
  int64_t kept_rows(int64_t first, kernels::FewRows& product) const override;

 private:
  StackedParts parts_;
};

}  // namespace blend::cpu

// GEMM in 8-bit integers: y = x W^T with W kept as one byte a weight, a scale per row of W, and
// rows of x rounded to bytes in each call, each with its own scale and zero point. How much faster
// than f32 this is depends on the instructions (docs/benchmarks.md); for its cost see
// docs/quality.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "backend/cpu/matrix.h"
#include "backend/cpu/scratch.h"
#include "backend/cpu/tiles.h"
#include "base/threads/thread_pool.h"
#include "cpu/gemm_int8.h"

namespace blend::cpu {

// For integer products: panels of bytes (kernels/cpu/gemm_int8.h), zeros where W ends. Immutable.
class Int8Matrix final : public CpuMatrix {
 public:
  // steps, sums: padded to whole panels.
  Int8Matrix(int64_t out, int64_t in, kernels::Int8Path path, AlignedBuffer panels,
             AlignedBuffer steps, AlignedBuffer sums)
      : CpuMatrix(out, in),
        path_(path),
        shape_(kernels::int8_shape(path)),
        panels_(std::move(panels)),
        steps_(std::move(steps)),
        sums_(std::move(sums)) {}
  Kind kind() const override { return Kind::int8; }
  size_t bytes() const override { return panels_.bytes() + steps_.bytes() + sums_.bytes(); }

  kernels::Int8Path path() const { return path_; }
  const kernels::Int8Shape& shape() const { return shape_; }
  int64_t n_groups() const {
    const auto group = static_cast<int64_t>(shape_.group);
    return (in_ + group - 1) / group;
  }
  // From row `first` of W on, a multiple of shape().columns.
  const int8_t* panels(int64_t first) const {
    return panels_.as<int8_t>() + static_cast<size_t>(first * n_groups()) * shape_.group;
  }
  const float* steps() const { return steps_.as<float>(); }
  const int32_t* sums() const { return sums_.as<int32_t>(); }  // of the integers of a row

 private:
  kernels::Int8Path path_;
  kernels::Int8Shape shape_;
  AlignedBuffer panels_, steps_, sums_;
};

// The same numbers for machines without integer products, and for sums that do not fit 32 bits:
// rows of bytes that the f32 GEMM decodes as it needs them, for few rows in registers. Immutable.
class Int8Rows final : public DecodedMatrix {
 public:
  Int8Rows(int64_t out, int64_t in, AlignedBuffer rows, AlignedBuffer steps)
      : DecodedMatrix(out, in), rows_(std::move(rows)), steps_(std::move(steps)) {}
  size_t bytes() const override { return rows_.bytes() + steps_.bytes(); }
  void decode(int64_t first, int64_t n, float* into) const override;
  int64_t kept_rows(int64_t first, kernels::FewRows& product) const override;

 private:
  AlignedBuffer rows_;   // s8 [out, in]
  AlignedBuffer steps_;  // f32 [out]
};

// Thread-safe. Its constructor's arguments must outlive it.
class Int8Gemm {
 public:
  enum class Arithmetic { best, f32 };

  Int8Gemm(ThreadPool& pool, ScratchPool& scratch) : pool_(pool), scratch_(scratch) {}

  // Stacks the parts along their rows: an Int8Matrix, or Int8Rows where there are no integer
  // products. NUMERIC names the tensor and position of a NaN or infinity.
  Result<std::unique_ptr<CpuMatrix>> pack(std::span<const TensorView* const> parts,
                                          Arithmetic arithmetic = Arithmetic::best);
  // y = x W^T, or y += x W^T; x: [m, in], y: [m, out]. A row of y depends on its row of x alone:
  // one row and many give the same bits, and so do all instruction sets.
  Status run(const Int8Matrix& w, const float* x, int64_t m, float* y, bool accumulate);

 private:
  struct Rows;

  Status run_some(const Int8Matrix& w, const Rows& rows);
  void quantize(const Int8Matrix& w, const Rows& rows, std::byte* scratch, size_t per_thread,
                kernels::Int8Row* scales, uint32_t* groups);

  ThreadPool& pool_;
  ScratchPool& scratch_;
};

}  // namespace blend::cpu

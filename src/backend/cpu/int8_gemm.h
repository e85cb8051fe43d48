// GEMM in 8-bit integers: y = x W^T with W kept as one byte a weight, a step per row of W, and rows
// of x brought to bytes as they come, each with its own scale and zero point. Three to four times
// as fast as f32 on the same core, for what docs/quality.md says it costs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "backend/backend.h"
#include "backend/cpu/matmul_cache.h"
#include "backend/cpu/matrix.h"
#include "backend/cpu/scratch.h"
#include "backend/cpu/tile_matmuls.h"
#include "base/thread_pool.h"

namespace blend::cpu {

// For integer products: panels of 64 rows of W, [k / 4][64][4] bytes each, zeros where W ends.
// Immutable.
class Int8Matrix final : public CpuMatrix {
 public:
  Int8Matrix(int64_t out, int64_t in, size_t panel_bytes, AlignedBuffer panels, AlignedBuffer steps,
             AlignedBuffer sums)
      : CpuMatrix(out, in),
        panel_bytes_(panel_bytes),
        panels_(std::move(panels)),
        steps_(std::move(steps)),
        sums_(std::move(sums)) {}
  bool int8() const override { return true; }
  size_t bytes() const override { return panels_.bytes() + steps_.bytes() + sums_.bytes(); }

  // Of the rows of W from `first` on, a multiple of kPanelColumns.
  const std::byte* panel(int64_t first) const {
    return panels_.data() + static_cast<size_t>(first / kPanelColumns) * panel_bytes_;
  }
  const float* steps() const { return steps_.as<float>(); }    // [out]
  const int32_t* sums() const { return sums_.as<int32_t>(); }  // [out]: of the integers of a row

 private:
  size_t panel_bytes_;
  AlignedBuffer panels_, steps_, sums_;
};

// The same numbers for machines without integer dot products: rows of bytes that the f32 GEMM
// decodes as it needs them, for few rows in registers. Immutable.
class Int8Rows final : public FloatMatrix {
 public:
  Int8Rows(int64_t out, int64_t in, AlignedBuffer rows, AlignedBuffer steps)
      : FloatMatrix(out, in), rows_(std::move(rows)), steps_(std::move(steps)) {}
  size_t bytes() const override { return rows_.bytes() + steps_.bytes(); }
  bool blocked() const override { return false; }
  bool decoded() const override { return true; }
  const float* slice(int64_t first, int64_t n, float* into) const override;
  int64_t kept_rows(int64_t first, kernels::FewRows& product) const override;

 private:
  AlignedBuffer rows_;   // s8 [out, in]
  AlignedBuffer steps_;  // f32 [out]
};

// Thread-safe. What it is made with must outlive it.
class Int8Gemm {
 public:
  enum class Arithmetic { best, f32 };  // f32: what machines without VNNI get

  Int8Gemm(ThreadPool& pool, ScratchPool& scratch, MatmulCache& matmuls)
      : pool_(pool), scratch_(scratch), matmuls_(matmuls) {}

  // Stacks the parts along their rows: an Int8Matrix, or Int8Rows where this machine has no
  // integer products. NUMERIC names the tensor and the place of a NaN or infinity.
  Result<std::unique_ptr<CpuMatrix>> pack(std::span<const TensorView* const> parts,
                                          Arithmetic arithmetic = Arithmetic::best);
  // y = x W^T, or y += x W^T; x: [m, in], y: [m, out]. A row of y depends on its row of x alone:
  // one row and many give the same bits.
  Status run(const Int8Matrix& w, const float* x, int64_t m, float* y, bool accumulate);

 private:
  struct Operands;

  // Whether the products of k elements can be had as integers, in 32 bits.
  Result<bool> multiplies(int64_t k);
  void run_tile(const Operands& op, const Tile& tile, std::byte* scratch,
                dnnl::stream& stream) const;

  ThreadPool& pool_;
  ScratchPool& scratch_;
  MatmulCache& matmuls_;
};

}  // namespace blend::cpu

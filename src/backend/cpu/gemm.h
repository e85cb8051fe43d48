// GEMM on the CPU: y = x W^T in f32. kernels/cpu/gemm_f32.h has the work of a core; here a product
// is cut into tiles for the context's threads.
//
// Packed weights were put into panels when they were loaded. Others stay as in the file, or as
// bytes: a thread decodes the slice that its tile needs into panels and keeps it for the tiles of
// further rows, and few rows are multiplied without tiles. Rows of x are put into blocks once, for
// all threads, in portions that bound the size of their copy.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "backend/cpu/gemm_parts.h"
#include "backend/cpu/matrix.h"
#include "backend/cpu/scratch.h"
#include "backend/cpu/tiles.h"
#include "base/threads/thread_pool.h"

namespace blend::cpu {

// Thread-safe. Its constructor's arguments must outlive it. An element of y depends on its row of x
// and its row of W: with packed weights it has the same bits for any number of rows and threads.
class Gemm {
 public:
  // One of several products.
  struct Product {
    const CpuMatrix* w;
    const float* x;      // [m, in]
    int64_t m;           // at least 1
    float* y;            // [m, out]
    bool steps = false;  // as of a Tensor
  };

  Gemm(ThreadPool& pool, ScratchPool& scratch) : pool_(pool), scratch_(scratch) {}

  // Stacks the parts along their rows. NUMERIC names the tensor and position of a NaN or infinity.
  Result<std::unique_ptr<PackedMatrix>> pack(std::span<const TensorView* const> parts);
  // y = x W^T, or y += x W^T; x: [m, in], y: [m, out].
  Status run(const PackedMatrix& w, const float* x, int64_t m, float* y, bool accumulate);
  // steps: a row's bits are those of its product alone (Tensor::steps).
  Status run(const DecodedMatrix& w, const float* x, int64_t m, float* y, bool accumulate,
             bool steps = false);
  // y = x W^T of several matrices of one shape and kind, which is not int8; threads share all of
  // it. The bits of run().
  Status run_each(std::span<const Product> products);

 private:
  struct Part;

  Status run_as_they_are(const PackedMatrix& w, const GemmRows& rows);
  Status run_few(const DecodedMatrix& w, const GemmRows& rows, bool steps);
  void run_pieces(const DecodedMatrix& w, const GemmRows& rows);
  template <class Matrix>
  Status run_blocks(const Matrix& w, const GemmRows& all);
  void pack_x(const GemmRows& rows, int64_t k, float* blocks);
  template <class Matrix>
  void multiply(const Matrix& w, const GemmBlocks& blocks);
  template <class Matrix>
  Status run_each_few(std::span<const Product> products);
  template <class Matrix>
  Status run_each_many(std::span<const Product> products);

  ThreadPool& pool_;
  ScratchPool& scratch_;
};

}  // namespace blend::cpu

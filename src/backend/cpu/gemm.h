// GEMM on the CPU: y = x W^T in f32. What the cores do is kernels/cpu/gemm_f32.h; here a product is
// cut into tiles for the context's threads.
//
// Packed weights were brought into panels when they were loaded. Others stay as the file has them,
// or as bytes: a thread decodes the slice that its tile needs into panels and keeps it for the
// tiles of further rows, and few rows are multiplied without tiles. Rows of x are brought into
// blocks once, for all threads, so many at a time that their copy is of bounded size.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "backend/backend.h"
#include "backend/cpu/matrix.h"
#include "backend/cpu/scratch.h"
#include "backend/cpu/tiles.h"
#include "base/thread_pool.h"

namespace blend::cpu {

// Thread-safe. What it is made with must outlive it. An element of y depends on its row of x and
// its row of W: of packed weights it has the same bits for any number of rows and of threads.
class Gemm {
 public:
  Gemm(ThreadPool& pool, ScratchPool& scratch) : pool_(pool), scratch_(scratch) {}

  // Stacks the parts along their rows. NUMERIC names the tensor and the place of a NaN or infinity.
  Result<std::unique_ptr<PackedMatrix>> pack(std::span<const TensorView* const> parts);
  // y = x W^T, or y += x W^T; x: [m, in], y: [m, out].
  Status run(const PackedMatrix& w, const float* x, int64_t m, float* y, bool accumulate);
  Status run(const DecodedMatrix& w, const float* x, int64_t m, float* y, bool accumulate);

 private:
  struct Rows;
  struct Blocks;

  Status run_as_they_are(const PackedMatrix& w, const Rows& rows);
  Status run_few(const DecodedMatrix& w, const Rows& rows);
  void run_pieces(const DecodedMatrix& w, const Rows& rows);
  template <class Matrix>
  Status run_blocks(const Matrix& w, const Rows& all);
  void pack_x(const Rows& rows, int64_t k, float* blocks);
  void multiply(const PackedMatrix& w, const Blocks& blocks);
  void multiply(const DecodedMatrix& w, const Blocks& blocks);

  ThreadPool& pool_;
  ScratchPool& scratch_;
};

}  // namespace blend::cpu

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

#include "backend/cpu/matrix.h"
#include "backend/cpu/scratch.h"
#include "backend/cpu/tiles.h"
#include "base/threads/thread_pool.h"

namespace blend::cpu {

// Thread-safe. Its constructor's arguments must outlive it. An element of y depends on its row of x
// and its row of W: with packed weights it has the same bits for any number of rows and threads.
class Gemm {
 public:
  Gemm(ThreadPool& pool, ScratchPool& scratch) : pool_(pool), scratch_(scratch) {}

  // Stacks the parts along their rows. NUMERIC names the tensor and position of a NaN or infinity.
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

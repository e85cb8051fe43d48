// GEMM on the CPU: y = x W^T in f32 by oneDNN's matmul, its calls single-threaded and spread over
// our ThreadPool. A product is cut into tiles of rows x columns that are independent oneDNN calls,
// each writing its own part of y.
//
// Packed weights were brought into oneDNN's blocked format BA16a64b when they were loaded: panels
// of 64 output columns, each contiguous, so that a tile's weights are a part of the one packed
// buffer. Other weights stay as the file has them, or as bytes: a thread decodes the slice that its
// tile needs and keeps it for the tiles of further rows, and few rows are multiplied without tiles.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "backend/backend.h"
#include "backend/cpu/matmul_cache.h"
#include "backend/cpu/matrix.h"
#include "backend/cpu/scratch.h"
#include "base/thread_pool.h"

namespace blend::cpu {

// Thread-safe. What it is made with must outlive it.
class Gemm {
 public:
  enum class Packing { best, rows };  // rows: what hosts without AVX-512 get

  Gemm(ThreadPool& pool, ScratchPool& scratch, MatmulCache& matmuls);

  // Stacks the parts along their rows. NUMERIC names the tensor and the place of a NaN or infinity.
  Result<std::unique_ptr<PackedMatrix>> pack(std::span<const TensorView* const> parts,
                                             Packing packing = Packing::best);
  // y = x W^T, or y += x W^T; x: [m, in], y: [m, out].
  Status run(const FloatMatrix& w, const float* x, int64_t m, float* y, bool accumulate);

 private:
  struct Operands;
  struct Tiles;
  struct Decoded;
  Result<Tiles> plan(const Operands& op);
  void run_tile(const Operands& op, const Tiles& tiles, size_t i, std::byte* scratch,
                Decoded& decoded, dnnl::stream& stream) const;
  Status run_few(const Operands& op);

  // Of x: weights that are decoded are multiplied without tiles. One core with AVX-512, k = 2048, n
  // = 8192, GFLOP/s: q8_0 at m = 16 has 165 so and 101 by tiles, q4_k 141 and 95; at 32 by tiles
  // 137 and 124, and by tiles they go on growing.
  static constexpr int64_t kFewRows = 24;

  ThreadPool& pool_;
  ScratchPool& scratch_;
  MatmulCache& matmuls_;
};

}  // namespace blend::cpu

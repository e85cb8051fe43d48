// GEMM on the CPU: y = x W^T in f32 by oneDNN's matmul, its calls single-threaded and spread over
// our ThreadPool. A product is cut into tiles of rows x columns that are independent oneDNN calls,
// each writing its own part of y.
//
// Packed weights were brought into oneDNN's blocked format BA16a64b when they were loaded: panels
// of 64 output columns, each contiguous, so that a tile's weights are a part of the one packed
// buffer. Mapped weights stay as the file has them: a thread decodes the slice that its tile needs
// and keeps it for the tiles of further rows.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <span>
#include <tuple>

#include "backend/backend.h"
#include "backend/cpu/matrix.h"
#include "backend/cpu/scratch.h"
#include "base/thread_pool.h"

namespace blend::cpu {

// How a product of m rows and n columns is cut. Measured on 2 quiet cores with AVX-512, f32, k =
// 2048, n = 8192: at m = 512, tiles of 256 x 512 reach 483 GFLOP/s, 256 x all columns 494, 64 x 512
// 473, 64 x all 426; at m = 3072, 256 x 512 495; at m = 77, 80 x 512 427, 40 x all 367; at m = 1, 1
// x 512 32 (64 GB/s of weights), all columns on one core 25. So tiles are 256 x 512, made smaller
// only to give every thread two.
struct TilePlan {
  int64_t rows = 0;     // of a tile; the last may have fewer
  int64_t columns = 0;  // of a tile, a multiple of kPanelColumns; the last may have fewer
  int64_t row_tiles = 0;
  int64_t column_tiles = 0;
};
inline constexpr int64_t kPanelColumns = 64;
// No tile has more than `most_columns`, a multiple of kPanelColumns.
TilePlan plan_tiles(int64_t m, int64_t n, int64_t k, uint32_t n_threads,
                    int64_t most_columns = INT64_MAX);

// Thread-safe. `pool` and `scratch` must outlive it.
class Gemm {
 public:
  enum class Packing { best, rows };  // rows: what hosts without AVX-512 get

  Gemm(ThreadPool& pool, ScratchPool& scratch);

  // Stacks the parts along their rows. NUMERIC names the tensor and the place of a NaN or infinity.
  Result<std::unique_ptr<PackedMatrix>> pack(std::span<const TensorView* const> parts,
                                             Packing packing = Packing::best);
  // y = x W^T, or y += x W^T; x: [m, in], y: [m, out].
  Status run(const CpuMatrix& w, const float* x, int64_t m, float* y, bool accumulate);

 private:
  struct Primitive {
    dnnl::matmul::primitive_desc desc;
    dnnl::matmul matmul;
    size_t scratch_bytes = 0;
  };
  struct Operands;
  struct Tiles;
  struct Decoded;
  using Key = std::tuple<int64_t, int64_t, int64_t, bool, bool>;  // m, k, n, blocked, accumulate

  std::shared_ptr<const Primitive> primitive(const Key& key);
  Result<Tiles> plan(const Operands& op);
  void run_tile(const Operands& op, const Tiles& tiles, size_t tile, std::byte* scratch,
                Decoded& decoded, dnnl::stream& stream) const;
  Status run_few(const Operands& op);

  static constexpr int64_t kFewRows = 8;  // of x: mapped weights are multiplied without tiles

  ThreadPool& pool_;
  ScratchPool& scratch_;
  dnnl::engine engine_;

  // Primitives by shape, the least recently used dropped. One takes 0.05-0.1 ms to create; a prompt
  // of a new length needs about two a weight shape, so every row count is its own primitive rather
  // than padded rows.
  static constexpr size_t kMaxPrimitives = 512;
  using Lru = std::list<std::pair<Key, std::shared_ptr<const Primitive>>>;
  std::mutex mutex_;
  Lru lru_;
  std::map<Key, Lru::iterator> index_;
};

}  // namespace blend::cpu

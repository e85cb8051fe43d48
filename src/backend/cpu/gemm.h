// GEMM on the CPU: y = x W^T by oneDNN's matmul with prepacked f32 weights, its calls
// single-threaded and spread over our ThreadPool.
//
// The weight is packed once into oneDNN's blocked format BA16a64b: panels of 64 output columns,
// each contiguous. A slice of columns is therefore a part of the one packed buffer, and a product
// is cut into tiles of rows x columns that are independent oneDNN calls, each writing its own part
// of y.
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
#include "backend/cpu/scratch.h"
#include "base/buffer.h"
#include "base/thread_pool.h"

namespace blend::cpu {

// W [out, in] in the form that the GEMM reads. Immutable.
class PackedMatrix final : public Weight {
 public:
  size_t bytes() const override { return data_.bytes(); }
  int64_t out() const { return out_; }
  int64_t in() const { return in_; }

 private:
  friend class Gemm;
  int64_t out_ = 0, in_ = 0;
  bool blocked_ = false;    // panels of oneDNN's BA16a64b; false: rows as they came, [out, in]
  size_t panel_bytes_ = 0;  // of 64 columns
  AlignedBuffer data_;
};

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
TilePlan plan_tiles(int64_t m, int64_t n, int64_t k, uint32_t n_threads);

// Thread-safe. `pool` and `scratch` must outlive it.
class Gemm {
 public:
  enum class Packing { best, rows };  // rows: what hosts without AVX-512 get

  Gemm(ThreadPool& pool, ScratchPool& scratch);

  // Stacks the parts along their rows. NUMERIC names the tensor and the place of a NaN or infinity.
  Result<std::unique_ptr<PackedMatrix>> pack(std::span<const TensorView* const> parts,
                                             Packing packing = Packing::best);
  // y = x W^T, or y += x W^T; x: [m, in], y: [m, out].
  Status run(const PackedMatrix& w, const float* x, int64_t m, float* y, bool accumulate);

 private:
  struct Primitive {
    dnnl::matmul::primitive_desc desc;
    dnnl::matmul matmul;
    size_t scratch_bytes = 0;
  };
  struct Operands;
  struct Tiles;
  using Key = std::tuple<int64_t, int64_t, int64_t, bool, bool>;  // m, k, n, blocked, accumulate

  std::shared_ptr<const Primitive> primitive(const Key& key);
  void run_tile(const Operands& op, const Tiles& tiles, size_t tile, std::byte* scratch,
                dnnl::stream& stream) const;

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

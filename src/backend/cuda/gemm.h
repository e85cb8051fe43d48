// Gemm: y = x W^T on the tensor cores, by cuBLASLt.
//
// bf16 operands, sums in f32. Row-major [m, k] is column-major [k, m], so the library is asked for
// D [out, m] = A^T B with A = W [in, out] and B = x [in, m]: the form that it is fastest in.
//
// An algorithm is chosen for exactly the product's row count. One that was chosen for more rows, so
// that it could be kept for many counts, computed 669 rows of an 8B shape 1.34 times as slowly on
// an H200: its tiles fit the other count. The choice depends on the product alone: the same call
// gives the same bits, whatever came before it. A product without any algorithm is computed by a
// plain kernel.
#pragma once

#include <cublasLt.h>

#include <map>
#include <memory>
#include <tuple>

#include "backend/cuda/device.h"
#include "backend/cuda/lt_library.h"
#include "base/threads/guarded.h"

namespace blend::cuda {

// One product. `in` is a multiple of 8, so that every row of x and W begins at 16 bytes.
struct GemmShape {
  int64_t rows = 0;  // of x and y
  int64_t in = 0;    // leading dimension of x and W
  int64_t out = 0;
  bool out_bf16 = false;  // else f32
};

// Thread-safe. Works with the calling thread's device; ordered by its compute stream.
class Gemm {
 public:
  static Result<std::unique_ptr<Gemm>> create(Device& device);
  ~Gemm();

  // y = x w^T, or y += x w^T. x: bf16 [rows, in], w: bf16 [out, in], y: [rows, out].
  Status run(const GemmShape& shape, const uint16_t* x, const uint16_t* w, void* y,
             bool accumulate);

 private:
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;
  // Of shapes by rows; some 300 bytes each. Asking again gives the same answer.
  static constexpr size_t kMostChoices = 4096;
  // Key of a choice: in, out, rows, bf16 results, alignments of x and y.
  using Key = std::tuple<int64_t, int64_t, int64_t, bool, uint32_t, uint32_t>;

  struct Choice {
    bool found = false;  // else the library has none
    cublasLtMatmulAlgo_t algorithm{};
  };

  Gemm(Device& device, const LtLibrary& lt) : device_(device), lt_(lt) {}
  Result<Choice> choose(const GemmShape& shape, uint32_t x_alignment, uint32_t y_alignment);

  Device& device_;
  const LtLibrary lt_;
  cublasLtHandle_t handle_ = nullptr;
  Memory workspace_;  // of products in the compute stream, which come one after another
  Mutex mutex_;
  std::map<Key, Choice> choices_ BLEND_GUARDED_BY(mutex_);
};

}  // namespace blend::cuda

// CudaPackedQkv: Q, K and V of a layer's rows by one product: the wide product fills the device
// where that of K and V alone is a few blocks, and one kernel does all that follows.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/core.h"
#include "backend/packed_qkv.h"
#include "cuda/kv_rows.h"

namespace blend::cuda {

// Thread-safe as CudaBackend is, whose core and row operations it uses.
class CudaPackedQkv final : public PackedQkv {
 public:
  CudaPackedQkv(Backend& backend, const CudaCore& core) : backend_(backend), core_(core) {}

  Result<std::unique_ptr<Weight>> part_of(const Weight& matrix, int64_t first,
                                          int64_t rows) override;
  Status project(const QkvWeights& weights, Tensor x, const QkvTarget& to) override;
  Status project_each(const QkvWeights& weights, uint32_t layer, Tensor x,
                      std::span<const RowInto> rows, Tensor q, Tensor scratch) override;

 private:
  // The product of Q | K | V and all that follows but RoPE, for the first `rows` rows; view: of
  // any of their caches.
  Status project_stacked(const QkvWeights& weights, Tensor x, Tensor all, int64_t rows,
                         int64_t q_dim, const kernels::cuda::KvView& view);

  Backend& backend_;
  const CudaCore& core_;
};

}  // namespace blend::cuda

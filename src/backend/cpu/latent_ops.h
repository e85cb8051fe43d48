// CpuLatentOps: the LatentOps of the CpuBackend.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "backend/cpu/gemm.h"
#include "backend/cpu/scratch.h"
#include "backend/latent_ops.h"
#include "base/threads/thread_pool.h"

namespace blend::cpu {

// Thread-safe. Its constructor's arguments must outlive it.
class CpuLatentOps final : public LatentOps {
 public:
  // Makes the matrix of stacked parts in a form.
  using LoadMatrix = std::function<Result<std::unique_ptr<CpuMatrix>>(
      std::span<const TensorView* const> parts, WeightForm form)>;

  CpuLatentOps(ThreadPool& pool, ScratchPool& scratch, Gemm& gemm, LoadMatrix load_matrix)
      : pool_(pool), scratch_(scratch), gemm_(gemm), load_matrix_(std::move(load_matrix)) {}

  Result<std::unique_ptr<Weight>> load(std::span<const TensorView> heads, WeightForm form) override;
  Status norm(Tensor rows, const Weight& weight, float eps) override;
  Status ask(const Latent& latent, const Weight& keys, Tensor heads, Tensor q) override;
  Status values(const Latent& latent, const Weight& values, Tensor mean, Tensor out) override;

 private:
  // A part of each head in a row of heads of `dim` elements.
  struct Part {
    float* data;
    size_t dim, first, n;
  };
  // to = W from, of each head; both have as many rows.
  Status multiply(const Weight& heads, size_t rows, bool steps, Part from, Part to);

  ThreadPool& pool_;
  ScratchPool& scratch_;
  Gemm& gemm_;
  LoadMatrix load_matrix_;
};

}  // namespace blend::cpu

// CpuExpertOps: the ExpertOps of the CpuBackend.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/cpu/gemm.h"
#include "backend/cpu/int8_gemm.h"
#include "backend/expert_ops.h"
#include "base/threads/thread_pool.h"

namespace blend::cpu {

// A matrix of every expert, or of every head. Immutable.
class CpuExperts final : public Weight {
 public:
  explicit CpuExperts(std::vector<std::unique_ptr<CpuMatrix>> matrices)
      : matrices_(std::move(matrices)) {}
  size_t bytes() const override;
  size_t size() const { return matrices_.size(); }
  const CpuMatrix& matrix(uint32_t expert) const { return *matrices_[expert]; }

 private:
  std::vector<std::unique_ptr<CpuMatrix>> matrices_;
};

// Thread-safe. Its constructor's arguments must outlive it. Rows are sorted by expert, and each
// expert's are multiplied as one product; some experts at a time, so that the sorted rows and what
// comes of them have a bounded size.
class CpuExpertOps final : public ExpertOps {
 public:
  // Makes the matrix of stacked parts in a form.
  using LoadMatrix = std::function<Result<std::unique_ptr<CpuMatrix>>(
      std::span<const TensorView* const> parts, WeightForm form)>;

  CpuExpertOps(ThreadPool& pool, Gemm& gemm, Int8Gemm& int8_gemm, LoadMatrix load_matrix)
      : pool_(pool), gemm_(gemm), int8_gemm_(int8_gemm), load_matrix_(std::move(load_matrix)) {}

  Result<std::unique_ptr<Weight>> load(std::span<const std::vector<const TensorView*>> parts,
                                       WeightForm form) override;
  size_t scratch_bytes(const ModelConfig& config, uint32_t max_rows) const override;
  Status weigh(const Weight& vector, Tensor by, Tensor x) override;
  Status run(const ExpertLayer& layer, const ModelConfig& config, Tensor x, Tensor scores, Tensor y,
             DeviceBuffer& scratch) override;

 private:
  struct Scratch;

  void choose(const ExpertLayer& layer, const Experts& experts, Tensor scores, const Scratch& s);
  // The experts [begin, end), whose rows fit the scratch.
  Status run_some(const ExpertLayer& layer, const ModelConfig& config, uint32_t begin, uint32_t end,
                  Tensor x, Tensor y, const Scratch& s);
  Status multiply(std::span<const Gemm::Product> products);
  // rows: those of the experts [begin, end), of `cols` elements; bias: of each expert.
  void add_biases(const Weight* bias, uint32_t begin, uint32_t end, const Scratch& s, size_t cols,
                  float* rows);
  void gate(const ModelConfig& config, uint32_t n_rows, const float* gate_up, float* out);

  ThreadPool& pool_;
  Gemm& gemm_;
  Int8Gemm& int8_gemm_;
  LoadMatrix load_matrix_;
};

}  // namespace blend::cpu

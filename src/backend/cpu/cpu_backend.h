// CpuBackend: the Backend on a ThreadPool, with the kernels and GEMM of kernels/cpu.
#pragma once

#include <string>

#include "backend/backend.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/int8_gemm.h"
#include "backend/cpu/scratch.h"
#include "cpu/isa.h"

namespace blend::cpu {

// Thread-safe: an operation keeps its state on its stack and in scratch that it borrows; operations
// of concurrent callers share the pool. Activations are f32. Operations are done when they
// return.
class CpuBackend final : public Backend {
 public:
  CpuBackend(ThreadPool& pool, DType cache_dtype)
      : pool_(pool), cache_dtype_(cache_dtype), gemm_(pool, scratch_), int8_gemm_(pool, scratch_) {}

  const char* name() const override { return name_.c_str(); }
  int64_t activation_bytes() const override { return sizeof(float); }
  int64_t cache_bytes() const override { return dtype_size(cache_dtype_); }
  // With more rows, weights kept as in the file are decoded for a GEMM (gemm.h).
  uint32_t step_rows() const override { return 24; }

  Result<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) override;
  Result<std::unique_ptr<DeviceBuffer>> allocate_host(size_t bytes) override {
    return allocate(bytes);
  }
  Status download(const Tensor& src, float* dst) override;

  Result<std::unique_ptr<Weight>> load_matrix(std::span<const TensorView* const> parts) override;
  bool keeps(WeightForm /*form*/) const override { return true; }
  Result<std::unique_ptr<Weight>> load_matrix_as(WeightForm form,
                                                 std::span<const TensorView* const> parts) override;
  Result<std::unique_ptr<Weight>> load_table(const TensorView& table, bool known_finite) override;
  Result<std::unique_ptr<Weight>> load_vector(std::span<const TensorView* const> parts,
                                              float offset) override;

  Status embed(const Weight& table, const int32_t* tokens, Tensor out) override;
  Status gather(Tensor src, const uint32_t* rows, Tensor dst) override;
  Status rms_norm(Tensor x, const Weight& weight, float eps, Tensor out) override;
  Status matmul(const Weight& w, Tensor x, Tensor y, bool accumulate) override;
  Status swiglu(Tensor gate_up, Tensor out) override;
  Status geglu(Tensor gate_up, Tensor out) override;
  Status add_bias(const Weight& bias, Tensor x) override;
  Status norm_heads(Tensor x, uint32_t n_heads, const Weight& weight, float eps) override;
  Status add(Tensor x, Tensor y) override;
  Status scale(Tensor x, float factor) override;

  Result<std::shared_ptr<RopeTable>> make_rope(const RopeParams& params,
                                               uint32_t n_positions) override;
  Result<std::unique_ptr<KvCache>> make_kv_cache(const ModelConfig& config,
                                                 uint32_t capacity) override;
  Result<std::unique_ptr<KvCache>> fork_kv_cache(KvCache& cache, uint32_t n_rows) override;
  Status rope_q(const RopeTable& rope, const uint32_t* pos, uint32_t head_dim, Tensor q) override;
  Status write_kv(KvCache& cache, uint32_t layer, const RopeTable& rope, Tensor kv,
                  const uint32_t* pos) override;
  Status read_kv(const KvCache& cache, uint32_t layer, const RopeTable& rope, uint32_t first,
                 Tensor kv) override;
  Status place(KvCache& cache, uint32_t layer, const RopeTable& rope,
               std::span<const StoredRun> runs, const uint8_t* skip,
               const Correction* correction) override;
  Status move(const KvCache& src, KvCache& dst, const RopeTable& rope,
              const RowMove& rows) override;
  Status attention(const KvCache& cache, uint32_t layer, const AttentionRule& rule, Tensor q,
                   const uint32_t* pos, Tensor out) override;
  Status attention_each(uint32_t layer, const AttentionRule& rule, Tensor q,
                        std::span<const RowOver> rows) override;
  Status attention_tempered(const KvCache& cache, uint32_t layer, const AttentionRule& rule,
                            Tensor q, const uint32_t* pos, const Tempering& tempering, Tensor out,
                            float* mass) override;
  Status attention_mass(const KvCache& cache, uint32_t layer, const AttentionRule& rule, Tensor q,
                        const uint32_t* pos, float* mass) override;

  Status deviation(Tensor kv, std::span<const StoredRun> runs, const DeviationRule& rule,
                   float* out) override;
  Status drift_inputs(Tensor kv, std::span<const StoredRun> runs, DriftInputs inputs,
                      Tensor out) override;
  Status stored_inputs(std::span<const StoredRun> runs, const StoredFeatures* features,
                       Tensor out) override;
  Status drift_share(Tensor predicted, Tensor drift, DriftShare* share) override;
  Status scale_kv(Tensor kv, DriftShare share) override;
  Status top_k(std::span<const float> scores, size_t k, uint32_t* out) override;
  Status encode_kv(Tensor kv, DType dtype, std::byte* k, std::byte* v) override;

  Status read_host(const HostKv& src, const RopeTable& rope, const uint32_t* pos,
                   Tensor kv) override;
  Status place_host(const HostKv& dst, const RopeTable& rope, std::span<const StoredRun> runs,
                    const uint8_t* skip, const Correction* correction) override;

 private:
  ThreadPool& pool_;
  const DType cache_dtype_;
  const std::string name_ = "cpu (" + kernels::isa_text() + ")";
  ScratchPool scratch_;
  Gemm gemm_;
  Int8Gemm int8_gemm_;
};

}  // namespace blend::cpu

// CpuBackend: the Backend on a ThreadPool, with the kernels and GEMM of kernels/cpu.
#pragma once

#include <string>

#include "backend/backend.h"
#include "backend/cpu/conv_ops.h"
#include "backend/cpu/expert_ops.h"
#include "backend/cpu/family_ops.h"
#include "backend/cpu/fusion_ops.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/host_ops.h"
#include "backend/cpu/int8_gemm.h"
#include "backend/cpu/latent_ops.h"
#include "backend/cpu/scan_ops.h"
#include "backend/cpu/scratch.h"
#include "backend/cpu/stream_ops.h"
#include "cpu/few_rows.h"
#include "cpu/isa.h"

namespace blend::cpu {

// Thread-safe: an operation keeps its state on its stack and in scratch that it borrows; operations
// of concurrent callers share the pool. Activations are f32. Operations are done when they
// return.
class CpuBackend final : public Backend {
 public:
  CpuBackend(ThreadPool& pool, DType cache_dtype)
      : pool_(pool), cache_dtype_(cache_dtype), gemm_(pool, scratch_), int8_gemm_(pool, scratch_) {
    traits_.cache_bytes = dtype_size(cache_dtype);
    traits_.mapped_weights = traits_.int8_weights = true;
    traits_.step_rows = kernels::kFewRowsAlways;  // with more, mapped weights may be decoded
  }

  const char* name() const override { return name_.c_str(); }
  const BackendTraits& traits() const override { return traits_; }

  FusionOps& fusion() override { return fusion_; }
  HostOps& host() override { return host_; }
  DeviceMemory* device_memory() override { return nullptr; }
  PackedQkv* packed_qkv() override { return nullptr; }
  RecordOps* record_ops() override { return nullptr; }
  ExpertOps* experts() override { return &experts_; }
  ConvOps* conv() override { return &conv_; }
  ScanOps* scan() override { return &scan_; }
  FamilyOps* family() override { return &family_; }
  StreamOps* streams() override { return &streams_; }
  LatentOps* latent() override { return &latent_; }

  Result<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) override;
  Result<std::unique_ptr<DeviceBuffer>> allocate_host(size_t bytes) override {
    return allocate(bytes);
  }
  Result<std::unique_ptr<Fence>> fence() override { return std::unique_ptr<Fence>(); }
  Status download(const Tensor& src, float* dst) override;

  Result<std::unique_ptr<Weight>> load_matrix(std::span<const TensorView* const> parts,
                                              WeightForm form) override;
  Result<std::unique_ptr<Weight>> load_table(const TensorView& table, bool known_finite) override;
  Result<std::unique_ptr<Weight>> load_vector(std::span<const TensorView* const> parts,
                                              float offset) override;

  Status embed(const Weight& table, const int32_t* tokens, Tensor out) override;
  Status gather(Tensor src, const uint32_t* rows, Tensor dst) override;
  Status matmul(const Weight& w, Tensor x, Tensor y, bool accumulate) override;
  Status add_bias(const Weight& bias, Tensor x) override;
  Status add(Tensor x, Tensor y) override;
  Status scale(Tensor x, float factor) override;
  Status rms_norm(Tensor x, const Weight& weight, float eps, Tensor out) override;
  Status norm_heads(Tensor x, uint32_t n_heads, const Weight& weight, float eps) override;
  Status glu(Activation activation, Tensor gate_up, Tensor out) override;

  Result<std::shared_ptr<RopeTable>> make_rope(const RopeParams& params,
                                               uint32_t n_positions) override;
  Result<std::unique_ptr<KvCache>> make_kv_cache(const ModelConfig& config,
                                                 uint32_t capacity) override;
  Status rope_q(const RopeTable& rope, const uint32_t* pos, uint32_t head_dim, Tensor q) override;
  Status write_kv(KvCache& cache, uint32_t layer, const RopeTable& rope, Tensor kv,
                  const uint32_t* pos) override;
  Status move_rows(const KvCache& src, KvCache& dst, const RopeTable& rope,
                   const RowMove& rows) override;
  Status attention(const KvCache& cache, uint32_t layer, const AttentionRule& rule, Tensor q,
                   const uint32_t* pos, Tensor out) override;
  Status attention_each(uint32_t layer, const AttentionRule& rule, Tensor q,
                        std::span<const RowOver> rows) override;

 private:
  Result<std::unique_ptr<CpuMatrix>> make_matrix(std::span<const TensorView* const> parts,
                                                 WeightForm form);

  ThreadPool& pool_;
  const DType cache_dtype_;
  const std::string name_ = "cpu (" + kernels::isa_text() + ")";
  BackendTraits traits_;
  ScratchPool scratch_;
  Gemm gemm_;
  Int8Gemm int8_gemm_;
  CpuFusionOps fusion_{pool_, scratch_};
  CpuHostOps host_{pool_, scratch_};
  CpuConvOps conv_{pool_};
  CpuScanOps scan_{pool_, scratch_};
  CpuFamilyOps family_{pool_, scratch_};
  CpuStreamOps streams_{pool_};
  CpuExpertOps experts_{pool_, gemm_, int8_gemm_,
                        [this](auto parts, WeightForm form) { return make_matrix(parts, form); }};
  CpuLatentOps latent_{pool_, scratch_, gemm_,
                       [this](auto parts, WeightForm form) { return make_matrix(parts, form); }};
};

}  // namespace blend::cpu

// CudaBackend: the Backend on one NVIDIA GPU, with the kernels of kernels/cuda and cuBLASLt's GEMM.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/core.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/fusion_ops.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/host_ops.h"
#include "backend/cuda/packed_qkv.h"
#include "backend/cuda/recorder.h"
#include "cuda/step_rows.h"

namespace blend::cuda {

// Thread-safe. Operations are issued and not waited for; those whose results the host gets (see
// backend.h) wait for the compute stream, never for the device.
//
// Weights, the KV cache and operands are bf16; the residual stream, K | V as computed, deviations
// and logits f32, as is every sum. The residual stream is read and added to by every layer, so
// rounding errors in it would add up, and its bytes are few beside a layer's weights.
class CudaBackend final : public Backend {
 public:
  // `pool` copies to pinned memory; it must outlive the backend.
  static Result<std::unique_ptr<Backend>> create(int32_t device, ThreadPool& pool);

  const char* name() const override { return name_.c_str(); }
  const BackendTraits& traits() const override { return traits_; }

  FusionOps& fusion() override { return fusion_; }
  HostOps& host() override { return host_; }
  DeviceMemory* device_memory() override { return &device_memory_; }
  PackedQkv* packed_qkv() override { return &packed_qkv_; }
  RecordOps* record_ops() override { return &record_ops_; }
  ConvOps* conv() override { return nullptr; }
  ScanOps* scan() override { return nullptr; }
  FamilyOps* family() override { return nullptr; }
  StreamOps* streams() override { return nullptr; }
  LatentOps* latent() override { return nullptr; }
  ExpertOps* experts() override { return nullptr; }

  Result<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) override;
  Result<std::unique_ptr<DeviceBuffer>> allocate_host(size_t bytes) override;
  Result<std::unique_ptr<Fence>> fence() override;
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
  CudaBackend(std::unique_ptr<Device> device, ThreadPool& pool);

  // Copies `tensor` in pieces of whole rows: use(raw, first row, rows) issues the work on the
  // piece. [rows, cols] as the caller sees the tensor. NUMERIC by the counter.
  using UsePiece = void (*)(void* context, const void* raw, size_t first_row, size_t n_rows,
                            unsigned long long* bad);
  Status load_pieces(const TensorView& tensor, size_t rows, size_t cols, UsePiece use,
                     void* context);

  CudaCore core_;  // outlives all members below
  std::string name_;
  BackendTraits traits_;
  std::unique_ptr<Gemm> gemm_;
  CudaFusionOps fusion_{core_};
  CudaHostOps host_{core_};
  CudaDeviceMemory device_memory_{core_};
  CudaPackedQkv packed_qkv_{*this, core_};
  CudaRecordOps record_ops_{core_};
};

}  // namespace blend::cuda

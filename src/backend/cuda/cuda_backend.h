// CudaBackend: the Backend on one NVIDIA GPU, with the kernels of kernels/cuda and cuBLASLt's GEMM.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/stager.h"
#include "cuda/packed_rows.h"
#include "cuda/rows.h"
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
  int64_t activation_bytes() const override { return sizeof(float); }
  int64_t operand_bytes() const override { return sizeof(uint16_t); }
  int64_t cache_bytes() const override { return sizeof(uint16_t); }
  bool unpacks() const override { return true; }
  uint32_t block_rows() const override { return 4096; }
  // Products of this few rows take as long as reading the weights (that ends at some 300 rows
  // on an H100), so a step may have all of them: only the attention of the present rows
  // grows. And a table of them fits into a launch's arguments.
  uint32_t step_rows() const override { return kernels::cuda::StepRows::kMost; }
  // cuBLASLt has other algorithms for other row counts.
  bool pads_steps() const override { return true; }

  Result<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) override;
  Result<std::unique_ptr<DeviceBuffer>> allocate_host(size_t bytes) override;
  Result<std::unique_ptr<Fence>> fence() override;
  bool has_own_memory() const override { return true; }
  Result<std::unique_ptr<DeviceBuffer>> keep(size_t bytes,
                                             std::span<const KeptPart> parts) override;
  Status check_room(uint64_t n_elements) override;
  Status download(const Tensor& src, float* dst) override;

  bool records() const override { return true; }
  std::unique_ptr<RecordedStep> record(const StepInput& input,
                                       const std::function<Status()>& issue) override;

  Result<std::unique_ptr<Weight>> load_matrix(std::span<const TensorView* const> parts) override;
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
  Status top_k(std::span<const float> scores, size_t count, uint32_t* out) override;
  Status encode_kv(Tensor kv, DType dtype, std::byte* k_out, std::byte* v_out) override;

  bool stacks_qkv() const override { return true; }
  Result<std::unique_ptr<Weight>> part_of(const Weight& matrix, int64_t first,
                                          int64_t rows) override;
  Status project_qkv(const QkvWeights& weights, Tensor x, const QkvPlaces& to) override;

  Status project_qkv_each(const QkvWeights& weights, uint32_t layer, Tensor x,
                          std::span<const RowInto> rows, Tensor q, Tensor scratch) override;
  Status attention_each(uint32_t layer, const AttentionRule& rule, Tensor q,
                        std::span<const RowOver> rows) override;

  Status read_host(const HostKv& src, const RopeTable& rope, const uint32_t* pos,
                   Tensor kv) override;
  Status place_host(const HostKv& dst, const RopeTable& rope, std::span<const StoredRun> runs,
                    const uint8_t* skip, const Correction* correction) override;

 private:
  CudaBackend(std::unique_ptr<Device> device, ThreadPool& pool)
      : device_(std::move(device)), pool_(pool) {}

  DeviceScope enter() const { return DeviceScope(device_->context()); }
  cudaStream_t stream() const { return device_->compute(); }
  static DType type_of(const Tensor& t) { return t.elem_bytes == 4 ? DType::f32 : DType::bf16; }
  static kernels::cuda::Rows rows_of(const Tensor& t) {
    return {t.data, type_of(t), static_cast<size_t>(t.rows), static_cast<size_t>(t.cols)};
  }
  // Copies device memory to the host; waits for it.
  Status fetch(void* to, const void* from, size_t bytes);
  // Staged run i as an argument of the kernels of packed rows.
  static kernels::cuda::PackedRows packed_rows(const Stager::Rows& staged, size_t i,
                                               const StoredRun& run, size_t kv_dim);
  // Staged run i as plain rows; `unpacked` holds them if they were packed.
  struct PlainRows {
    const void* k = nullptr;
    const void* v = nullptr;
    Memory unpacked;
  };
  Result<PlainRows> plain_rows(const Stager::Rows& staged, size_t i, const StoredRun& run,
                               size_t kv_dim);
  // The rule's scale, or the default for heads of this size.
  static float scale_of(const AttentionRule& rule, uint32_t head_dim);
  // The product of Q | K | V and all that follows but RoPE, for the first `rows` rows; view: of
  // any of their caches.
  Status project_stacked(const QkvWeights& weights, Tensor x, Tensor all, int64_t rows,
                         int64_t q_dim, const kernels::cuda::KvView& view);
  // op names it in errors. q.rows > 0.
  struct AttentionCall;
  Result<AttentionCall> begin_attention(const char* op, const KvCache& cache, uint32_t layer,
                                        const AttentionRule& rule, Tensor q, const uint32_t* pos,
                                        Tensor out);
  // A counter that kernels lower to the index of the first error; kNone at first.
  static constexpr unsigned long long kNone = ~0ull;
  Result<Memory> make_counter();
  Result<unsigned long long> read_counter(const Memory& counter);
  // Copies `tensor` in pieces of whole rows: use(raw, first row, rows) issues the work on the
  // piece. [rows, cols] as the caller sees the tensor. NUMERIC by the counter.
  using UsePiece = void (*)(void* context, const void* raw, size_t first_row, size_t n_rows,
                            unsigned long long* bad);
  Status load_pieces(const TensorView& tensor, size_t rows, size_t cols, UsePiece use,
                     void* context);

  std::unique_ptr<Device> device_;  // outlives all members below
  ThreadPool& pool_;
  std::string name_;
  std::unique_ptr<Stager> stager_;
  std::unique_ptr<Gemm> gemm_;
};

}  // namespace blend::cuda

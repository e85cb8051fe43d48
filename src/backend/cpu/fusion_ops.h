// CpuFusionOps: a fuse's operations on the CPU.
#pragma once

#include "backend/cpu/scratch.h"
#include "backend/fusion_ops.h"
#include "base/threads/thread_pool.h"

namespace blend::cpu {

// Thread-safe as CpuBackend is, whose pool and scratch it uses.
class CpuFusionOps final : public FusionOps {
 public:
  CpuFusionOps(ThreadPool& pool, ScratchPool& scratch) : pool_(pool), scratch_(scratch) {}

  Status scatter(KvCache& cache, uint32_t layer, const RopeTable& rope,
                 std::span<const StoredRun> runs, const uint8_t* skip,
                 const Correction* correction) override;
  Status read_kv(const KvCache& cache, uint32_t layer, const RopeTable& rope, const uint32_t* slots,
                 Tensor kv) override;
  Status encode_kv(Tensor kv, DType dtype, std::byte* k, std::byte* v) override;

  Status deviation(Tensor kv, std::span<const StoredRun> runs, const DeviationRule& rule,
                   float* out) override;
  Status top_k(std::span<const float> scores, size_t k, uint32_t* out) override;

  Status drift_inputs(Tensor kv, std::span<const StoredRun> runs, DriftInputs inputs,
                      Tensor out) override;
  Status stored_inputs(std::span<const StoredRun> runs, const StoredFeatures* features,
                       Tensor out) override;
  Status drift_share(Tensor predicted, Tensor drift, DriftShare* share) override;
  Status scale_kv(Tensor kv, DriftShare share) override;
  Status shift_rows(KvCache& cache, uint32_t layer, const RopeTable& rope, const Moves& moves,
                    std::span<const ShiftedChunk> chunks) override;

  Status attention_mass(const KvCache& cache, uint32_t layer, const AttentionRule& rule, Tensor q,
                        const uint32_t* pos, float* mass) override;
  Status attention_tempered(const KvCache& cache, uint32_t layer, const AttentionRule& rule,
                            Tensor q, const uint32_t* pos, const Tempering& tempering, Tensor out,
                            float* mass) override;

 private:
  ThreadPool& pool_;
  ScratchPool& scratch_;
};

}  // namespace blend::cpu

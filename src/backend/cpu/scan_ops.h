// CpuScanOps: the ScanOps of the CpuBackend.
#pragma once

#include <span>

#include "backend/cpu/kv_cache.h"
#include "backend/cpu/scratch.h"
#include "backend/scan_ops.h"
#include "base/threads/thread_pool.h"

namespace blend::cpu {

// Thread-safe as CpuBackend is, whose pool and scratch it uses.
class CpuScanOps final : public ScanOps {
 public:
  CpuScanOps(ThreadPool& pool, ScratchPool& scratch) : pool_(pool), scratch_(scratch) {}
  Status prepare(const RowMixer& mixer, const ScanLayer& layer, Tensor rows) override;
  Status mix(const RowMixer& mixer, const ScanLayer& layer, const KvCache& cache,
             uint32_t cache_layer, Tensor z, const uint32_t* pos, const Watch& watch) override;
  Status mix_each(const RowMixer& mixer, const ScanLayer& layer, uint32_t cache_layer, Tensor z,
                  std::span<const RowOver> rows) override;
  Status gate(Tensor gate, Tensor x) override;

 private:
  // Results of rows in ascending order; out: [rows], each [value_dim].
  Status scan(const RowMixer& mixer, const ScanLayer& layer, const CpuKvCache& cache,
              uint32_t cache_layer, std::span<const uint32_t> pos, std::span<float* const> out,
              const Watch& watch);
  void finish(const RowMixer& mixer, const ScanLayer& layer, float* y, float* z, size_t rows);

  ThreadPool& pool_;
  ScratchPool& scratch_;
};

}  // namespace blend::cpu

// CpuConvOps: the ConvOps of the CpuBackend, and rows of other kinds than K | V into its
// caches and out of them.
#pragma once

#include <span>

#include "backend/conv_ops.h"
#include "backend/cpu/kv_cache.h"
#include "backend/stored_run.h"
#include "base/threads/thread_pool.h"

namespace blend::cpu {

// Thread-safe as CpuBackend is, whose pool it uses.
class CpuConvOps final : public ConvOps {
 public:
  explicit CpuConvOps(ThreadPool& pool) : pool_(pool) {}
  Status gate(Tensor bx, Tensor u) override;
  Status convolve(const KvCache& cache, uint32_t layer, const Weight& taps, Tensor c,
                  const uint32_t* pos) override;
  Status convolve_each(uint32_t layer, const Weight& taps, Tensor c,
                       std::span<const RowOver> rows) override;

 private:
  ThreadPool& pool_;
};

// What write_kv(), scatter(), read_kv() and move_rows() do in a layer that does not attend; their
// checks of slots and CpuKvCache::wrote() come before. u: [rows, row_dim].
Status write_rows(ThreadPool& pool, const CpuKvCache& cache, uint32_t layer, Tensor u,
                  const uint32_t* pos);
Status scatter_rows(ThreadPool& pool, const CpuKvCache& cache, uint32_t layer,
                    std::span<const StoredRun> runs, const uint8_t* skip);
void read_rows(ThreadPool& pool, const CpuKvCache& cache, uint32_t layer, const uint32_t* slots,
               Tensor u);
void move_rows(const CpuKvCache& from, const CpuKvCache& to, const RowMove& rows);

}  // namespace blend::cpu

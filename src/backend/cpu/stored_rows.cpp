// Stored rows into a KV cache and out of it.
#include <algorithm>
#include <atomic>

#include "backend/cpu/conv_ops.h"
#include "backend/cpu/fusion_ops.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/key_block_writer.h"
#include "backend/cpu/kv_cache.h"
#include "backend/cpu/rope_table.h"
#include "backend/outside.h"
#include "cpu/attention.h"
#include "cpu/convert.h"

namespace blend::cpu {

using kernels::kKeyBlock;

Status CpuFusionOps::scatter(KvCache& cache, uint32_t layer, const RopeTable& rope,
                             std::span<const StoredRun> runs, const uint8_t* skip,
                             const Correction* correction) {
  const auto& c = static_cast<const CpuKvCache&>(cache);
  const auto& table = static_cast<const CpuRopeTable&>(rope);
  const uint32_t limit = std::min(c.capacity(), table.n_positions());
  // The work is counted in key blocks, so that each is transposed in one piece.
  const auto blocks = [](const StoredRun& run) {
    if (run.n_rows == 0) return size_t{0};
    return (run.first + run.n_rows - 1) / kKeyBlock - run.first / kKeyBlock + 1;
  };
  size_t n_blocks = 0;
  for (const StoredRun& run : runs) {
    if (run.first > limit || run.n_rows > limit - run.first) {
      return outside("scatter", uint64_t{run.first} + run.n_rows, limit);
    }
    n_blocks += blocks(run);
    static_cast<CpuKvCache&>(cache).wrote(layer, run.first);
  }
  if (c.mixes(layer)) return scatter_rows(pool_, c, layer, runs, skip);
  const auto drift_of = [&](size_t slot) -> const float* {
    if (correction == nullptr || correction->row[slot] == Correction::kNone) return nullptr;
    return static_cast<const float*>(correction->kv.data) +
           correction->row[slot] * 2 * c.kv_dim(layer);
  };
  const size_t per_thread = KeyBlockWriter::scratch_floats(c.layout(layer));
  BLEND_ASSIGN(auto scratch, scratch_.take(per_thread * pool_.n_threads() * sizeof(float)));
  std::atomic<bool> finite{true};
  pool_.parallel_for(n_blocks, 4, [&](size_t begin, size_t end, uint32_t thread) {
    KeyBlockWriter writer(c, layer, table,
                          reinterpret_cast<float*>(scratch.data()) + per_thread * thread);
    size_t run_begin = 0;
    for (const StoredRun& run : runs) {
      const size_t run_end = run_begin + blocks(run);
      const size_t row_bytes = c.kv_dim(layer) * static_cast<size_t>(dtype_size(run.dtype));
      for (; begin < end && begin < run_end; ++begin) {
        const size_t block = run.first / kKeyBlock + (begin - run_begin);
        const size_t first = std::max<size_t>(run.first, block * kKeyBlock);
        const size_t last = std::min<size_t>(run.first + run.n_rows, (block + 1) * kKeyBlock);
        for (size_t slot = first; slot < last; ++slot) {
          if (skip != nullptr && skip[slot] != 0) continue;
          const size_t offset = (slot - run.first) * row_bytes;
          const float* const drift = drift_of(slot);
          writer.add(run.k + offset, run.v + offset, run.dtype, static_cast<uint32_t>(slot), drift);
        }
        if (!writer.flush()) finite.store(false, std::memory_order_relaxed);
      }
      run_begin = run_end;
    }
  });
  return finite ? Status::ok() : cache_not_finite(c, layer);
}

Status CpuFusionOps::read_kv(const KvCache& cache, uint32_t layer, const RopeTable& rope,
                             const uint32_t* slots, Tensor kv) {
  const auto& c = static_cast<const CpuKvCache&>(cache);
  const auto& table = static_cast<const CpuRopeTable&>(rope);
  const kernels::KvLayout& layout = c.layout(layer);
  const size_t rows = static_cast<size_t>(kv.rows), kv_dim = c.kv_dim(layer), dim = layout.head_dim;
  const uint32_t limit = std::min(c.capacity(), table.n_positions());
  if (rows > 0 && slots[rows - 1] >= limit) return outside("read_kv", slots[rows - 1], limit);
  if (c.mixes(layer)) {
    read_rows(pool_, c, layer, slots, kv);
    return Status::ok();
  }
  // A rotation is undone by the same cosines and the negated sines.
  const size_t half = table.row(0, 1, dim).rotary_dim / 2;
  BLEND_ASSIGN(auto scratch, scratch_.take(half * pool_.n_threads() * sizeof(float)));
  float* const data = static_cast<float*>(kv.data);
  pool_.parallel_for(rows, row_grain(2 * kv_dim), [&](size_t begin, size_t end, uint32_t thread) {
    float* const sin = reinterpret_cast<float*>(scratch.data()) + half * thread;
    for (size_t i = begin; i < end; ++i) {
      const uint32_t slot = slots[i];
      float* const out = data + i * 2 * kv_dim;
      for (size_t h = 0; h < layout.n_kv_heads; ++h) {
        const std::byte* const key = c.key(layer, h, slot);
        for (size_t e = 0; e < dim; ++e) {
          out[h * dim + e] = kernels::cached_value(key, c.dtype(), e * kKeyBlock);
        }
        if (layout.latent()) continue;  // that was both
        kernels::decode(c.value(layer, h, slot), c.dtype(), dim, out + kv_dim + h * dim);
      }
      kernels::RopeRow back = table.row(slot, layout.n_kv_heads, dim);
      for (size_t e = 0; e < half; ++e) sin[e] = -back.sin[e];
      back.sin = sin;
      kernels::rope(back, out);
    }
  });
  return Status::ok();
}

Status CpuFusionOps::encode_kv(Tensor kv, DType dtype, std::byte* k, std::byte* v) {
  const size_t rows = static_cast<size_t>(kv.rows), kv_dim = static_cast<size_t>(kv.cols) / 2;
  const size_t row_bytes = kv_dim * static_cast<size_t>(dtype_size(dtype));
  const float* const data = static_cast<const float*>(kv.data);
  std::atomic<size_t> first_bad{rows};
  pool_.parallel_for(rows, row_grain(2 * kv_dim), [&](size_t begin, size_t end, uint32_t) {
    for (size_t i = begin; i < end; ++i) {
      const float* row = data + i * 2 * kv_dim;
      const bool k_finite = kernels::encode(row, kv_dim, dtype, k + i * row_bytes);
      const bool v_finite = kernels::encode(row + kv_dim, kv_dim, dtype, v + i * row_bytes);
      if (k_finite && v_finite) continue;
      size_t seen = first_bad.load();
      while (i < seen && !first_bad.compare_exchange_weak(seen, i)) {
      }
    }
  });
  if (const size_t bad = first_bad.load(); bad != rows) {
    return make_error(BLEND_E_NUMERIC,
                      "K or V of row %zu is not finite in %s: the model's activations overflow%s",
                      bad, dtype_name(dtype),
                      dtype == DType::f16 ? "; store its KV as bf16 or f32" : "");
  }
  return Status::ok();
}

}  // namespace blend::cpu

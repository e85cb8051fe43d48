// RoPE, the KV cache and attention.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "backend/cpu/conv_ops.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/key_block_writer.h"
#include "backend/cpu/kv_cache.h"
#include "backend/cpu/rope_table.h"
#include "backend/cpu/weights.h"
#include "backend/outside.h"
#include "cpu/attention.h"
#include "cpu/move_keys.h"

namespace blend::cpu {
namespace {

using kernels::kKeyBlock;

// Parameters that all blocks of an attention share; the sinks are those of KV head 0.
kernels::AttentionBlock shape_of(const CpuKvCache& cache, uint32_t layer, const AttentionRule& rule,
                                 size_t cols) {
  const kernels::KvLayout& layout = cache.layout(layer);
  kernels::AttentionBlock shape;
  shape.q_stride = shape.out_stride = cols;
  shape.group = cols / (layout.n_kv_heads * layout.head_dim);
  shape.head_dim = layout.head_dim;
  shape.v_stride = layout.v_stride();
  shape.values_from = layout.values_from;
  shape.scale = rule.scale_of(layout.head_dim);
  shape.window = rule.window;
  shape.softcap = rule.softcap;
  shape.sinks = elements_of(rule.sinks);
  shape.dtype = cache.dtype();
  return shape;
}

constexpr double kAttentionWorthSharing = 5e5;  // FLOPs

// Query heads of a task, where all tasks with whole groups would be fewer than threads: those of
// one KV head may be many (latent rows). A head has the same bits in any task.
size_t heads_of_task(size_t group, size_t n_tasks, size_t n_threads) {
  constexpr size_t kLeast = 8;
  const size_t parts = std::max<size_t>(1, n_threads / std::max<size_t>(1, n_tasks));
  return std::min(group, std::max(kLeast, (group + parts - 1) / parts));
}

}  // namespace

Result<std::shared_ptr<RopeTable>> CpuBackend::make_rope(const RopeParams& params,
                                                         uint32_t n_positions) {
  BLEND_ASSIGN(std::shared_ptr<RopeTable> table, CpuRopeTable::create(pool_, params, n_positions));
  return table;
}

Result<std::unique_ptr<KvCache>> CpuBackend::make_kv_cache(const ModelConfig& config,
                                                           uint32_t capacity) {
  BLEND_ASSIGN(std::unique_ptr<KvCache> cache, CpuKvCache::create(config, capacity, cache_dtype_));
  return cache;
}

Status CpuBackend::rope_q(const RopeTable& rope, const uint32_t* pos, uint32_t head_dim, Tensor q) {
  const auto& table = static_cast<const CpuRopeTable&>(rope);
  const size_t cols = static_cast<size_t>(q.cols), rows = static_cast<size_t>(q.rows);
  for (size_t i = 0; i < rows; ++i) {
    if (pos[i] >= table.n_positions()) return outside("rope_q", pos[i], table.n_positions());
  }
  float* const data = static_cast<float*>(q.data);
  pool_.parallel_for(rows, row_grain(cols), [&](size_t begin, size_t end, uint32_t) {
    for (size_t i = begin; i < end; ++i) {
      kernels::rope(table.row(pos[i], cols / head_dim, head_dim), data + i * cols);
    }
  });
  return Status::ok();
}

Status CpuBackend::write_kv(KvCache& cache, uint32_t layer, const RopeTable& rope, Tensor kv,
                            const uint32_t* pos) {
  const auto& c = static_cast<const CpuKvCache&>(cache);
  const auto& table = static_cast<const CpuRopeTable&>(rope);
  const size_t rows = static_cast<size_t>(kv.rows), kv_dim = c.kv_dim(layer);
  const uint32_t limit = std::min(c.capacity(), table.n_positions());
  for (size_t i = 0; i < rows; ++i) {
    if (pos[i] >= limit) return outside("write_kv", pos[i], limit);
  }
  if (rows > 0) static_cast<CpuKvCache&>(cache).wrote(layer, *std::min_element(pos, pos + rows));
  if (c.mixes(layer)) return write_rows(pool_, c, layer, kv, pos);
  const size_t per_thread = KeyBlockWriter::scratch_floats(c.layout(layer));
  BLEND_ASSIGN(auto scratch, scratch_.take(per_thread * pool_.n_threads() * sizeof(float)));
  // A piece begins with the first row of a key block, so that threads share no cache line of K.
  const auto aligned = [&](size_t i) {
    while (i > 0 && i < rows && pos[i] / kKeyBlock == pos[i - 1] / kKeyBlock) ++i;
    return i;
  };
  const std::byte* const data = static_cast<const std::byte*>(kv.data);
  const size_t half_bytes = kv_dim * sizeof(float);
  const size_t grain = std::max(4 * kKeyBlock, row_grain(2 * kv_dim));
  std::atomic<bool> finite{true};
  pool_.parallel_for(rows, grain, [&](size_t begin, size_t end, uint32_t thread) {
    KeyBlockWriter writer(c, layer, table,
                          reinterpret_cast<float*>(scratch.data()) + per_thread * thread);
    const size_t last = aligned(end);
    for (size_t i = aligned(begin); i < last; ++i) {
      if (i > 0 && pos[i] / kKeyBlock != pos[i - 1] / kKeyBlock) writer.flush();
      const std::byte* k = data + i * 2 * half_bytes;
      writer.add(k, k + half_bytes, DType::f32, pos[i]);
    }
    if (!writer.flush()) finite.store(false, std::memory_order_relaxed);
  });
  return finite ? Status::ok() : cache_not_finite(c, layer);
}

Status CpuBackend::move_rows(const KvCache& src, KvCache& dst, const RopeTable& rope,
                             const RowMove& rows) {
  const auto& s = static_cast<const CpuKvCache&>(src);
  const auto& d = static_cast<const CpuKvCache&>(dst);
  const auto& table = static_cast<const CpuRopeTable&>(rope);
  if (rows.from > s.capacity() || rows.n > s.capacity() - rows.from) {
    return outside("move_rows", uint64_t{rows.from} + rows.n, s.capacity());
  }
  if (rows.to > d.capacity() || rows.n > d.capacity() - rows.to) {
    return outside("move_rows", uint64_t{rows.to} + rows.n, d.capacity());
  }
  const auto distance = static_cast<uint32_t>(std::abs(static_cast<int64_t>(rows.turn)));
  if (distance >= table.n_positions()) return outside("move_rows", distance, table.n_positions());
  if (rows.n > 0) static_cast<CpuKvCache&>(dst).wrote(rows.dst_layer, rows.to);
  if (s.mixes(rows.src_layer)) {
    cpu::move_rows(s, d, rows);
    return Status::ok();
  }
  const kernels::KvLayout& layout = s.layout(rows.src_layer);
  const size_t n_kv_heads = layout.n_kv_heads, head_dim = layout.head_dim;
  const kernels::KeyMove keys{table.row(distance, 1, head_dim), rows.from, rows.to, rows.n};
  const float sin_sign = rows.turn < 0 ? -1.0f : 1.0f;
  // A head at a time, K or V: inside one the order of the rows matters.
  const size_t kinds = layout.latent() ? 1 : 2;
  const auto head = [&](size_t begin, size_t end, uint32_t) {
    for (size_t task = begin; task < end; ++task) {
      const size_t h = task / kinds;
      if (task % kinds == 0) {
        kernels::move_keys(keys, sin_sign, s.dtype(), s.key(rows.src_layer, h, 0),
                           d.key(rows.dst_layer, h, 0));
      } else {
        std::memmove(d.value(rows.dst_layer, h, rows.to), s.value(rows.src_layer, h, rows.from),
                     rows.n * layout.v_stride() * static_cast<size_t>(dtype_size(s.dtype())));
      }
    }
  };
  const size_t grain = row_grain(rows.n * head_dim);
  pool_.parallel_for(kinds * n_kv_heads, grain, head);
  return Status::ok();
}

Status CpuBackend::attention(const KvCache& cache, uint32_t layer, const AttentionRule& rule,
                             Tensor q, const uint32_t* pos, Tensor out) {
  const auto& c = static_cast<const CpuKvCache&>(cache);
  const kernels::KvLayout& layout = c.layout(layer);
  const size_t rows = static_cast<size_t>(q.rows), cols = static_cast<size_t>(q.cols);
  if (rows == 0) return Status::ok();
  if (pos[rows - 1] >= c.capacity()) return outside("attention", pos[rows - 1], c.capacity());
  const size_t n_kv_heads = layout.n_kv_heads, head_dim = layout.head_dim;
  const size_t group = cols / (n_kv_heads * head_dim);
  const size_t block_rows = std::min(rows, kernels::attention_rows_per_block(group));
  const size_t n_blocks = (rows + block_rows - 1) / block_rows;
  const size_t per_thread = kernels::attention_scratch_floats(block_rows, group, head_dim);
  BLEND_ASSIGN(auto scratch, scratch_.take(per_thread * pool_.n_threads() * sizeof(float)));

  const kernels::AttentionBlock shape = shape_of(c, layer, rule, cols);
  const size_t part = heads_of_task(group, n_kv_heads * n_blocks, pool_.n_threads());
  const size_t n_parts = (group + part - 1) / part, per_block = n_kv_heads * n_parts;
  const size_t n_tasks = per_block * n_blocks;
  const double flops = 4.0 * static_cast<double>(rows) * static_cast<double>(cols) *
                       static_cast<double>(pos[rows - 1] + 1);
  const size_t grain = flops < kAttentionWorthSharing ? n_tasks : 1;
  pool_.parallel_for(n_tasks, grain, [&](size_t begin, size_t end, uint32_t thread) {
    for (size_t task = begin; task < end; ++task) {
      // The last rows see the most keys; they go first, so that threads finish together.
      const size_t first = (n_blocks - 1 - task / per_block) * block_rows;
      const size_t head = task % per_block / n_parts, skipped = task % n_parts * part;
      const size_t at = first * cols + (head * group + skipped) * head_dim;
      kernels::AttentionBlock block = shape;
      block.group = std::min(part, group - skipped);
      if (block.sinks != nullptr) block.sinks += head * group + skipped;
      block.n_rows = std::min(block_rows, rows - first);
      block.pos = pos + first;
      block.q = static_cast<const float*>(q.data) + at;
      block.out = static_cast<float*>(out.data) + at;
      block.k = c.key(layer, head, 0);
      block.v = c.value(layer, head, 0);
      kernels::attention(block, reinterpret_cast<float*>(scratch.data()) + per_thread * thread);
    }
  });
  return Status::ok();
}

Status CpuBackend::attention_each(uint32_t layer, const AttentionRule& rule, Tensor q,
                                  std::span<const RowOver> rows) {
  if (rows.empty()) return Status::ok();
  double slots = 0;
  for (const RowOver& r : rows) {
    if (r.pos >= r.cache->capacity()) return outside("attention_each", r.pos, r.cache->capacity());
    slots += r.pos + 1;
  }
  const auto& first = static_cast<const CpuKvCache&>(*rows[0].cache);
  const size_t cols = static_cast<size_t>(q.cols), n_kv_heads = first.layout(layer).n_kv_heads;
  const kernels::AttentionBlock shape = shape_of(first, layer, rule, cols);
  const size_t per_thread = kernels::attention_scratch_floats(1, shape.group, shape.head_dim);
  BLEND_ASSIGN(auto scratch, scratch_.take(per_thread * pool_.n_threads() * sizeof(float)));
  const size_t part = heads_of_task(shape.group, n_kv_heads * rows.size(), pool_.n_threads());
  const size_t n_parts = (shape.group + part - 1) / part;
  const size_t n_tasks = n_kv_heads * n_parts * rows.size();
  const size_t grain =
      4.0 * static_cast<double>(cols) * slots < kAttentionWorthSharing ? n_tasks : 1;
  pool_.parallel_for(n_tasks, grain, [&](size_t begin, size_t end, uint32_t thread) {
    for (size_t task = begin; task < end; ++task) {
      // One head for all rows, one after the other: forks share memory of their common rows, which
      // is then in a near cache.
      const RowOver& r = rows[task % rows.size()];
      const size_t head = task / rows.size() / n_parts,
                   skipped = task / rows.size() % n_parts * part;
      const auto& c = static_cast<const CpuKvCache&>(*r.cache);
      kernels::AttentionBlock block = shape;
      block.group = std::min(part, shape.group - skipped);
      if (block.sinks != nullptr) block.sinks += head * shape.group + skipped;
      block.n_rows = 1;
      block.pos = &r.pos;
      float* const row = static_cast<float*>(q.data) + r.row * cols;
      block.q = block.out = row + (head * shape.group + skipped) * shape.head_dim;
      block.k = c.key(layer, head, 0);
      block.v = c.value(layer, head, 0);
      kernels::attention(block, reinterpret_cast<float*>(scratch.data()) + per_thread * thread);
    }
  });
  return Status::ok();
}

}  // namespace blend::cpu

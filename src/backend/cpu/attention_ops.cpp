// RoPE, the KV cache and attention.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/kv_cache.h"
#include "backend/cpu/rope_table.h"
#include "backend/outside.h"
#include "cpu/attention.h"
#include "cpu/attention_mass.h"
#include "cpu/attention_tempered.h"
#include "cpu/convert.h"
#include "cpu/drift.h"
#include "cpu/move_keys.h"
#include "cpu/scatter_k.h"

namespace blend::cpu {
namespace {

using kernels::kKeyBlock;

float scale_of(const AttentionRule& rule, size_t head_dim) {
  if (rule.scale != 0) return rule.scale;
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

// Writes rows of one key block into the cache: K is rotated in scratch, then transposed.
class KeyBlockWriter {
 public:
  static size_t scratch_floats(size_t kv_dim) { return kKeyBlock * stride(kv_dim); }

  KeyBlockWriter(const CpuKvCache& cache, uint32_t layer, const CpuRopeTable& rope, float* scratch)
      : cache_(cache), layer_(layer), rope_(rope), kv_dim_(cache.kv_dim()), scratch_(scratch) {}

  // k, v: [kv_dim] of dtype. drift: [2 * kv_dim], added to K | V; null: nothing is.
  void add(const std::byte* k, const std::byte* v, DType dtype, uint32_t slot,
           const float* drift = nullptr) {
    float* const row = scratch_ + n_ * stride(kv_dim_);
    // First V, which uses the scratch row that K then occupies.
    put_value(v, dtype, drift == nullptr ? nullptr : drift + kv_dim_, slot, row);
    decode(k, dtype, kv_dim_, drift, row);
    kernels::rope(rope_.row(slot, cache_.layout().n_kv_heads, cache_.layout().head_dim), row);
    slots_[n_++] = slot;
    if (n_ == kKeyBlock) flush();
  }
  // False: K or V of a row so far is not finite in the cache's 16 bits.
  bool flush() {
    const kernels::KvLayout& layout = cache_.layout();
    finite_ &= kernels::scatter_k(scratch_, stride(kv_dim_), slots_, n_, layout, cache_.dtype(),
                                  cache_.k(layer_));
    n_ = 0;
    return finite_;
  }

 private:
  // Not a power of two, so that sixteen rows do not map to the same cache set.
  static size_t stride(size_t kv_dim) { return kv_dim + 16; }

  static size_t size_of(DType dtype) { return static_cast<size_t>(dtype_size(dtype)); }
  // from: [n] of dtype; added (may be null), out: [n].
  static void decode(const std::byte* from, DType dtype, size_t n, const float* added, float* out) {
    if (added == nullptr) {
      kernels::decode(from, dtype, n, out);
    } else {
      kernels::decode_add(from, dtype, n, added, out);
    }
  }
  // wide: [head_dim], overwritten.
  void put_value(const std::byte* v, DType dtype, const float* added, uint32_t slot, float* wide) {
    const kernels::KvLayout& layout = cache_.layout();
    const size_t dim = layout.head_dim;
    const bool as_it_is = added == nullptr && dtype == cache_.dtype();
    for (size_t h = 0; h < layout.n_kv_heads; ++h) {
      const std::byte* const from = v + h * dim * size_of(dtype);
      const float* const more = added == nullptr ? nullptr : added + h * dim;
      std::byte* const out = cache_.value(layer_, h, slot);
      if (as_it_is) {
        std::memcpy(out, from, dim * size_of(dtype));
      } else if (cache_.dtype() == DType::f32) {
        decode(from, dtype, dim, more, reinterpret_cast<float*>(out));
      } else {
        decode(from, dtype, dim, more, wide);
        finite_ &= kernels::encode(wide, dim, cache_.dtype(), out);
      }
    }
  }

  const CpuKvCache& cache_;
  const uint32_t layer_;
  const CpuRopeTable& rope_;
  const size_t kv_dim_;
  float* const scratch_;
  uint32_t slots_[kKeyBlock] = {};
  size_t n_ = 0;
  bool finite_ = true;
};

// Parameters that all blocks of an attention share.
kernels::AttentionBlock shape_of(const CpuKvCache& cache, const AttentionRule& rule, size_t cols) {
  const kernels::KvLayout& layout = cache.layout();
  kernels::AttentionBlock shape;
  shape.q_stride = shape.out_stride = cols;
  shape.group = cols / (layout.n_kv_heads * layout.head_dim);
  shape.head_dim = layout.head_dim;
  shape.v_stride = layout.v_stride();
  shape.scale = scale_of(rule, layout.head_dim);
  shape.window = rule.window;
  shape.softcap = rule.softcap;
  shape.dtype = cache.dtype();
  return shape;
}

constexpr double kWorthSharing = 5e5;  // FLOPs

// The error for a row that threads found not to fit the cache's type.
Status not_finite(const CpuKvCache& cache, uint32_t layer) {
  return make_error(BLEND_E_NUMERIC,
                    "K or V of layer %u is not finite in %s, which the context keeps them in: the "
                    "model's activations overflow; choose %s for cache_dtype",
                    layer, dtype_name(cache.dtype()),
                    cache.dtype() == DType::f16 ? "bf16 or f32" : "f32");
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

Result<std::unique_ptr<KvCache>> CpuBackend::fork_kv_cache(KvCache& cache, uint32_t n_rows) {
  auto other = static_cast<CpuKvCache&>(cache).fork(n_rows);
  if (other.is_ok()) return std::unique_ptr<KvCache>(std::move(*other));
  if (other.status().code() == BLEND_E_UNSUPPORTED) return std::unique_ptr<KvCache>();
  return other.status();
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
  const size_t rows = static_cast<size_t>(kv.rows), kv_dim = c.kv_dim();
  const uint32_t limit = std::min(c.capacity(), table.n_positions());
  for (size_t i = 0; i < rows; ++i) {
    if (pos[i] >= limit) return outside("write_kv", pos[i], limit);
  }
  if (rows > 0) static_cast<CpuKvCache&>(cache).wrote(*std::min_element(pos, pos + rows));
  const size_t per_thread = KeyBlockWriter::scratch_floats(kv_dim);
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
  return finite ? Status::ok() : not_finite(c, layer);
}

Status CpuBackend::read_kv(const KvCache& cache, uint32_t layer, const RopeTable& rope,
                           uint32_t first, Tensor kv) {
  const auto& c = static_cast<const CpuKvCache&>(cache);
  const auto& table = static_cast<const CpuRopeTable&>(rope);
  const kernels::KvLayout& layout = c.layout();
  const size_t rows = static_cast<size_t>(kv.rows), kv_dim = c.kv_dim(), dim = layout.head_dim;
  const uint32_t limit = std::min(c.capacity(), table.n_positions());
  if (first > limit || rows > limit - first) {
    return outside("read_kv", first + rows, limit);
  }
  // A rotation is undone by the same cosines and the negated sines.
  const size_t half = table.row(0, 1, dim).rotary_dim / 2;
  BLEND_ASSIGN(auto scratch, scratch_.take(half * pool_.n_threads() * sizeof(float)));
  float* const data = static_cast<float*>(kv.data);
  pool_.parallel_for(rows, row_grain(2 * kv_dim), [&](size_t begin, size_t end, uint32_t thread) {
    float* const sin = reinterpret_cast<float*>(scratch.data()) + half * thread;
    for (size_t i = begin; i < end; ++i) {
      const size_t slot = first + i;
      float* const out = data + i * 2 * kv_dim;
      for (size_t h = 0; h < layout.n_kv_heads; ++h) {
        const std::byte* const key = c.key(layer, h, slot);
        for (size_t e = 0; e < dim; ++e) {
          out[h * dim + e] = kernels::cached_value(key, c.dtype(), e * kKeyBlock);
        }
        kernels::decode(c.value(layer, h, slot), c.dtype(), dim, out + kv_dim + h * dim);
      }
      kernels::RopeRow back = table.row(static_cast<uint32_t>(slot), layout.n_kv_heads, dim);
      for (size_t e = 0; e < half; ++e) sin[e] = -back.sin[e];
      back.sin = sin;
      kernels::rope(back, out);
    }
  });
  return Status::ok();
}

Status CpuBackend::place(KvCache& cache, uint32_t layer, const RopeTable& rope,
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
      return outside("place", uint64_t{run.first} + run.n_rows, limit);
    }
    n_blocks += blocks(run);
    static_cast<CpuKvCache&>(cache).wrote(run.first);
  }
  const auto drift_of = [&](size_t slot) -> const float* {
    if (correction == nullptr || correction->row[slot] == Correction::kNone) return nullptr;
    return static_cast<const float*>(correction->kv.data) + correction->row[slot] * 2 * c.kv_dim();
  };
  const size_t per_thread = KeyBlockWriter::scratch_floats(c.kv_dim());
  BLEND_ASSIGN(auto scratch, scratch_.take(per_thread * pool_.n_threads() * sizeof(float)));
  std::atomic<bool> finite{true};
  pool_.parallel_for(n_blocks, 4, [&](size_t begin, size_t end, uint32_t thread) {
    KeyBlockWriter writer(c, layer, table,
                          reinterpret_cast<float*>(scratch.data()) + per_thread * thread);
    size_t run_begin = 0;
    for (const StoredRun& run : runs) {
      const size_t run_end = run_begin + blocks(run);
      const size_t row_bytes = c.kv_dim() * static_cast<size_t>(dtype_size(run.dtype));
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
  return finite ? Status::ok() : not_finite(c, layer);
}

Status CpuBackend::move(const KvCache& src, KvCache& dst, const RopeTable& rope,
                        const RowMove& rows) {
  const auto& s = static_cast<const CpuKvCache&>(src);
  const auto& d = static_cast<const CpuKvCache&>(dst);
  const auto& table = static_cast<const CpuRopeTable&>(rope);
  if (rows.from > s.capacity() || rows.n > s.capacity() - rows.from) {
    return outside("move", uint64_t{rows.from} + rows.n, s.capacity());
  }
  if (rows.to > d.capacity() || rows.n > d.capacity() - rows.to) {
    return outside("move", uint64_t{rows.to} + rows.n, d.capacity());
  }
  const auto distance = static_cast<uint32_t>(std::abs(static_cast<int64_t>(rows.turn)));
  if (distance >= table.n_positions()) return outside("move", distance, table.n_positions());
  if (rows.n > 0) static_cast<CpuKvCache&>(dst).wrote(rows.to);
  const size_t n_kv_heads = s.layout().n_kv_heads, head_dim = s.layout().head_dim;
  const kernels::KeyMove keys{table.row(distance, 1, head_dim), rows.from, rows.to, rows.n};
  const float sin_sign = rows.turn < 0 ? -1.0f : 1.0f;
  // A head at a time, K or V: inside one the order of the rows matters.
  const auto head = [&](size_t begin, size_t end, uint32_t) {
    for (size_t task = begin; task < end; ++task) {
      const size_t h = task / 2;
      if (task % 2 == 0) {
        kernels::move_keys(keys, sin_sign, s.dtype(), s.key(rows.src_layer, h, 0),
                           d.key(rows.dst_layer, h, 0));
      } else {
        std::memmove(d.value(rows.dst_layer, h, rows.to), s.value(rows.src_layer, h, rows.from),
                     rows.n * s.layout().v_stride() * static_cast<size_t>(dtype_size(s.dtype())));
      }
    }
  };
  const size_t grain = row_grain(rows.n * head_dim);
  pool_.parallel_for(2 * n_kv_heads, grain, head);
  return Status::ok();
}

Status CpuBackend::attention(const KvCache& cache, uint32_t layer, const AttentionRule& rule,
                             Tensor q, const uint32_t* pos, Tensor out) {
  const auto& c = static_cast<const CpuKvCache&>(cache);
  const kernels::KvLayout& layout = c.layout();
  const size_t rows = static_cast<size_t>(q.rows), cols = static_cast<size_t>(q.cols);
  if (rows == 0) return Status::ok();
  if (pos[rows - 1] >= c.capacity()) return outside("attention", pos[rows - 1], c.capacity());
  const size_t n_kv_heads = layout.n_kv_heads, head_dim = layout.head_dim;
  const size_t group = cols / (n_kv_heads * head_dim);
  const size_t block_rows = std::min(rows, kernels::attention_rows_per_block(group));
  const size_t n_blocks = (rows + block_rows - 1) / block_rows;
  const size_t per_thread = kernels::attention_scratch_floats(block_rows, group, head_dim);
  BLEND_ASSIGN(auto scratch, scratch_.take(per_thread * pool_.n_threads() * sizeof(float)));

  const kernels::AttentionBlock shape = shape_of(c, rule, cols);
  const size_t n_tasks = n_kv_heads * n_blocks;
  const double flops = 4.0 * static_cast<double>(rows) * static_cast<double>(cols) *
                       static_cast<double>(pos[rows - 1] + 1);
  const size_t grain = flops < kWorthSharing ? n_tasks : 1;
  pool_.parallel_for(n_tasks, grain, [&](size_t begin, size_t end, uint32_t thread) {
    for (size_t task = begin; task < end; ++task) {
      // The last rows see the most keys; they go first, so that threads finish together.
      const size_t first = (n_blocks - 1 - task / n_kv_heads) * block_rows;
      const size_t head = task % n_kv_heads;
      kernels::AttentionBlock block = shape;
      block.n_rows = std::min(block_rows, rows - first);
      block.pos = pos + first;
      block.q = static_cast<const float*>(q.data) + first * cols + head * group * head_dim;
      block.out = static_cast<float*>(out.data) + first * cols + head * group * head_dim;
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
  const size_t cols = static_cast<size_t>(q.cols), n_kv_heads = first.layout().n_kv_heads;
  const kernels::AttentionBlock shape = shape_of(first, rule, cols);
  const size_t per_thread = kernels::attention_scratch_floats(1, shape.group, shape.head_dim);
  BLEND_ASSIGN(auto scratch, scratch_.take(per_thread * pool_.n_threads() * sizeof(float)));
  const size_t n_tasks = n_kv_heads * rows.size();
  const size_t grain = 4.0 * static_cast<double>(cols) * slots < kWorthSharing ? n_tasks : 1;
  pool_.parallel_for(n_tasks, grain, [&](size_t begin, size_t end, uint32_t thread) {
    for (size_t task = begin; task < end; ++task) {
      // One head for all rows, one after the other: forks share memory of their common rows, which
      // is then in a near cache.
      const RowOver& r = rows[task % rows.size()];
      const size_t head = task / rows.size();
      const auto& c = static_cast<const CpuKvCache&>(*r.cache);
      kernels::AttentionBlock block = shape;
      block.n_rows = 1;
      block.pos = &r.pos;
      float* const row = static_cast<float*>(q.data) + r.row * cols;
      block.q = block.out = row + head * shape.group * shape.head_dim;
      block.k = c.key(layer, head, 0);
      block.v = c.value(layer, head, 0);
      kernels::attention(block, reinterpret_cast<float*>(scratch.data()) + per_thread * thread);
    }
  });
  return Status::ok();
}

Status CpuBackend::attention_tempered(const KvCache& cache, uint32_t layer,
                                      const AttentionRule& rule, Tensor q, const uint32_t* pos,
                                      const Tempering& tempering, Tensor out, float* mass) {
  const auto& c = static_cast<const CpuKvCache&>(cache);
  const kernels::KvLayout& layout = c.layout();
  const size_t rows = static_cast<size_t>(q.rows), cols = static_cast<size_t>(q.cols);
  if (rows == 0) return Status::ok();
  const uint32_t last = pos[rows - 1];
  if (last >= c.capacity()) return outside("attention_tempered", last, c.capacity());
  const size_t head_dim = layout.head_dim, n_heads = cols / head_dim;
  const size_t group = n_heads / layout.n_kv_heads;
  constexpr size_t kRows = 16;  // of a task: enough to share, few enough for a scratch of scores
  const size_t n_blocks = (rows + kRows - 1) / kRows;
  const size_t per_thread =
      kernels::round_up(kernels::attention_tempered_scratch_floats(last, head_dim), 16);
  const size_t n_masses = mass == nullptr ? 0 : kernels::round_up(n_heads * rows, 16);
  BLEND_ASSIGN(auto scratch,
               scratch_.take((n_masses + per_thread * pool_.n_threads()) * sizeof(float)));
  float* const masses = reinterpret_cast<float*>(scratch.data());  // [n_heads][rows]
  pool_.parallel_for(n_heads * n_blocks, 1, [&](size_t begin, size_t end, uint32_t thread) {
    for (size_t task = begin; task < end; ++task) {
      const size_t first = (n_blocks - 1 - task / n_heads) * kRows, head = task % n_heads;
      kernels::TemperedBlock block;
      block.q = static_cast<const float*>(q.data) + first * cols + head * head_dim;
      block.out = static_cast<float*>(out.data) + first * cols + head * head_dim;
      block.stride = cols;
      block.pos = pos + first;
      block.n_rows = std::min(kRows, rows - first);
      block.k = c.key(layer, head / group, 0);
      block.v = c.value(layer, head / group, 0);
      block.dtype = c.dtype();
      block.head_dim = head_dim;
      block.v_stride = layout.v_stride();
      block.tempered = tempering.slots;
      block.scale = scale_of(rule, head_dim);
      block.window = rule.window;
      block.softcap = rule.softcap;
      block.temperature = tempering.temperature;
      block.sum_scale = tempering.scale;
      if (mass != nullptr) block.mass = masses + head * rows + first;
      kernels::attention_tempered(block, masses + n_masses + per_thread * thread);
    }
  });
  for (size_t i = 0; mass != nullptr && i < rows; ++i) {
    mass[i] = 0;
    for (size_t head = 0; head < n_heads; ++head) mass[i] += masses[head * rows + i];
    mass[i] /= static_cast<float>(n_heads);
  }
  return Status::ok();
}

Status CpuBackend::attention_mass(const KvCache& cache, uint32_t layer, const AttentionRule& rule,
                                  Tensor q, const uint32_t* pos, float* mass) {
  const auto& c = static_cast<const CpuKvCache&>(cache);
  const kernels::KvLayout& layout = c.layout();
  const size_t rows = static_cast<size_t>(q.rows), cols = static_cast<size_t>(q.cols);
  if (rows == 0) return Status::ok();
  const uint32_t last = pos[rows - 1];
  if (last >= c.capacity()) return outside("attention_mass", last, c.capacity());
  const size_t head_dim = layout.head_dim, n_heads = cols / head_dim;
  const size_t group = n_heads / layout.n_kv_heads;
  // Every head has its own sums, added in the heads' order: the result does not depend on threads.
  const size_t head_floats = kernels::attention_mass_floats(last);
  const size_t per_thread = kernels::attention_mass_scratch_floats(last);
  BLEND_ASSIGN(
      auto scratch,
      scratch_.take((head_floats * n_heads + per_thread * pool_.n_threads()) * sizeof(float)));
  float* const heads = reinterpret_cast<float*>(scratch.data());
  pool_.parallel_for(n_heads, 1, [&](size_t begin, size_t end, uint32_t thread) {
    for (size_t head = begin; head < end; ++head) {
      kernels::AttentionMassBlock block;
      block.q = static_cast<const float*>(q.data) + head * head_dim;
      block.q_stride = cols;
      block.pos = pos;
      block.n_rows = rows;
      block.k = c.key(layer, head / group, 0);
      block.dtype = c.dtype();
      block.head_dim = head_dim;
      block.scale = scale_of(rule, head_dim);
      block.window = rule.window;
      block.softcap = rule.softcap;
      float* const own = heads + head * head_floats;
      std::fill(own, own + head_floats, 0.0f);
      kernels::attention_mass(block, own, heads + head_floats * n_heads + per_thread * thread);
    }
  });
  for (size_t head = 0; head < n_heads; ++head) {
    for (size_t j = 0; j <= last; ++j) mass[j] += heads[head * head_floats + j];
  }
  return Status::ok();
}

}  // namespace blend::cpu

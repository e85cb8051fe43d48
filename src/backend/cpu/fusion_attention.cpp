// Attention of a fuse: tempered, and the mass that slots get.
#include <algorithm>

#include "backend/cpu/fusion_ops.h"
#include "backend/cpu/kv_cache.h"
#include "backend/cpu/weights.h"
#include "backend/outside.h"
#include "cpu/attention_mass.h"
#include "cpu/attention_tempered.h"

namespace blend::cpu {

Status CpuFusionOps::attention_tempered(const KvCache& cache, uint32_t layer,
                                        const AttentionRule& rule, Tensor q, const uint32_t* pos,
                                        const Tempering& tempering, Tensor out, float* mass) {
  const auto& c = static_cast<const CpuKvCache&>(cache);
  const kernels::KvLayout& layout = c.layout(layer);
  const size_t rows = static_cast<size_t>(q.rows), cols = static_cast<size_t>(q.cols);
  if (rows == 0) return Status::ok();
  const uint32_t last = pos[rows - 1];
  if (last >= c.capacity()) return outside("attention_tempered", last, c.capacity());
  const size_t head_dim = layout.head_dim, n_heads = cols / head_dim;
  const size_t group = n_heads / layout.n_kv_heads;
  const float* const sinks = elements_of(rule.sinks);
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
      block.values_from = layout.values_from;
      block.tempered = tempering.slots;
      block.scale = rule.scale_of(head_dim);
      block.window = rule.window;
      block.softcap = rule.softcap;
      block.sink = sinks == nullptr ? nullptr : sinks + head;
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

Status CpuFusionOps::attention_mass(const KvCache& cache, uint32_t layer, const AttentionRule& rule,
                                    Tensor q, const uint32_t* pos, float* mass) {
  const auto& c = static_cast<const CpuKvCache&>(cache);
  const kernels::KvLayout& layout = c.layout(layer);
  const size_t rows = static_cast<size_t>(q.rows), cols = static_cast<size_t>(q.cols);
  if (rows == 0) return Status::ok();
  const uint32_t last = pos[rows - 1];
  if (last >= c.capacity()) return outside("attention_mass", last, c.capacity());
  const size_t head_dim = layout.head_dim, n_heads = cols / head_dim;
  const size_t group = n_heads / layout.n_kv_heads;
  const float* const sinks = elements_of(rule.sinks);
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
      block.scale = rule.scale_of(head_dim);
      block.window = rule.window;
      block.softcap = rule.softcap;
      block.sink = sinks == nullptr ? nullptr : sinks + head;
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

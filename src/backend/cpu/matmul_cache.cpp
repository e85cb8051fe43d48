#include "backend/cpu/matmul_cache.h"

#include <utility>

namespace blend::cpu {
namespace {

using dnnl::memory;

memory::desc rows_desc(int64_t rows, int64_t cols, memory::data_type type) {
  return {{rows, cols}, type, memory::dims{cols, 1}};
}

}  // namespace

memory::desc weights_desc(int64_t k, int64_t n, WeightLayout layout) {
  switch (layout) {
    case WeightLayout::rows:
      return {{k, n}, memory::data_type::f32, memory::dims{1, k}};
    case WeightLayout::panels:
      return {{k, n}, memory::data_type::f32, memory::format_tag::BA16a64b};
    default:
      return {{k, n}, memory::data_type::s8, memory::format_tag::BA16a64b4a};
  }
}

std::shared_ptr<const Matmul> MatmulCache::get(const MatmulKey& key) {
  std::lock_guard lock(mutex_);
  if (const auto it = index_.find(key); it != index_.end()) {
    lru_.splice(lru_.begin(), lru_, it->second);
    return it->second->second;
  }
  const bool int8 = key.layout == WeightLayout::int8_panels;
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (key.accumulate) {
    dnnl::post_ops ops;
    ops.append_sum(1.0f);
    attr.set_post_ops(ops);
  }
  auto made = std::make_shared<Matmul>();
  const auto x = rows_desc(key.m, key.k, int8 ? memory::data_type::u8 : memory::data_type::f32);
  const auto y = rows_desc(key.m, key.n, int8 ? memory::data_type::s32 : memory::data_type::f32);
  made->desc = dnnl::matmul::primitive_desc(
      dnnl::matmul::desc(x, weights_desc(key.k, key.n, key.layout), y), attr, engine_);
  made->matmul = dnnl::matmul(made->desc);
  made->scratch_bytes = made->desc.scratchpad_desc().get_size();
  lru_.emplace_front(key, made);
  index_.emplace(key, lru_.begin());
  if (lru_.size() > kMost) {
    index_.erase(lru_.back().first);
    lru_.pop_back();
  }
  return made;
}

void run_matmul(const Matmul& m, const dnnl::engine& engine, dnnl::stream& stream, const void* x,
                const void* w, void* y, void* scratch) {
  // The wrapper takes no const pointers; oneDNN only reads source and weights.
  m.matmul.execute(stream,
                   {{DNNL_ARG_SRC, memory(m.desc.src_desc(), engine, const_cast<void*>(x))},
                    {DNNL_ARG_WEIGHTS, memory(m.desc.weights_desc(), engine, const_cast<void*>(w))},
                    {DNNL_ARG_DST, memory(m.desc.dst_desc(), engine, y)},
                    {DNNL_ARG_SCRATCHPAD, memory(m.desc.scratchpad_desc(), engine, scratch)}});
  stream.wait();
}

}  // namespace blend::cpu

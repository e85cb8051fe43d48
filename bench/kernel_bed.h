// Shared by the benchmarks of CPU operations: a backend with a filled cache, and rates.
// The shape is that of Llama-3.2-1B (32 heads, 8 KV heads, head_dim 64).
#pragma once

#include <benchmark/benchmark.h>

#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "bench/measure.h"

namespace blend::bench {

constexpr uint32_t kHeads = 32, kKvHeads = 8, kHeadDim = 64, kModel = 2048, kFf = 8192;
constexpr uint32_t kKvDim = kKvHeads * kHeadDim;
constexpr uint32_t kSlots = 3072;

// Everything the benchmarks share: a filled cache and tensors of random numbers.
struct Bed {
  explicit Bed(uint32_t threads, DType kept_as = DType::f32)
      : pool(must(ThreadPool::create(threads))), backend(must(make_cpu_backend(*pool, kept_as))) {
    ModelConfig config;
    config.n_layers = 1;
    config.n_heads = kHeads;
    config.n_kv_heads = kKvHeads;
    config.head_dim = config.rope.rotary_dim = kHeadDim;
    rope = must(backend->make_rope(config.rope, kSlots));
    cache = must(backend->make_kv_cache(config, kSlots));
    kv = tensor(kSlots, 2 * kKvDim);
    stored.resize(size_t{kSlots} * kKvDim * 2 * 2);
    must(backend->fusion().encode_kv(kv, DType::f16, stored.data(),
                                     stored.data() + stored.size() / 2));
    run = {stored.data(), stored.data() + stored.size() / 2, DType::f16, kSlots, 0};
    must(backend->fusion().scatter(*cache, 0, *rope, {&run, 1}, nullptr, nullptr));
  }

  Tensor tensor(int64_t rows, int64_t cols) {
    buffers.push_back(must(backend->allocate(static_cast<size_t>(rows * cols) * sizeof(float))));
    float* data = static_cast<float*>(buffers.back()->data());
    std::normal_distribution<float> dist;
    for (int64_t i = 0; i < rows * cols; ++i) data[i] = dist(rng);
    return {data, rows, cols, 4};
  }

  std::mt19937 rng{1};
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Backend> backend;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers;
  std::shared_ptr<RopeTable> rope;
  std::unique_ptr<KvCache> cache;
  Tensor kv;  // [kSlots, 2 * kKvDim]
  std::vector<std::byte> stored;
  StoredRun run;
};

inline void rate(benchmark::State& state, const char* name, double per_iteration) {
  state.counters[name] =
      benchmark::Counter(per_iteration * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace blend::bench

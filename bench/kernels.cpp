// How fast are the CPU operations at the shape of Llama-3.2-1B (32 heads, 8 KV heads, head_dim 64)?
//
// Google Benchmark; the argument after the name is the number of compute threads. GFLOP/s of
// attention count the unmasked part only. Pass --benchmark_out=FILE --benchmark_out_format=json for
// JSON.
#include <benchmark/benchmark.h>

#include <numeric>
#include <random>

#include "backend/backend.h"
#include "bench/measure.h"

namespace {

using namespace blend;
using blend::bench::must;

constexpr uint32_t kHeads = 32, kKvHeads = 8, kHeadDim = 64, kModel = 2048, kFf = 8192;
constexpr uint32_t kKvDim = kKvHeads * kHeadDim;
constexpr uint32_t kSlots = 3072;

// Everything the benchmarks share: a filled cache and tensors of random numbers.
struct Bed {
  explicit Bed(uint32_t threads)
      : pool(must(ThreadPool::create(threads))), backend(must(make_cpu_backend(*pool))) {
    ModelConfig config;
    config.n_layers = 1;
    config.n_heads = kHeads;
    config.n_kv_heads = kKvHeads;
    config.head_dim = config.rope.rotary_dim = kHeadDim;
    rope = must(backend->make_rope(config.rope, kSlots));
    cache = must(backend->make_kv_cache(config, kSlots));
    kv = tensor(kSlots, 2 * kKvDim);
    stored.resize(size_t{kSlots} * kKvDim * 2 * 2);
    must(backend->encode_kv(kv, DType::f16, stored.data(), stored.data() + stored.size() / 2));
    run = {stored.data(), stored.data() + stored.size() / 2, DType::f16, kSlots, 0};
    must(backend->place(*cache, 0, *rope, {&run, 1}, nullptr, nullptr));
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

void rate(benchmark::State& state, const char* name, double per_iteration) {
  state.counters[name] =
      benchmark::Counter(per_iteration * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

// pos: where the rows stand. Threads, rows, then 1: the last rows of the prompt, 0: spread over it.
void attention(benchmark::State& state) {
  Bed bed(static_cast<uint32_t>(state.range(0)));
  const auto rows = static_cast<uint32_t>(state.range(1));
  std::vector<uint32_t> pos(rows);
  double keys = 0;
  for (uint32_t i = 0; i < rows; ++i) {
    pos[i] = state.range(2) == 1 ? kSlots - rows + i : (i + 1) * (kSlots / rows) - 1;
    keys += pos[i] + 1;
  }
  const Tensor q = bed.tensor(rows, kHeads * kHeadDim), out = bed.tensor(rows, kHeads * kHeadDim);
  for (auto _ : state) must(bed.backend->attention(*bed.cache, 0, {}, q, pos.data(), out));
  rate(state, "GFLOP/s", 4.0 * keys * kHeads * kHeadDim);
}
BENCHMARK(attention)
    ->ArgNames({"threads", "rows", "last"})
    ->Args({1, 512, 1})
    ->Args({2, 512, 1})
    ->Args({2, 512, 0})
    ->Args({2, 3072, 1})
    ->Args({2, 64, 1})
    ->Args({2, 1, 1})
    ->UseRealTime();

void place(benchmark::State& state) {
  Bed bed(static_cast<uint32_t>(state.range(0)));
  for (auto _ : state)
    must(bed.backend->place(*bed.cache, 0, *bed.rope, {&bed.run, 1}, nullptr, nullptr));
  rate(state, "GB/s", static_cast<double>(bed.stored.size()));  // of stored bytes
}
BENCHMARK(place)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

void write_kv(benchmark::State& state) {
  Bed bed(static_cast<uint32_t>(state.range(0)));
  std::vector<uint32_t> pos(kSlots);
  std::iota(pos.begin(), pos.end(), 0u);
  for (auto _ : state) must(bed.backend->write_kv(*bed.cache, 0, *bed.rope, bed.kv, pos.data()));
  rate(state, "GB/s", kSlots * 2.0 * kKvDim * 4);
}
BENCHMARK(write_kv)->ArgName("threads")->Arg(2)->UseRealTime();

void deviation(benchmark::State& state) {
  Bed bed(static_cast<uint32_t>(state.range(0)));
  std::vector<float> out(kSlots);
  for (auto _ : state) {
    must(bed.backend->deviation(bed.kv, {&bed.run, 1}, DeviationRule{}, out.data()));
  }
  rate(state, "GB/s", kSlots * static_cast<double>(kKvDim) * (4 + 2));
}
BENCHMARK(deviation)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

void top_k(benchmark::State& state) {
  Bed bed(1);
  std::vector<uint32_t> out(kSlots * 15 / 100);
  const std::span<const float> scores(static_cast<const float*>(bed.kv.data), kSlots);
  for (auto _ : state) must(bed.backend->top_k(scores, out.size(), out.data()));
}
BENCHMARK(top_k)->UseRealTime();

void rms_norm(benchmark::State& state) {
  Bed bed(static_cast<uint32_t>(state.range(0)));
  const Tensor x = bed.tensor(512, kModel), out = bed.tensor(512, kModel);
  const std::vector<float> ones(kModel, 1.0f);
  TensorView view{"norm", DType::f32, {kModel}, reinterpret_cast<const std::byte*>(ones.data())};
  const auto weight = must(bed.backend->load_vector(std::array{&view}, 0));
  for (auto _ : state) must(bed.backend->rms_norm(x, *weight, 1e-5f, out));
  rate(state, "GB/s", 512.0 * kModel * 4 * 2);
}
BENCHMARK(rms_norm)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

void swiglu(benchmark::State& state) {
  Bed bed(static_cast<uint32_t>(state.range(0)));
  const Tensor x = bed.tensor(512, 2 * kFf), out = bed.tensor(512, kFf);
  for (auto _ : state) must(bed.backend->swiglu(x, out));
  rate(state, "GB/s", 512.0 * kFf * 4 * 3);
}
BENCHMARK(swiglu)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();

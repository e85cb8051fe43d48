// How fast are the CPU operations at the shape of Llama-3.2-1B (32 heads, 8 KV heads, head_dim 64)?
//
// Google Benchmark; the argument after the name is the number of compute threads. GFLOP/s of
// attention count the unmasked part only. "peak" is the share of what a loop of multiply-adds in
// registers reaches on as many threads, measured before the first benchmark that asks (for one
// thread and for each count). Pass --benchmark_out=FILE --benchmark_out_format=json for JSON.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>

#include "backend/backend.h"
#include "bench/measure.h"
#include "bench/peak.h"
#include "support/random_blocks.h"

namespace {

using namespace blend;
using blend::bench::must;

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

// And as a share of the peak of so many threads.
void flop_rate(benchmark::State& state, ThreadPool& pool, double per_iteration) {
  static std::map<uint32_t, double> peaks;  // FLOP/s
  double& peak = peaks[pool.n_threads()];
  if (peak == 0) peak = bench::peak_flops(pool);
  rate(state, "GFLOP/s", per_iteration);
  state.counters["peak"] =
      benchmark::Counter(per_iteration / peak, benchmark::Counter::kIsIterationInvariantRate);
}

void peak(benchmark::State& state) {
  const auto pool = must(ThreadPool::create(static_cast<uint32_t>(state.range(0))));
  double flops = 0;
  for (auto _ : state) flops = bench::peak_flops(*pool);
  state.counters["GFLOP/s"] = flops * 1e-9;
}
BENCHMARK(peak)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

// pos: where the rows stand. Threads, rows, then 1: the last rows of the prompt, 0: spread over it;
// the model's window and soft cap, 0: none; the cache's type: 0 f32, 1 f16, 2 bf16.
void attention(benchmark::State& state) {
  Bed bed(static_cast<uint32_t>(state.range(0)), static_cast<DType>(state.range(5)));
  const auto rows = static_cast<uint32_t>(state.range(1));
  AttentionRule rule;
  rule.window = static_cast<uint32_t>(state.range(3));
  rule.softcap = static_cast<float>(state.range(4));
  std::vector<uint32_t> pos(rows);
  double keys = 0;
  for (uint32_t i = 0; i < rows; ++i) {
    pos[i] = state.range(2) == 1 ? kSlots - rows + i : (i + 1) * (kSlots / rows) - 1;
    keys += rule.window == 0 ? pos[i] + 1 : std::min(pos[i] + 1, rule.window);
  }
  const Tensor q = bed.tensor(rows, kHeads * kHeadDim), out = bed.tensor(rows, kHeads * kHeadDim);
  for (auto _ : state) must(bed.backend->attention(*bed.cache, 0, rule, q, pos.data(), out));
  flop_rate(state, *bed.pool, 4.0 * keys * kHeads * kHeadDim);
}
BENCHMARK(attention)
    ->ArgNames({"threads", "rows", "last", "window", "cap", "cache"})
    ->Args({1, 512, 1, 0, 0, 0})
    ->Args({2, 512, 1, 0, 0, 0})
    ->Args({2, 512, 0, 0, 0, 0})
    ->Args({2, 3072, 1, 0, 0, 0})
    ->Args({2, 64, 1, 0, 0, 0})
    ->Args({2, 1, 1, 0, 0, 0})
    ->Args({2, 512, 1, 1024, 0, 0})
    ->Args({2, 512, 1, 0, 50, 0})
    ->Args({2, 512, 1, 1024, 50, 0})
    ->Args({2, 1, 1, 1024, 0, 0})
    ->Args({2, 1, 1, 0, 50, 0})
    ->Args({2, 3072, 1, 0, 0, 1})
    ->Args({2, 3072, 1, 0, 0, 2})
    ->Args({2, 64, 1, 0, 0, 1})
    ->Args({2, 1, 1, 0, 0, 1})
    ->Args({2, 1, 1, 0, 0, 2})
    ->UseRealTime();

// Few rows times weights as a file has them. Type: a DType (0 f32, 1 f16, 2 bf16), or 10 + a
// BlockType. GB/s of the weights' bytes, which are more than a second-level cache holds.
void mapped_matmul(benchmark::State& state) {
  Bed bed(static_cast<uint32_t>(state.range(0)));
  const auto rows = state.range(1);
  const auto type = state.range(2);
  const auto blocks = type < 10 ? BlockType::none : static_cast<BlockType>(type - 10);
  constexpr DType kPlain[] = {DType::f32, DType::f16, DType::bf16};
  const DType dtype = type < 10 ? kPlain[type] : DType::f32;
  std::string bytes;
  if (blocks == BlockType::none) {
    bytes.assign(size_t{kModel} * kFf * static_cast<size_t>(dtype_size(dtype)), '\x2c');
  } else {
    test::SplitMix random(1);
    bytes = test::random_blocks(blocks, uint64_t{kModel} * kFf, 0.1, random);
  }
  const TensorView view{
      "w", dtype, {kFf, kModel}, reinterpret_cast<const std::byte*>(bytes.data()), blocks};
  const auto w = must(bed.backend->load_matrix_as(WeightForm::mapped, std::array{&view}));
  const Tensor x = bed.tensor(rows, kModel), y = bed.tensor(rows, kFf);
  for (auto _ : state) must(bed.backend->matmul(*w, x, y, false));
  state.SetLabel(blocks == BlockType::none ? dtype_name(dtype) : block_type_name(blocks));
  flop_rate(state, *bed.pool, 2.0 * static_cast<double>(rows) * kModel * kFf);
  rate(state, "GB/s", static_cast<double>(bytes.size()));
}
BENCHMARK(mapped_matmul)
    ->ArgNames({"threads", "rows", "type"})
    ->ArgsProduct({{1, 2}, {1, 2, 4, 8, 16, 32, 64}, {0, 1, 2, 11, 15, 16, 17, 18}})
    ->UseRealTime();

// The cost of handing work to the other threads: a region of as many empty pieces.
void region(benchmark::State& state) {
  const auto pool = must(ThreadPool::create(static_cast<uint32_t>(state.range(0))));
  for (auto _ : state) {
    pool->parallel_for(pool->n_threads(), 1, [](size_t, size_t, uint32_t) {});
  }
}
BENCHMARK(region)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

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

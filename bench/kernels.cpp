// How fast are the CPU operations at the shape of Llama-3.2-1B (32 heads, 8 KV heads, head_dim 64)?
//
// Google Benchmark; the argument after the name is the number of compute threads. GFLOP/s of
// attention count the unmasked part only. "peak" is the share of the rate of a loop of
// multiply-adds in registers on as many threads, measured before the first benchmark that asks (for
// one thread and for each count). Those that only move numbers are in moving_kernels.cpp, beside
// memcpy.
// --isa=NAME: with no more than that instruction set. Pass --benchmark_out=FILE
// --benchmark_out_format=json for JSON.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bench/isa_option.h"
#include "bench/kernel_bed.h"
#include "bench/peak.h"
#include "support/random_blocks.h"

namespace {

using namespace blend;
using namespace blend::bench;

// And as a share of the peak of this many threads.
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

// pos: positions of the rows. Threads, rows, then 1: the last rows of the prompt, 0: spread over
// it; the model's window and soft cap, 0: none; the cache's type: 0 f32, 1 f16, 2 bf16.
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

// Few rows times weights in a file's form. Type: a DType (0 f32, 1 f16, 2 bf16), or 10 + a
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
  const auto w = must(bed.backend->load_matrix(std::array{&view}, WeightForm::mapped));
  const Tensor x = bed.tensor(rows, kModel), y = bed.tensor(rows, kFf);
  for (auto _ : state) must(bed.backend->matmul(*w, x, y, false));
  state.SetLabel(blocks == BlockType::none ? dtype_name(dtype) : block_type_name(blocks));
  flop_rate(state, *bed.pool, 2.0 * static_cast<double>(rows) * kModel * kFf);
  rate(state, "GB/s", static_cast<double>(bytes.size()));
}
BENCHMARK(mapped_matmul)
    ->ArgNames({"threads", "rows", "type"})
    ->ArgsProduct({{1, 2},
                   {1, 2, 4, 8, 16, 24, 32, 48, 64},
                   {0, 1, 2, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}})
    ->UseRealTime();

// The cost of passing work to the other threads: a region of as many empty pieces.
void region(benchmark::State& state) {
  const auto pool = must(ThreadPool::create(static_cast<uint32_t>(state.range(0))));
  for (auto _ : state) {
    pool->parallel_for(pool->n_threads(), 1, [](size_t, size_t, uint32_t) {});
  }
}
BENCHMARK(region)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

void top_k(benchmark::State& state) {
  Bed bed(1);
  std::vector<uint32_t> out(kSlots * 15 / 100);
  const std::span<const float> scores(static_cast<const float*>(bed.kv.data), kSlots);
  for (auto _ : state) must(bed.backend->fusion().top_k(scores, out.size(), out.data()));
}
BENCHMARK(top_k)->UseRealTime();

// Takes --isa=NAME out of the arguments.
void take_isa(int& argc, char** argv) {
  const std::string option = "--isa=";
  const auto taken = [&](const char* argument) {
    if (std::string_view(argument).substr(0, option.size()) != option) return false;
    cap_isa(argument + option.size());
    return true;
  };
  argc = static_cast<int>(std::remove_if(argv + 1, argv + argc, taken) - argv);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    take_isa(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_kernels: %s\n", e.what());
    return 1;
  }
  benchmark::AddCustomContext("cpu", cpu_model());
  benchmark::AddCustomContext("simd", kernels::simd_name());
  benchmark::AddCustomContext("int8", int8_name());
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

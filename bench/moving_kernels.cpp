// How fast are the CPU operations and kernels that do little but read and write?
//
// Part of bench_kernels. GB/s are of all bytes read and written; "of_copy" is the share of memcpy's
// rate on as many threads between two halves of as much memory (bench/copy_rate.h), the rate
// of a kernel that computes nothing. One that works in place has no lines to fetch before it writes
// them and may be above 1.
#include <array>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "bench/copy_rate.h"
#include "bench/kernel_bed.h"
#include "cpu/convert.h"
#include "cpu/drift.h"
#include "cpu/move_keys.h"
#include "cpu/plane_split.h"
#include "cpu/quantize.h"
#include "cpu/scatter_k.h"
#include "store/codec/codec.h"

namespace {

using namespace blend;
using namespace blend::bench;

// moved: bytes read and written an iteration; touched: of different memory.
void move_rate(benchmark::State& state, ThreadPool& pool, double moved, double touched) {
  static std::map<std::pair<uint32_t, size_t>, double> rates;
  double& copy = rates[{pool.n_threads(), static_cast<size_t>(touched)}];
  if (copy == 0) copy = copy_rate(pool, static_cast<size_t>(touched));
  rate(state, "GB/s", moved);
  state.counters["of_copy"] =
      benchmark::Counter(moved / copy, benchmark::Counter::kIsIterationInvariantRate);
}

// ---- Operations of the backend; the argument is the number of compute threads.

// memcpy alone, in this much memory.
void copy(benchmark::State& state) {
  const auto pool = must(ThreadPool::create(static_cast<uint32_t>(state.range(0))));
  const auto bytes = static_cast<size_t>(state.range(1)) << 10;
  double best = 0;
  for (auto _ : state) best = copy_rate(*pool, bytes);
  state.counters["GB/s"] = best * 1e-9;
}
BENCHMARK(copy)
    ->ArgNames({"threads", "KiB"})
    ->ArgsProduct({{1, 2}, {16, 256, 1024, 8192, 65536}})
    ->Iterations(1)
    ->UseRealTime();

constexpr double kKvElements = 2.0 * kSlots * kKvDim;  // of a layer

void place(benchmark::State& state) {
  Bed bed(static_cast<uint32_t>(state.range(0)));
  for (auto _ : state)
    must(bed.backend->fusion().scatter(*bed.cache, 0, *bed.rope, {&bed.run, 1}, nullptr, nullptr));
  move_rate(state, *bed.pool, kKvElements * (2 + 4), kKvElements * (2 + 4));
}
BENCHMARK(place)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

void place_corrected(benchmark::State& state) {
  Bed bed(static_cast<uint32_t>(state.range(0)));
  std::vector<uint32_t> rows(kSlots);
  std::iota(rows.begin(), rows.end(), 0u);
  const Correction correction{bed.kv, rows.data()};
  for (auto _ : state)
    must(bed.backend->fusion().scatter(*bed.cache, 0, *bed.rope, {&bed.run, 1}, nullptr,
                                       &correction));
  move_rate(state, *bed.pool, kKvElements * (2 + 4 + 4), kKvElements * (2 + 4 + 4));
}
BENCHMARK(place_corrected)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

// Into a cache of f32 (0), f16 (1) or bf16 (2).
void write_kv(benchmark::State& state) {
  const auto type = static_cast<DType>(state.range(1));
  Bed bed(static_cast<uint32_t>(state.range(0)), type);
  std::vector<uint32_t> pos(kSlots);
  std::iota(pos.begin(), pos.end(), 0u);
  for (auto _ : state) must(bed.backend->write_kv(*bed.cache, 0, *bed.rope, bed.kv, pos.data()));
  const double bytes = kKvElements * (4 + static_cast<double>(dtype_size(type)));
  move_rate(state, *bed.pool, bytes, bytes);
}
BENCHMARK(write_kv)
    ->ArgNames({"threads", "cache"})
    ->ArgsProduct({{1, 2}, {0, 1, 2}})
    ->UseRealTime();

void encode_kv(benchmark::State& state) {
  Bed bed(static_cast<uint32_t>(state.range(0)));
  const auto type = static_cast<DType>(state.range(1));
  std::byte* const k = bed.stored.data();
  for (auto _ : state) {
    must(bed.backend->fusion().encode_kv(bed.kv, type, k, k + bed.stored.size() / 2));
  }
  move_rate(state, *bed.pool, kKvElements * (4 + 2), kKvElements * (4 + 2));
}
BENCHMARK(encode_kv)->ArgNames({"threads", "type"})->ArgsProduct({{1, 2}, {1, 2}})->UseRealTime();

void deviation(benchmark::State& state) {
  Bed bed(static_cast<uint32_t>(state.range(0)));
  std::vector<float> out(kSlots);
  for (auto _ : state) {
    must(bed.backend->fusion().deviation(bed.kv, {&bed.run, 1}, DeviationRule{}, out.data()));
  }
  move_rate(state, *bed.pool, kKvElements / 2 * (4 + 2), kKvElements * (4 + 2));
}
BENCHMARK(deviation)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

void drift_inputs(benchmark::State& state) {
  Bed bed(static_cast<uint32_t>(state.range(0)));
  const Tensor out = bed.tensor(kSlots, 2 * kKvDim);
  for (auto _ : state) must(bed.backend->fusion().drift_inputs(bed.kv, {&bed.run, 1}, {}, out));
  move_rate(state, *bed.pool, kKvElements * (4 + 2 + 4), kKvElements * (4 + 2 + 4));
}
BENCHMARK(drift_inputs)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

void rms_norm(benchmark::State& state) {
  Bed bed(static_cast<uint32_t>(state.range(0)));
  const Tensor x = bed.tensor(512, kModel), out = bed.tensor(512, kModel);
  const std::vector<float> ones(kModel, 1.0f);
  TensorView view{"norm", DType::f32, {kModel}, reinterpret_cast<const std::byte*>(ones.data())};
  const auto weight = must(bed.backend->load_vector(std::array{&view}, 0));
  for (auto _ : state) must(bed.backend->rms_norm(x, *weight, 1e-5f, out));
  move_rate(state, *bed.pool, 512.0 * kModel * (4 + 4), 512.0 * kModel * (4 + 4));
}
BENCHMARK(rms_norm)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

void swiglu(benchmark::State& state) {
  Bed bed(static_cast<uint32_t>(state.range(0)));
  const Tensor x = bed.tensor(512, 2 * kFf), out = bed.tensor(512, kFf);
  for (auto _ : state) must(bed.backend->glu(Activation::silu, x, out));
  move_rate(state, *bed.pool, 512.0 * kFf * (8 + 4), 512.0 * kFf * (8 + 4));
}
BENCHMARK(swiglu)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

void geglu(benchmark::State& state) {
  Bed bed(static_cast<uint32_t>(state.range(0)));
  const Tensor x = bed.tensor(512, 2 * kFf), out = bed.tensor(512, kFf);
  for (auto _ : state) must(bed.backend->glu(Activation::gelu_tanh, x, out));
  move_rate(state, *bed.pool, 512.0 * kFf * (8 + 4), 512.0 * kFf * (8 + 4));
}
BENCHMARK(geglu)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

// In place.
void rope_q(benchmark::State& state) {
  Bed bed(static_cast<uint32_t>(state.range(0)));
  const Tensor q = bed.tensor(512, kHeads * kHeadDim);
  std::vector<uint32_t> pos(512);
  std::iota(pos.begin(), pos.end(), 0u);
  for (auto _ : state) must(bed.backend->rope_q(*bed.rope, pos.data(), kHeadDim, q));
  move_rate(state, *bed.pool, 512.0 * kHeads * kHeadDim * (4 + 4), 512.0 * kHeads * kHeadDim * 4);
}
BENCHMARK(rope_q)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

// ---- Kernels alone, on the calling thread, with data that fits a second-level cache.

constexpr size_t kRows = 64;                  // of a layer's K or V
constexpr size_t kElements = kRows * kKvDim;  // 128 KiB of f32
constexpr double kMany = kElements;

struct KernelBed {
  KernelBed() : x(kElements), y(kElements), bytes(kElements * 4), more_bytes(kElements * 4) {
    std::mt19937 rng(1);
    std::normal_distribution<float> dist;
    for (float& v : x) v = dist(rng);
    (void)kernels::encode(x.data(), kElements, DType::f16, halves());
  }
  std::byte* halves() { return reinterpret_cast<std::byte*>(bytes.data()); }
  std::byte* more_halves() { return reinterpret_cast<std::byte*>(more_bytes.data()); }

  std::unique_ptr<ThreadPool> pool = must(ThreadPool::create(1));
  std::vector<float> x, y;  // [kRows, kKvDim]
  std::vector<uint8_t> bytes, more_bytes;
};

// Types: 0 f32, 1 f16, 2 bf16.
void encode(benchmark::State& state) {
  KernelBed bed;
  const auto type = static_cast<DType>(state.range(0));
  for (auto _ : state) {
    benchmark::DoNotOptimize(kernels::encode(bed.x.data(), kElements, type, bed.halves()));
  }
  const double size = static_cast<double>(dtype_size(type));
  move_rate(state, *bed.pool, kMany * (4 + size), kMany * (4 + size));
}
BENCHMARK(encode)->ArgName("type")->DenseRange(0, 2);

void decode(benchmark::State& state) {
  KernelBed bed;
  const auto type = static_cast<DType>(state.range(0));
  for (auto _ : state) {
    kernels::decode(bed.halves(), type, kElements, bed.y.data());
    benchmark::ClobberMemory();
  }
  const double size = static_cast<double>(dtype_size(type));
  move_rate(state, *bed.pool, kMany * (4 + size), kMany * (4 + size));
}
BENCHMARK(decode)->ArgName("type")->DenseRange(1, 2);

void scatter_k(benchmark::State& state) {
  KernelBed bed;
  const auto type = static_cast<DType>(state.range(0));
  const kernels::KvLayout layout{kKvHeads, kHeadDim, kRows};
  std::vector<uint32_t> slots(kRows);
  std::iota(slots.begin(), slots.end(), 0u);
  auto k = must(AlignedBuffer::allocate(layout.k_elements() * sizeof(float)));
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        kernels::scatter_k(bed.x.data(), kKvDim, slots.data(), kRows, layout, type, k.data()));
  }
  const double size = static_cast<double>(dtype_size(type));
  move_rate(state, *bed.pool, kMany * (4 + size), kMany * (4 + size));
}
BENCHMARK(scatter_k)->ArgName("type")->DenseRange(0, 2);

// All keys of a head by 5 positions to the front, rotated; in place.
void move_keys(benchmark::State& state) {
  KernelBed bed;
  const auto type = static_cast<DType>(state.range(0));
  const size_t size = static_cast<size_t>(dtype_size(type));
  auto k = must(AlignedBuffer::allocate(kElements * size));
  (void)kernels::encode(bed.x.data(), kElements, type, k.data());
  std::vector<float> cos(kHeadDim / 2, 0.8f), sin(kHeadDim / 2, 0.6f);
  kernels::KeyMove move;
  move.turn = {1, kHeadDim, kHeadDim, kernels::RopePairs::halves, cos.data(), sin.data()};
  const size_t slots = kElements / kHeadDim;
  move.from = 5, move.to = 0, move.n = slots - 5;
  for (auto _ : state) kernels::move_keys(move, 1, type, k.data(), k.data());
  move_rate(state, *bed.pool, kMany * 2 * static_cast<double>(size),
            kMany * static_cast<double>(size));
}
BENCHMARK(move_keys)->ArgName("type")->DenseRange(0, 2);

void drift_add(benchmark::State& state) {
  KernelBed bed;
  std::vector<float> drift(kElements, 0.5f);
  for (auto _ : state) {
    kernels::decode_add(bed.halves(), DType::f16, kElements, drift.data(), bed.y.data());
    benchmark::ClobberMemory();
  }
  move_rate(state, *bed.pool, kMany * (2 + 4 + 4), kMany * (2 + 4 + 4));
}
BENCHMARK(drift_add);

// Elements of two bytes (f16: 1, bf16: 2) or four (f32: 0).
void split_planes(benchmark::State& state) {
  KernelBed bed;
  const auto type = static_cast<DType>(state.range(0));
  std::vector<uint8_t> high(kElements);
  for (auto _ : state) {
    kernels::split_planes(bed.halves(), type, kElements, high.data(), bed.more_bytes.data());
    benchmark::ClobberMemory();
  }
  const double size = static_cast<double>(dtype_size(type));
  move_rate(state, *bed.pool, kMany * 2 * size, kMany * 2 * size);
}
BENCHMARK(split_planes)->ArgName("type")->DenseRange(0, 1);

void merge_planes(benchmark::State& state) {
  KernelBed bed;
  const auto type = static_cast<DType>(state.range(0));
  std::vector<uint8_t> high(kElements);
  for (auto _ : state) {
    kernels::merge_planes(high.data(), bed.bytes.data(), type, kElements, bed.more_halves());
    benchmark::ClobberMemory();
  }
  const double size = static_cast<double>(dtype_size(type));
  move_rate(state, *bed.pool, kMany * 2 * size, kMany * 2 * size);
}
BENCHMARK(merge_planes)->ArgName("type")->DenseRange(0, 1);

// Scales by column (K: 0) or by head (V: 1).
void quantize8(benchmark::State& state) {
  KernelBed bed;
  const size_t group = state.range(0) == 0 ? 1 : kHeadDim;
  const std::vector<float> steps(kKvDim, 0.03f);
  auto* const q = reinterpret_cast<int8_t*>(bed.bytes.data());
  for (auto _ : state) {
    for (size_t r = 0; r < kRows; ++r) {
      kernels::quantize8(bed.x.data() + r * kKvDim, kKvDim, steps.data(), group, q + r * kKvDim);
    }
  }
  move_rate(state, *bed.pool, kMany * (4 + 1), kMany * (4 + 1));
}
BENCHMARK(quantize8)->ArgName("by_head")->DenseRange(0, 1);

void dequantize8(benchmark::State& state) {
  KernelBed bed;
  const size_t group = state.range(0) == 0 ? 1 : kHeadDim;
  const std::vector<float> steps(kElements, 0.03f);
  const auto* const q = reinterpret_cast<const int8_t*>(bed.bytes.data());
  for (auto _ : state) {
    kernels::dequantize8(q, kRows, kKvDim, steps.data(), group == 1 ? 0 : kKvDim / group, group,
                         DType::f16, bed.more_halves());
    benchmark::ClobberMemory();
  }
  move_rate(state, *bed.pool, kMany * (1 + 2), kMany * (1 + 2));
}
BENCHMARK(dequantize8)->ArgName("by_head")->DenseRange(0, 1);

void quantize4(benchmark::State& state) {
  KernelBed bed;
  const std::vector<float> steps(kKvDim, 0.4f), bases(kKvDim, -3.0f);
  for (auto _ : state) {
    for (size_t r = 0; r < kRows; r += 2) {
      const float* const row = bed.x.data() + r * kKvDim;
      uint8_t* const out = bed.bytes.data() + r * kKvDim / 2;
      if (state.range(0) == 0) {
        kernels::quantize4_columns(row, row + kKvDim, kKvDim, bases.data(), steps.data(), out);
      } else {
        kernels::quantize4_groups(row, kKvDim, bases.data(), steps.data(), out);
        kernels::quantize4_groups(row + kKvDim, kKvDim, bases.data(), steps.data(),
                                  out + kKvDim / 2);
      }
    }
  }
  move_rate(state, *bed.pool, kMany * 4.5, kMany * 4.5);
}
BENCHMARK(quantize4)->ArgName("by_group")->DenseRange(0, 1);

void dequantize4(benchmark::State& state) {
  KernelBed bed;
  const std::vector<float> steps(kKvDim, 0.4f), bases(kKvDim, -3.0f);
  for (auto _ : state) {
    for (size_t r = 0; r < kRows; r += 2) {
      std::byte* const row = bed.more_halves() + r * kKvDim * 2;
      const uint8_t* const q = bed.bytes.data() + r * kKvDim / 2;
      if (state.range(0) == 0) {
        kernels::dequantize4_columns(q, kKvDim, bases.data(), steps.data(), DType::f16, row,
                                     row + kKvDim * 2);
      } else {
        kernels::dequantize4_groups(q, kKvDim, bases.data(), steps.data(), DType::f16, row);
        kernels::dequantize4_groups(q + kKvDim / 2, kKvDim, bases.data(), steps.data(), DType::f16,
                                    row + kKvDim * 2);
      }
    }
    benchmark::ClobberMemory();
  }
  move_rate(state, *bed.pool, kMany * 2.5, kMany * 2.5);
}
BENCHMARK(dequantize4)->ArgName("by_group")->DenseRange(0, 1);

// Least and largest, needed before quantizing.
void ranges(benchmark::State& state) {
  KernelBed bed;
  std::vector<float> lo(kKvDim), hi(kKvDim);
  for (auto _ : state) {
    for (size_t r = 0; r < kRows; ++r) {
      const float* const row = bed.x.data() + r * kKvDim;
      if (state.range(0) == 0) {
        kernels::range_columns(row, kKvDim, lo.data(), hi.data());
      } else {
        kernels::range_groups(row, kKvDim, static_cast<size_t>(state.range(0)), lo.data(),
                              hi.data());
      }
    }
    benchmark::ClobberMemory();
  }
  move_rate(state, *bed.pool, kMany * 4, kMany * 4);
}
BENCHMARK(ranges)->ArgName("group")->Arg(0)->Arg(32)->Arg(64);

// ---- Whole codecs: a layer of 512 tokens, f16, as on the loader's threads. The argument is a
// Codec.

void codec_rate(benchmark::State& state, bool decodes) {
  const auto codec = static_cast<Codec>(state.range(0));
  const ChunkShape shape{1, 512, kKvDim, DType::f16, kHeadDim};
  const auto pool = must(ThreadPool::create(1));
  std::vector<std::byte> layer(shape.layer_bytes(0)), packed(longest_layer(codec, shape, 0));
  std::vector<float> x(layer.size() / 2);
  std::mt19937 rng(1);
  std::normal_distribution<float> dist;
  for (float& v : x) v = dist(rng);
  (void)kernels::encode(x.data(), x.size(), DType::f16, layer.data());
  CodecScratch scratch;
  size_t bytes = must(encode_layer(codec, shape, 0, layer.data(), packed.data(), scratch));
  for (auto _ : state) {
    if (decodes) {
      must(decode_layer(codec, shape, 0, {packed.data(), bytes}, layer.data(), scratch));
    } else {
      bytes = must(encode_layer(codec, shape, 0, layer.data(), packed.data(), scratch));
    }
  }
  state.SetLabel(codec_name(codec));
  const auto moved = static_cast<double>(layer.size() + bytes);
  move_rate(state, *pool, moved, moved);
}
void codec_encode(benchmark::State& state) { codec_rate(state, false); }
void codec_decode(benchmark::State& state) { codec_rate(state, true); }
BENCHMARK(codec_encode)->ArgName("codec")->DenseRange(0, kCodecs - 1);
BENCHMARK(codec_decode)->ArgName("codec")->DenseRange(0, kCodecs - 1);

}  // namespace

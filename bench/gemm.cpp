// What does our GEMM reach beside oneDNN alone with its own OpenMP threads?
//
//   bench_gemm [--threads N] [--json FILE]
//
// One table, GFLOP/s, medians of one run: rows x (k, n) for the shapes of Llama-3.2-1B and SmolLM
// 135M. "ours" is the backend's GEMM on a ThreadPool; "oneDNN" one matmul primitive with weights it
// packed as it liked, on as many OpenMP threads. GB/s is ours, of weights read, which is what
// bounds few rows. "int8" is ours with 8-bit weights and activations, which come as f32 and go back
// to it, beside oneDNN's product of bytes that are bytes already. The other columns are ours with
// weights that are decoded as they are used: 8-bit ones as a machine without integer products
// multiplies them, and mapped ones of these types. All alternate, so that a busy machine is unfair
// to none.
#include "backend/cpu/gemm.h"

#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "backend/cpu/int8_gemm.h"
#include "bench/json_file.h"
#include "bench/library_gemm.h"
#include "bench/measure.h"
#include "support/random_blocks.h"

namespace {

using namespace blend;
using Clock = std::chrono::steady_clock;
using blend::bench::kBytes;
using blend::bench::kFloats;
using blend::bench::LibraryGemm;
using blend::bench::median;
using blend::bench::must;
using blend::bench::write_json;

constexpr double kSecondsPerCell = 0.4;

double seconds(const auto& fn) {
  const auto begin = Clock::now();
  fn();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Weights of one type that are decoded as they are used.
struct Decoded {
  const char* name;
  std::string bytes;
  TensorView view;
  std::unique_ptr<cpu::FloatMatrix> matrix;
};

// Random bits that are numbers.
Decoded make_mapped(BlockType blocks, DType dtype, int64_t k, int64_t n) {
  test::SplitMix random(1);
  Decoded m{blocks == BlockType::none ? dtype_name(dtype) : block_type_name(blocks), {}, {}, {}};
  if (blocks == BlockType::none) {
    m.bytes.assign(static_cast<size_t>(2 * k * n), '\x2c');  // 0.067 in f16
  } else {
    m.bytes = test::random_blocks(blocks, static_cast<uint64_t>(k * n), 0.1, random);
  }
  m.view = {"w", dtype, {n, k}, nullptr, blocks};
  return m;
}

struct Cell {
  int64_t m, k, n;
  std::vector<double> gflops;  // packed, oneDNN, int8, oneDNN's int8, then the decoded ones
};

struct Ours {
  cpu::Gemm& gemm;
  cpu::Int8Gemm& int8_gemm;
  const cpu::PackedMatrix& packed;
  const cpu::Int8Matrix* int8;  // null where the machine has no integer products
  const std::vector<Decoded>& decoded;
};

Cell measure(const Ours& o, int64_t m, int64_t k, int64_t n, AlignedBuffer& w) {
  auto x = must(AlignedBuffer::allocate(static_cast<size_t>(m * k) * 4));
  auto y = must(AlignedBuffer::allocate(static_cast<size_t>(m * n) * 4));
  std::fill_n(x.as<float>(), m * k, 0.25f);
  LibraryGemm library(kFloats, m, k, n, x.data(), w.data(), y.data());
  LibraryGemm bytes(kBytes, m, k, n, x.data(), w.data(), y.data());  // of any bits
  const auto ours = [&](const cpu::FloatMatrix& weights) {
    must(o.gemm.run(weights, x.as<float>(), m, y.as<float>(), false));
  };
  std::vector<std::function<void()>> ways = {[&] { ours(o.packed); }, [&] { library.run(); }};
  if (o.int8 != nullptr) {
    ways.push_back([&] { must(o.int8_gemm.run(*o.int8, x.as<float>(), m, y.as<float>(), false)); });
    ways.push_back([&] { bytes.run(); });
  }
  for (const Decoded& one : o.decoded) ways.push_back([&] { ours(*one.matrix); });
  std::vector<std::vector<double>> times(ways.size());
  const double once = seconds(ways[0]);
  seconds(ways[1]);
  // In turns of some calls each: the libraries' threads spin for a while after a call, and would
  // take the cores from each other.
  const int calls = std::clamp(static_cast<int>(0.05 / std::max(once, 1e-6)), 1, 200);
  const auto begin = Clock::now();
  do {
    for (size_t way = 0; way < ways.size(); ++way) {
      for (int i = 0; i <= calls; ++i) {
        const double s = seconds(ways[way]);
        if (i != 0) times[way].push_back(s);
      }
    }
  } while (std::chrono::duration<double>(Clock::now() - begin).count() <
           kSecondsPerCell * static_cast<double>(ways.size()));
  const double flops =
      2e-9 * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n);
  Cell cell{m, k, n, {}};
  for (auto& t : times) cell.gflops.push_back(flops / median(std::move(t)));
  return cell;
}

nlohmann::json run(uint32_t threads) {
  const auto pool = must(ThreadPool::create(threads));
  threads = pool->n_threads();
  omp_set_num_threads(static_cast<int>(threads));
  cpu::ScratchPool scratch;
  cpu::MatmulCache matmuls;
  cpu::Gemm gemm(*pool, scratch, matmuls);
  cpu::Int8Gemm int8_gemm(*pool, scratch, matmuls);

  const std::pair<BlockType, DType> types[] = {{BlockType::none, DType::f16},
                                               {BlockType::q8_0, DType::f32},
                                               {BlockType::q4_k, DType::f32},
                                               {BlockType::q6_k, DType::f32}};
  std::printf("%u threads, f32; GFLOP/s\n%6s %6s %6s  %8s %8s %7s %8s %9s\n", threads, "k", "n",
              "m", "ours", "oneDNN", "ratio", "GB/s", "decoded:");
  nlohmann::json cells = nlohmann::json::array();
  const int64_t shapes[][2] = {{2048, 2048}, {2048, 8192}, {8192, 2048}, {576, 1536}};
  for (const auto& [k, n] : shapes) {
    auto w = must(AlignedBuffer::allocate(static_cast<size_t>(k * n) * 4));
    for (int64_t i = 0; i < k * n; ++i) w.as<float>()[i] = static_cast<float>(i % 7) * 0.1f - 0.3f;
    const TensorView view{"w", DType::f32, {n, k}, w.data()};
    const TensorView* part = &view;
    const auto packed = must(gemm.pack({&part, 1}));
    const auto quantized = must(int8_gemm.pack({&part, 1}));
    const auto* const int8 = dynamic_cast<const cpu::Int8Matrix*>(quantized.get());
    std::vector<Decoded> decoded;
    for (const auto& [blocks, dtype] : types) {
      if (k % static_cast<int64_t>(block_elements(blocks)) != 0) continue;
      decoded.push_back(make_mapped(blocks, dtype, k, n));
    }
    for (Decoded& one : decoded) {  // where they stay
      one.view.data = reinterpret_cast<const std::byte*>(one.bytes.data());
      const TensorView* const parts[] = {&one.view};
      one.matrix = std::make_unique<cpu::MappedMatrix>(must(cpu::StackedParts::of(parts)));
    }
    auto rows = must(int8_gemm.pack({&part, 1}, cpu::Int8Gemm::Arithmetic::f32));
    decoded.push_back({"int8 as f32", {}, {}, {}});
    decoded.back().matrix.reset(static_cast<cpu::FloatMatrix*>(rows.release()));
    for (const int64_t m : {1, 8, 77, 512, 3072}) {
      const Cell c = measure({gemm, int8_gemm, *packed, int8, decoded}, m, k, n, w);
      const double ours = c.gflops[0];
      std::printf("%6lld %6lld %6lld  %8.1f %8.1f %7.2f %8.1f", static_cast<long long>(k),
                  static_cast<long long>(n), static_cast<long long>(m), ours, c.gflops[1],
                  ours / c.gflops[1], ours / (2.0 * static_cast<double>(m)) * 4.0);
      nlohmann::json cell = {
          {"m", m}, {"k", k}, {"n", n}, {"gflops", ours}, {"onednn_gflops", c.gflops[1]}};
      size_t at = 2;
      if (int8 != nullptr) {
        std::printf("  int8 %.1f (%.2f; oneDNN %.1f)", c.gflops[2], c.gflops[2] / ours,
                    c.gflops[3]);
        cell["int8_gflops"] = c.gflops[2];
        cell["onednn_int8_gflops"] = c.gflops[3];
        at = 4;
      }
      for (const Decoded& one : decoded) {
        const double rate = c.gflops[at++];
        std::printf("  %s %.1f (%.2f)", one.name, rate, rate / ours);
        cell[(one.view.data == nullptr ? "" : "mapped_") + std::string(one.name) + "_gflops"] =
            rate;
      }
      std::printf("\n");
      std::fflush(stdout);
      cells.push_back(std::move(cell));
    }
  }
  return {{"threads", threads}, {"cells", cells}};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Our GEMM beside oneDNN on its own threads."};
  uint32_t threads = 0;
  std::string json_path;
  app.add_option("--threads", threads, "0: all CPUs of the process")->capture_default_str();
  app.add_option("--json", json_path, "also write the figures there");
  CLI11_PARSE(app, argc, argv);
  try {
    write_json(json_path, run(threads));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_gemm: %s\n", e.what());
    return 1;
  }
}

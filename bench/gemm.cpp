// What does our GEMM reach, relative to the cores' limit and compared with oneDNN alone?
//
//   bench_gemm [--threads N] [--rows M,...] [--products KxN,...] [--ways NAME,...] [--layers N]
//   [--isa NAME] [--json FILE]
//
// One table, GFLOP/s, medians of one run: rows x (k, n) for the shapes of Llama-3.2-1B and SmolLM
// 135M. "f32" is the backend's GEMM with packed weights of f32, beside its share of the peak (f32
// multiply-adds in registers, measured again for each line), "f16" with weights that stay of 16
// bits, "int8" with 8-bit weights and activations, which come as f32 and go back to it. "oneDNN",
// where it is installed, is one matmul primitive with weights packed in its own way, on its own
// OpenMP threads, for f32 and for data that are bytes already. "int8_beyond" is therefore int8's
// rate without that conversion: in the columns after the first 64, whose product, with all
// work on x, is timed beside it; and "onednn_int8_f32" is oneDNN where its own reorder
// converts x from f32 to bytes first. The last columns are ours with weights that are decoded as
// they are used. All alternate, so that a busy machine is unfair to none. With --layers each call
// takes the next of several matrices, as a model does: with one, a small W stays in the cores' own
// caches, where a model's never is.
#include "backend/cpu/gemm.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cpu/int8_gemm.h"
#include "backend/cpu/memory.h"
#include "bench/isa_option.h"
#include "bench/json_file.h"
#include "bench/library_gemm.h"
#include "bench/measure.h"
#include "bench/peak.h"
#include "support/random_blocks.h"

namespace {

using namespace blend;
using Clock = std::chrono::steady_clock;
using namespace blend::bench;

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
  std::unique_ptr<cpu::DecodedMatrix> matrix;
};

// Random bits that are finite numbers.
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

// The way whose time is that of the first columns, and whose rate that of all others.
constexpr const char* kFirstColumns = "int8_beyond";

// A way to compute the product.
struct Way {
  std::string name;
  std::function<void(size_t layer)> run;
};

// GFLOP/s of each.
std::vector<double> measure(const std::vector<Way>& ways, double flops, size_t layers) {
  std::vector<std::vector<double>> times(ways.size());
  size_t layer = 0;
  const auto once_of = [&](const Way& way) {
    layer = (layer + 1) % layers;
    return seconds([&] { way.run(layer); });
  };
  double once = 0;
  for (const Way& way : ways) once = std::max(once, once_of(way));
  // Alternating, some calls each, with a rest between them: OpenMP's threads spin for a while after
  // a call, and would take the cores from ours.
  const int calls = std::clamp(static_cast<int>(0.05 / std::max(once, 1e-6)), 1, 200);
  const auto begin = Clock::now();
  do {
    for (size_t way = 0; way < ways.size(); ++way) {
      if (kHasLibrary) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      for (int i = 0; i <= calls; ++i) {
        const double s = once_of(ways[way]);
        if (i != 0) times[way].push_back(s);
      }
    }
  } while (std::chrono::duration<double>(Clock::now() - begin).count() <
           kSecondsPerCell * static_cast<double>(ways.size()));
  std::vector<double> rates;
  for (auto& t : times) rates.push_back(flops * 1e-9 / median(std::move(t)));
  return rates;
}

AlignedBuffer floats(int64_t n, float value) {
  // As activations lie: in huge pages where the system grants them.
  auto buffer = must(cpu::allocate_tensor(static_cast<size_t>(n) * sizeof(float)));
  std::fill_n(buffer.as<float>(), n, value);
  return buffer;
}

// W in all its forms.
struct Weights {
  int64_t k, n;
  AlignedBuffer w;
  std::unique_ptr<cpu::PackedMatrix> f32, f16;
  std::unique_ptr<cpu::CpuMatrix> int8;
  std::unique_ptr<cpu::CpuMatrix> int8_first;  // its first kFirst columns, if it has more
  std::vector<Decoded> decoded;
  static constexpr int64_t kFirst = 64;

  Weights(cpu::Gemm& gemm, cpu::Int8Gemm& int8_gemm, int64_t in, int64_t out)
      : k(in), n(out), w(floats(in * out, 0)) {
    for (int64_t i = 0; i < k * n; ++i) {
      w.as<float>()[i] = static_cast<float>(i % 7) * 0.1f - 0.3f;
    }
    const TensorView view{"w", DType::f32, {n, k}, w.data()};
    const TensorView* part = &view;
    f32 = must(gemm.pack({&part, 1}));
    int8 = must(int8_gemm.pack({&part, 1}));
    if (n > kFirst) {
      const TensorView first{"w", DType::f32, {kFirst, k}, w.data()};
      part = &first;
      int8_first = must(int8_gemm.pack({&part, 1}));
      part = &view;
    }
    const std::pair<BlockType, DType> types[] = {
        {BlockType::none, DType::f16},  {BlockType::q8_0, DType::f32},
        {BlockType::q4_0, DType::f32},  {BlockType::q4_k, DType::f32},
        {BlockType::q6_k, DType::f32},  {BlockType::iq4_xs, DType::f32},
        {BlockType::mxfp4, DType::f32}, {BlockType::q3_k, DType::f32},
        {BlockType::q2_k, DType::f32},  {BlockType::iq3_s, DType::f32},
        {BlockType::iq2_xs, DType::f32}};
    decoded.reserve(std::size(types) + 1);  // matrices point into it
    for (const auto& [blocks, dtype] : types) {
      if (k % static_cast<int64_t>(block_elements(blocks)) != 0) continue;
      decoded.push_back(make_mapped(blocks, dtype, k, n));
    }
    for (Decoded& one : decoded) {  // where they stay
      one.view.data = reinterpret_cast<const std::byte*>(one.bytes.data());
      const TensorView* const parts[] = {&one.view};
      one.matrix = std::make_unique<cpu::MappedMatrix>(must(cpu::StackedParts::of(parts)));
      if (one.view.dtype == DType::f16) f16 = must(gemm.pack(parts));
    }
    auto rows = must(int8_gemm.pack({&part, 1}, cpu::Int8Gemm::Arithmetic::f32));
    decoded.push_back({"int8 as f32", {}, {}, {}});
    decoded.back().matrix.reset(static_cast<cpu::DecodedMatrix*>(rows.release()));
  }
};

// The part of the table to measure.
struct Asked {
  std::vector<int64_t> rows{1, 4, 8, 16, 77, 512, 3072};
  std::vector<std::string> products{"2048x2048", "2048x8192", "8192x2048", "576x576", "576x1536"};
  std::vector<std::string> ways;  // all if none
  size_t layers = 1;
  bool wants(const std::string& way) const {
    return ways.empty() || std::find(ways.begin(), ways.end(), way) != ways.end();
  }
};

// k and n of "KxN".
std::pair<int64_t, int64_t> product_of(const std::string& text) {
  const size_t x = text.find('x');
  const auto number = [](const std::string& digits) {
    const bool is =
        !digits.empty() && digits.size() < 7 &&
        std::all_of(digits.begin(), digits.end(), [](char c) { return '0' <= c && c <= '9'; });
    return is ? std::stoll(digits) : 0;
  };
  const int64_t k = number(text.substr(0, x)),
                n = x == std::string::npos ? 0 : number(text.substr(x + 1));
  if (k == 0 || n == 0)
    throw std::runtime_error("a product is KxN, as 2048x8192, not '" + text + "'");
  return {k, n};
}

nlohmann::json run(uint32_t threads, const Asked& asked) {
  const auto pool = must(ThreadPool::create(threads));
  threads = pool->n_threads();
  set_library_threads(threads);
  cpu::ScratchPool scratch;
  cpu::Gemm gemm(*pool, scratch);
  cpu::Int8Gemm int8_gemm(*pool, scratch);
  std::printf("%s\n%u threads; GFLOP/s\n", machine_line().c_str(), threads);
  nlohmann::json cells = nlohmann::json::array();
  for (const std::string& product : asked.products) {
    const auto [k, n] = product_of(product);
    std::vector<std::unique_ptr<Weights>> weights;  // of each layer
    for (size_t i = 0; i < asked.layers; ++i) {
      weights.push_back(std::make_unique<Weights>(gemm, int8_gemm, k, n));
    }
    for (const int64_t m : asked.rows) {
      const double flops =
          2.0 * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n);
      auto x = floats(m * k, 0.25f), y = floats(m * n, 0);
      std::vector<std::unique_ptr<LibraryGemm>> library, bytes;  // bytes: of any bits
      std::vector<std::unique_ptr<LibraryInt8OfFloats>> to_bytes;
      for (const auto& w : weights) {
        const auto make = [&](const GemmTypes& types) {
          return std::make_unique<LibraryGemm>(types, m, k, n, x.data(), w->w.data(), y.data());
        };
        if (asked.wants("onednn")) library.push_back(make(kFloats));
        if (asked.wants("onednn_int8")) bytes.push_back(make(kBytes));
        if (asked.wants("onednn_int8_f32")) {
          to_bytes.push_back(
              std::make_unique<LibraryInt8OfFloats>(m, k, n, x.data(), w->w.data(), y.data()));
        }
      }
      const auto ours = [&](auto matrix_of) {
        return [&, matrix_of](size_t layer) {
          must(gemm.run(matrix_of(*weights[layer]), x.as<float>(), m, y.as<float>(), false));
        };
      };
      std::vector<Way> ways = {{"f32", ours([](const Weights& w) -> auto& { return *w.f32; })},
                               {"f16", ours([](const Weights& w) -> auto& { return *w.f16; })}};
      if (kHasLibrary) ways.push_back({"onednn", [&](size_t layer) { library[layer]->run(); }});
      if (weights[0]->int8->kind() == cpu::CpuMatrix::Kind::int8) {
        const auto int8 = [&](auto matrix_of) {
          return [&, matrix_of](size_t layer) {
            const auto& w = static_cast<const cpu::Int8Matrix&>(*matrix_of(*weights[layer]));
            must(int8_gemm.run(w, x.as<float>(), m, y.as<float>(), false));
          };
        };
        ways.push_back({"int8", int8([](const Weights& w) -> auto& { return w.int8; })});
        if (n > Weights::kFirst) {
          ways.push_back(
              {kFirstColumns, int8([](const Weights& w) -> auto& { return w.int8_first; })});
        }
        if (kHasLibrary) {
          ways.push_back({"onednn_int8", [&](size_t layer) { bytes[layer]->run(); }});
          ways.push_back({"onednn_int8_f32", [&](size_t layer) { to_bytes[layer]->run(); }});
        }
      }
      for (size_t i = 0; i < weights[0]->decoded.size(); ++i) {
        const Decoded& one = weights[0]->decoded[i];
        ways.push_back({(one.view.data == nullptr ? "" : "mapped_") + std::string(one.name),
                        ours([i](const Weights& w) -> auto& { return *w.decoded[i].matrix; })});
      }
      std::erase_if(ways, [&](const Way& way) {
        return !asked.wants(way.name == kFirstColumns ? "int8" : way.name);
      });
      const double peak = peak_flops(*pool) * 1e-9;
      auto rates = measure(ways, flops, asked.layers);
      for (size_t i = 1; i < ways.size(); ++i) {
        if (ways[i].name != kFirstColumns) continue;
        const double behind = static_cast<double>(n - Weights::kFirst) / static_cast<double>(n);
        rates[i] = behind / (1 / rates[i - 1] - 1 / rates[i]);
      }
      nlohmann::json cell = {{"m", m}, {"k", k}, {"n", n}, {"peak_gflops", peak}};
      std::printf("%6lld %6lld %6lld ", static_cast<long long>(k), static_cast<long long>(n),
                  static_cast<long long>(m));
      for (size_t i = 0; i < ways.size(); ++i) {
        cell[ways[i].name + "_gflops"] = rates[i];
        std::printf("  %s %.1f", ways[i].name.c_str(), rates[i]);
        if (ways[i].name == "f32") std::printf(" (%.0f%% of the peak)", 100 * rates[i] / peak);
      }
      std::printf("\n");
      std::fflush(stdout);
      cells.push_back(std::move(cell));
    }
  }
  return {{"bench", "gemm"},
          {"machine", machine()},
          {"threads", threads},
          {"layers", asked.layers},
          {"cells", cells}};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Our GEMM, of the machine's peak and beside oneDNN on its own threads."};
  uint32_t threads = 0;
  Asked asked;
  std::string json_path, isa;
  app.add_option("--threads", threads, "0: all CPUs of the process")->capture_default_str();
  app.add_option("--rows", asked.rows, "of x and y, comma-separated")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--products", asked.products, "KxN: W's columns and rows, comma-separated")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--ways", asked.ways, "columns of the table, comma-separated; all if none")
      ->delimiter(',');
  app.add_option("--layers", asked.layers, "so many matrices of each product, in turn")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--json", json_path, "also write the figures there");
  app.add_option("--isa", isa, kIsaHelp);
  CLI11_PARSE(app, argc, argv);
  try {
    cap_isa(isa);
    write_json(json_path, run(threads, asked));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_gemm: %s\n", e.what());
    return 1;
  }
}

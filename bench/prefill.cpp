// How fast is a full prefill, relative to the machine's limits and to llama.cpp, and how much
// memory does it take?
//
// Prompts of several lengths, random weights of a known shape, in several forms: the type in the
// file and how it is kept in memory. Each form is measured in a process of its own, so that its
// peak memory is known; llama.cpp prefills the same files in the same run. Every figure is for the
// same FLOPs, counted as they are computed here:
//
//   2 * (elements of all layers' matrices) * tokens + 2 * (output matrix) for the last row
//   + 4 * n_heads * head_dim * n_layers * (keys that a row sees, summed over rows) for attention
//
//   bench_prefill --shape 135m --lengths 512,3072 --json out.json
//   bench/prefill_picture.py out.json ... > docs/research/prefill.svg
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/select.h"
#include "bench/isa_option.h"
#include "bench/json_file.h"
#include "bench/kept_as.h"
#include "bench/library_gemm.h"
#include "bench/measure.h"
#include "bench/memory.h"
#include "bench/peak.h"
#include "bench/run_json.h"
#include "bench/shapes.h"
#include "bench/timed_backend.h"
#include "fusion/run/fuse.h"
#include "support/temp_dir.h"

namespace {

using namespace blend::bench;
using blend::AlignedBuffer;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

struct Settings {
  std::string shape = "135m";
  std::vector<size_t> lengths{512, 1024, 2048, 3072, 4096, 8192};
  std::vector<std::string> forms{"f16:packed", "f16:mapped", "q8_0:mapped", "f16:int8"};
  std::vector<std::string> peers{"f16", "f32", "q8_0"};
  std::string cache = "auto";
  std::string flash = "both";
  uint32_t threads = 0;
  int repeat = 3;
  std::string isa;
  std::string model_dir;
  std::string json_path;
  std::string python = "python3";
  std::string one;  // a form: this process measures it, on `model`
  std::string model;
};

double megabytes(uint64_t bytes) { return static_cast<double>(bytes) * 1e-6; }

// ---- One form at one length, in this process

json phases_of(const TimedBackend::Phases& p) {
  json products = json::array();
  for (const auto& [shape, product] : p.products) {
    const auto [m, k, columns] = shape;
    products.push_back({{"m", m},
                        {"k", k},
                        {"n", columns},
                        {"times", product.times},
                        {"gflops", 2e-9 * static_cast<double>(m) * static_cast<double>(k) *
                                       static_cast<double>(columns) *
                                       static_cast<double>(product.times) / product.seconds}});
  }
  return {{"gemm_ms", p.gemm.seconds * 1e3},
          {"gemm_flops", p.gemm.flops},
          {"attention_ms", p.attention.seconds * 1e3},
          {"attention_flops", p.attention.flops},
          {"other_ms", p.other_s * 1e3},
          {"products", products}};
}

std::optional<blend::DType> cache_of(const Settings& s) {
  switch (cache_dtype_of(s.cache)) {
    case BLEND_DTYPE_F16:
      return blend::DType::f16;
    case BLEND_DTYPE_BF16:
      return blend::DType::bf16;
    default:
      return {};
  }
}

json measure_one(const Settings& s, size_t tokens) {
  OwnMemoryWatch memory;
  TimedBackend* timed = nullptr;
  const auto runtime = must(blend::Runtime::create(
      s.threads, {},
      [&](blend::ThreadPool& pool) -> blend::Result<std::unique_ptr<blend::Backend>> {
        BLEND_ASSIGN(auto inner, make_backend({{}, 0, cache_of(s)}, pool, nullptr));
        auto outer = std::make_unique<TimedBackend>(std::move(inner));
        timed = outer.get();
        return std::unique_ptr<blend::Backend>(std::move(outer));
      }));
  blend::Model::Options options;
  options.weights = static_cast<blend::WeightForm>(weights_of(s.one));
  const auto model = must(blend::Model::load(runtime, s.model, options, {}));
  const blend::ModelConfig& config = model->config();
  blend::FuseOptions fuse_options;
  fuse_options.policy = blend::Policy::full;
  fuse_options.reserve_tokens = 0;
  const auto prefill = [&](size_t n) {
    const std::vector<blend::Segment> prompt = {
        {blend::SegmentKind::question, random_tokens(n, config.n_vocab, 1), {}}};
    timed->reset();
    const auto fused = must(blend::fuse(model, {}, blend::FuseRequest{prompt, fuse_options, {}}));
    return static_cast<double>(fused.info.ttft_ns) * 1e-6;
  };
  prefill(std::min<size_t>(tokens, 512));  // warms caches and primitives
  std::vector<std::pair<double, json>> runs;
  for (int i = 0; i < s.repeat; ++i) {
    const double ms = prefill(tokens);
    runs.emplace_back(ms, phases_of(timed->phases()));
  }
  json all_ms = json::array();
  for (const auto& run : runs) all_ms.push_back(run.first);
  std::sort(runs.begin(), runs.end(), [](auto& a, auto& b) { return a.first < b.first; });
  const auto& [ms, phases] = runs[runs.size() / 2];
  // K and V of all rows in the form that attention reads.
  const uint64_t kv_bytes = uint64_t{2} *
                            static_cast<uint64_t>(runtime->backend().traits().cache_bytes) *
                            config.n_layers * config.kv_dim() * tokens;
  return {{"ms", ms},
          {"all_ms", all_ms},
          {"phases", phases},
          {"weight_bytes", model->weight_bytes()},
          {"kv_bytes", kv_bytes},
          {"peak_bytes", peak_resident_bytes()},
          {"own_peak_bytes", memory.peak()}};
}

// ---- Peers

// oneDNN alone on products of one shape, each once measured. Used by one thread.
class Library {
 public:
  explicit Library(uint32_t threads) { set_library_threads(threads); }

  // Seconds for all of a prefill's.
  double seconds(const json& products) {
    double sum = 0;
    for (const json& p : products) {
      const Shape shape{p["m"], p["k"], p["n"]};
      const auto found = seconds_.find(shape);
      const double one = found != seconds_.end() ? found->second : measure(shape);
      seconds_[shape] = one;
      sum += one * p["times"].get<double>();
    }
    return sum;
  }

 private:
  using Shape = std::tuple<int64_t, int64_t, int64_t>;
  static double measure(const Shape& shape) {
    const auto [m, k, n] = shape;
    const auto floats = [](int64_t count) {
      auto buffer = must(AlignedBuffer::allocate(static_cast<size_t>(count) * sizeof(float)));
      std::fill_n(buffer.as<float>(), count, 0.25f);
      return buffer;
    };
    auto x = floats(m * k), w = floats(k * n), y = floats(m * n);
    LibraryGemm library(kFloats, m, k, n, x.data(), w.data(), y.data());
    std::vector<double> times;
    const auto begin = Clock::now();
    do {
      const auto start = Clock::now();
      library.run();
      times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    } while (times.size() < 4 || Clock::now() - begin < std::chrono::milliseconds(200));
    times.erase(times.begin());  // it warms up
    return median(std::move(times));
  }
  std::map<Shape, double> seconds_;
};

std::string model_of(const Settings& s, const std::string& dir, const std::string& dtype) {
  std::string path = dir + "/" + s.shape + "-" + dtype + ".gguf";
  if (!std::filesystem::exists(path)) {
    blend::test::write_random_model(shape_of(s.shape, dtype), path + ".part");
    std::filesystem::rename(path + ".part", path);
  }
  return path;
}

std::pair<std::string, std::string> split(const std::string& form) {
  const size_t colon = form.find(':');
  if (colon == std::string::npos) {
    throw std::runtime_error("a form is TYPE:WEIGHTS, \"f16:packed\"; not '" + form + "'");
  }
  (void)weights_of(form.substr(colon + 1));
  return {form.substr(0, colon), form.substr(colon + 1)};
}

void print_head(const Settings& s, size_t tokens, double peak) {
  std::printf("\n%s, %zu tokens, %u threads, peak %.0f GFLOP/s (f32), median of %d\n",
              s.shape.c_str(), tokens, s.threads, peak * 1e-9, s.repeat);
  std::printf("%-22s %8s %8s %6s | %15s %6s | %14s %6s | %8s %8s %6s\n", "", "tok/s", "GFLOP/s",
              "peak", "GEMM: time rate", "oneDNN", "attention rate", "other", "MB", "own MB",
              "of w+kv");
}

void print_row(const json& r) {
  std::printf("%-22s %8.1f %8.1f %5.0f%%", r["name"].get<std::string>().c_str(),
              r["tok_s"].get<double>(), r["gflops"].get<double>(),
              100 * r["of_peak"].get<double>());
  if (r.contains("phases")) {
    const json& p = r["phases"];
    const double ms = r["ms"];
    const auto share = [&](const char* key) { return 100 * p[key].get<double>() / ms; };
    std::printf(" | %7.0f%% %6.0f %5.0f%% | %7.0f%% %5.0f %5.0f%%", share("gemm_ms"),
                r["gemm_gflops"].get<double>(), 100 * r["of_onednn"].get<double>(),
                share("attention_ms"), r["attention_gflops"].get<double>(),
                100 - share("gemm_ms") - share("attention_ms"));
    std::printf(" | %8.0f %8.0f %6.2f", megabytes(r["peak_bytes"]), megabytes(r["own_peak_bytes"]),
                r["own_of_predicted"].get<double>());
  } else {
    std::printf(" | %15s %6s | %14s %6s | %8.0f", "", "", "", "", megabytes(r["peak_bytes"]));
  }
  std::printf("\n");
  std::fflush(stdout);
}

json run(Settings s) {
  const blend::test::TempDir temporary;
  const std::string dir = s.model_dir.empty() ? temporary.path() : s.model_dir;
  const auto pool = must(blend::ThreadPool::create(s.threads));
  s.threads = pool->n_threads();
  Library library(s.threads);
  json rows = json::array();
  double peak = 0;  // the best seen: others may use the machine just then
  for (const size_t tokens : s.lengths) {
    peak = std::max(peak, peak_flops(*pool));
    print_head(s, tokens, peak);
    double flops = 0, best = 0, best_peer = 0;
    const auto add = [&](json row, const std::string& name, const std::string& dtype) {
      const double seconds = row["ms"].get<double>() * 1e-3;
      row["name"] = name;
      row["dtype"] = dtype;
      row["tokens"] = tokens;
      row["tok_s"] = static_cast<double>(tokens) / seconds;
      row["gflops"] = flops / seconds * 1e-9;
      peak = std::max(peak, peak_flops(*pool));
      row["of_peak"] = flops / seconds / peak;
      print_row(row);
      rows.push_back(std::move(row));
      return static_cast<double>(tokens) / seconds;
    };
    for (const std::string& form : s.forms) {
      const auto [dtype, weights] = split(form);
      json row =
          run_self({"--one", weights, "--model", model_of(s, dir, dtype), "--lengths",
                    std::to_string(tokens), "--threads", std::to_string(s.threads), "--repeat",
                    std::to_string(s.repeat), "--cache", s.cache, "--isa", s.isa});
      const json& p = row["phases"];
      flops = p["gemm_flops"].get<double>() + p["attention_flops"].get<double>();
      row["weights"] = weights;
      row["gemm_gflops"] = p["gemm_flops"].get<double>() / p["gemm_ms"].get<double>() * 1e-6;
      row["attention_gflops"] =
          p["attention_flops"].get<double>() / p["attention_ms"].get<double>() * 1e-6;
      row["of_onednn"] = library.seconds(p["products"]) / (p["gemm_ms"].get<double>() * 1e-3);
      row["own_of_predicted"] = row["own_peak_bytes"].get<double>() /
                                (row["weight_bytes"].get<double>() + row["kv_bytes"].get<double>());
      best = std::max(best, add(std::move(row), form, dtype));
    }
    for (const std::string& dtype : s.peers) {
      json row = llama_cpp_prefill(s.python, model_of(s, dir, dtype), tokens, s.threads, s.repeat,
                                   s.flash);
      if (!row.is_object()) break;  // it has printed the reason
      row["ms"] = row["ttft_ms"];
      const std::string name = row["name"].get<std::string>() + " " + dtype;
      best_peer = std::max(best_peer, add(std::move(row), name, dtype));
    }
    if (best_peer > 0) std::printf("our best / llama.cpp's best: %.2f\n", best / best_peer);
  }
  for (json& row : rows) row["of_peak"] = row["gflops"].get<double>() * 1e9 / peak;
  return {{"bench", "prefill"},   {"machine", machine()}, {"peak_flops", peak}, {"shape", s.shape},
          {"threads", s.threads}, {"repeat", s.repeat},   {"cache", s.cache},   {"rows", rows}};
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  CLI::App app{
      "Full prefill by length and form of weights, beside the machine's peak and llama.cpp."};
  app.add_option("--shape", s.shape, "tiny, 30m, 135m, 1b, 8b or moe")->capture_default_str();
  app.add_option("--lengths", s.lengths, "tokens, comma-separated")->delimiter(',');
  app.add_option("--forms", s.forms,
                 "TYPE:WEIGHTS, comma-separated: the file's type (f32, f16, bf16, q8_0, q4_k, ...) "
                 "and how it is kept (auto, packed, mapped, int8)")
      ->delimiter(',');
  app.add_option("--peers", s.peers, "types of file that llama.cpp is given; none: \"\"")
      ->delimiter(',');
  app.add_option("--flash", s.flash, "llama.cpp's flash attention; both: the faster")
      ->check(CLI::IsMember({"on", "off", "both"}))
      ->capture_default_str();
  app.add_option("--cache", s.cache, "what K and V are kept as: auto (f32), f16 or bf16")
      ->capture_default_str();
  app.add_option("--threads", s.threads, "0: all CPUs of the process")->capture_default_str();
  app.add_option("--repeat", s.repeat)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--isa", s.isa, kIsaHelp);
  app.add_option("--model-dir", s.model_dir, "keep the models there, for further runs");
  app.add_option("--json", s.json_path, "also write the figures there");
  app.add_option("--python", s.python, "interpreter that has llama_cpp")->capture_default_str();
  app.add_option("--one", s.one, "a form of weights: measure it alone and print JSON")->group("");
  app.add_option("--model", s.model)->group("");
  CLI11_PARSE(app, argc, argv);
  std::erase(s.peers, "");
  try {
    cap_isa(s.isa);
    if (s.one.empty()) {
      std::printf("%s\n", machine_line().c_str());
      write_json(s.json_path, run(s));
    } else {
      std::printf("%s\n", measure_one(s, s.lengths.at(0)).dump().c_str());
    }
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_prefill: %s\n", e.what());
    return 1;
  }
}

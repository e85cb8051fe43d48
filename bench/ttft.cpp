// Time to first token of a fused prompt against full prefill: the question the project exists for.
//
// Writes a model of random weights of a known shape, precomputes chunks, and fuses
// chunks + question from a warm store, loading included, in one run with our own full prefill and,
// where its Python package is installed, llama.cpp's on the same file and threads.
//
//   bench_ttft --shape 135m --chunks 6 --chunk-tokens 512 --ratios 0.05,0.15,0.3 --json out.json
#include <CLI/CLI.hpp>
#include <array>
#include <blend/blend.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/json_file.h"
#include "bench/measure.h"
#include "bench/shapes.h"
#include "support/temp_dir.h"

namespace {

using blendpp::Fusion;
using blendpp::FusionInfo;
using nlohmann::json;

struct Settings {
  std::string shape = "135m";
  std::string dtype = "f16";
  size_t chunks = 6;
  size_t chunk_tokens = 512;
  size_t question_tokens = 64;
  std::vector<double> ratios{0.05, 0.15, 0.3};
  uint32_t threads = 0;
  int repeat = 5;
  std::string json_path;
  std::string python = "python3";
};

// One row of the table: medians over the repeats, in milliseconds.
json measure(const std::string& name, const blendpp::Model& model, const blendpp::Store& store,
             const blendpp::Prompt& prompt, const blendpp::FuseOptions& options, int repeat) {
  std::vector<FusionInfo> infos;
  for (int i = 0; i < repeat + 1; ++i) {
    const Fusion fusion(model, &store, prompt, options);
    if (i > 0) infos.push_back(fusion.info());  // the first warms caches and primitives
  }
  const auto ms = [&](uint64_t blend_fusion_info::*field) {
    std::vector<double> v;
    for (const FusionInfo& info : infos) v.push_back(static_cast<double>(info.*field) * 1e-6);
    return blend::bench::median(std::move(v));
  };
  const FusionInfo& last = infos.back();
  return {{"name", name},
          {"rows", last.n_rows},
          {"rows_selected", last.n_rows_selected},
          {"rows_always", last.n_rows_always},
          {"bytes_loaded", last.bytes_loaded},
          {"ttft_ms", ms(&blend_fusion_info::ttft_ns)},
          {"plan_ms", ms(&blend_fusion_info::plan_ns)},
          {"load_ms", ms(&blend_fusion_info::load_ns)},
          {"wait_ms", ms(&blend_fusion_info::wait_ns)},
          {"place_ms", ms(&blend_fusion_info::place_ns)},
          {"select_ms", ms(&blend_fusion_info::select_ns)},
          {"compute_ms", ms(&blend_fusion_info::compute_ns)}};
}

// llama.cpp on the same file, by bench/llama_cpp_prefill.py; null with a reason on stderr if
// absent.
json measure_llama_cpp(const Settings& s, const std::string& model, size_t tokens,
                       uint32_t threads) {
  const std::string command = s.python + " " BLEND_BENCH_DIR "/llama_cpp_prefill.py '" + model +
                              "' " + std::to_string(tokens) + " " + std::to_string(threads) + " " +
                              std::to_string(s.repeat);
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return nullptr;
  std::string output;
  std::array<char, 4096> buffer{};
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    output.append(buffer.data(), n);
  }
  if (pclose(pipe) != 0) return nullptr;
  return json::parse(output, nullptr, false);
}

void print_row(const json& row, double full_ms) {
  const auto number = [&](const char* key) {
    return row.contains(key) ? row[key].get<double>() : 0.0;
  };
  std::printf("%-22s %9.1f %7.2fx %8.0f %8.1f %8.1f %8.1f %8.1f %9.1f\n",
              row["name"].get<std::string>().c_str(), number("ttft_ms"),
              full_ms / number("ttft_ms"), number("rows_selected") + number("rows_always"),
              number("load_ms"), number("wait_ms"), number("place_ms"), number("select_ms"),
              number("compute_ms"));
}

int run(const Settings& s) {
  const blend::test::TempDir dir;
  const blend::test::RandomModelSpec spec = blend::bench::shape_of(s.shape, s.dtype);
  const std::string path = dir.file("model.gguf");
  blend::test::write_random_model(spec, path);

  blendpp::ContextOptions ctx_options;
  ctx_options.n_threads = s.threads;
  const blendpp::Context ctx(ctx_options);
  const blendpp::Model model(ctx, path);
  const blendpp::Store store(ctx, dir.file("store"));
  blendpp::Prompt prompt;
  for (size_t i = 0; i < s.chunks; ++i) {
    blendpp::Tokens chunk = blend::bench::random_tokens(s.chunk_tokens, spec.n_vocab, 100 + i);
    model.precompute(store, chunk);
    prompt.chunk(std::move(chunk));
  }
  prompt.question(blend::bench::random_tokens(s.question_tokens, spec.n_vocab, 99));

  std::printf(
      "shape %s (%s weights), %zu chunks x %zu tokens + %zu question tokens, median of %d\n",
      s.shape.c_str(), s.dtype.c_str(), s.chunks, s.chunk_tokens, s.question_tokens, s.repeat);
  std::printf("%-22s %9s %8s %8s %8s %8s %8s %8s %9s\n", "", "TTFT ms", "speed-up", "rows", "load",
              "wait", "place", "select", "compute");
  json rows = json::array();
  blendpp::FuseOptions options;
  options.policy = BLEND_POLICY_FULL;
  rows.push_back(measure("full prefill", model, store, prompt, options, s.repeat));
  const double full_ms = rows[0]["ttft_ms"].get<double>();
  print_row(rows.back(), full_ms);
  options.policy = BLEND_POLICY_REUSE;
  rows.push_back(measure("reuse", model, store, prompt, options, s.repeat));
  print_row(rows.back(), full_ms);
  options.policy = BLEND_POLICY_HKVD;
  for (const double ratio : s.ratios) {
    options.ratio = ratio;
    char name[64];
    std::snprintf(name, sizeof name, "hkvd %g %%", ratio * 100);
    rows.push_back(measure(name, model, store, prompt, options, s.repeat));
    print_row(rows.back(), full_ms);
  }
  const json peer = measure_llama_cpp(s, path, prompt.n_tokens(), s.threads);
  if (peer.is_object()) {
    rows.push_back(peer);
    print_row(peer, full_ms);
  }
  blend::bench::write_json(s.json_path, {{"bench", "ttft"},
                                         {"shape", s.shape},
                                         {"dtype", s.dtype},
                                         {"chunks", s.chunks},
                                         {"chunk_tokens", s.chunk_tokens},
                                         {"question_tokens", s.question_tokens},
                                         {"repeat", s.repeat},
                                         {"rows", rows}});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  CLI::App app{"Time to first token of a fused prompt beside full prefill and llama.cpp."};
  app.add_option("--shape", s.shape, "tiny, 30m, 135m, 1b or 8b")->capture_default_str();
  app.add_option("--dtype", s.dtype, "of the weights: f16, bf16 or f32")->capture_default_str();
  app.add_option("--chunks", s.chunks)->capture_default_str();
  app.add_option("--chunk-tokens", s.chunk_tokens)->capture_default_str();
  app.add_option("--question-tokens", s.question_tokens)->capture_default_str();
  app.add_option("--ratios", s.ratios, "recompute ratios, comma-separated")->delimiter(',');
  app.add_option("--threads", s.threads, "0: all CPUs of the process")->capture_default_str();
  app.add_option("--repeat", s.repeat)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--json", s.json_path, "also write the figures there");
  app.add_option("--python", s.python, "interpreter that has llama_cpp")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return run(s);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_ttft: %s\n", e.what());
    return 1;
  }
}

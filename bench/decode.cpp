// How many tokens a second are generated, beside llama.cpp on the same file?
//
// Writes models of random weights of a known shape, f32, f16 or quantized, computes a prompt, and
// generates after it, one token at a time. Where its Python package is installed, llama.cpp
// decodes as many tokens after an equally long prompt, from the same file with as many threads.
//
//   bench_decode --shape 135m --dtypes f32,f16,q8_0,q4_0 --contexts 16,1024 --json out.json
#include <CLI/CLI.hpp>
#include <blend/blend.hpp>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/isa_option.h"
#include "bench/json_file.h"
#include "bench/kept_as.h"
#include "bench/measure.h"
#include "bench/run_json.h"
#include "bench/shapes.h"
#include "support/temp_dir.h"

namespace {

using nlohmann::json;

struct Settings {
  std::string shape = "135m";
  std::vector<std::string> dtypes{"f32", "f16", "q8_0"};
  std::vector<size_t> contexts{16, 1024};
  std::string cache = "auto";
  uint32_t tokens = 32;
  uint32_t threads = 0;
  int repeat = 3;
  std::string isa;
  std::string json_path;
  std::string python = "python3";
};

// Milliseconds of each generated token: from one to the next, so sampling is included and the
// prompt is not.
std::vector<double> token_times(const blendpp::Model& model, const Settings& s, size_t context,
                                uint32_t n_vocab) {
  blendpp::Prompt prompt;
  prompt.question(blend::bench::random_tokens(context, n_vocab, 99));
  blendpp::FuseOptions options;
  options.policy = BLEND_POLICY_FULL;
  options.reserve_tokens = s.tokens + 8;
  blendpp::Fusion fusion(model, nullptr, prompt, options);
  blendpp::GenerateOptions generate;
  generate.max_tokens = s.tokens + 1;
  generate.ignore_eos = 1;
  std::vector<double> times;
  auto last = std::chrono::steady_clock::now();
  bool first = true;
  fusion.generate(generate, [&](int32_t, std::string_view) {
    const auto now = std::chrono::steady_clock::now();
    if (!first) times.push_back(std::chrono::duration<double, std::milli>(now - last).count());
    first = false;
    last = now;
    return true;
  });
  return times;
}

// One file: a row for every context, ours and llama.cpp's in alternation.
void measure(const Settings& s, const std::string& dtype, json& rows) {
  const blend::test::TempDir dir;
  const blend::test::RandomModelSpec spec = blend::bench::shape_of(s.shape, dtype);
  const std::string path = dir.file("model.gguf");
  blend::test::write_random_model(spec, path);
  blendpp::ContextOptions ctx_options;
  ctx_options.n_threads = s.threads;
  ctx_options.cache_dtype = blend::bench::cache_dtype_of(s.cache);
  const blendpp::Context ctx(ctx_options);
  blendpp::ModelOptions model_options;
  // The file's own bits are read for every token, as llama.cpp does.
  model_options.weights = dtype == "f32" ? BLEND_WEIGHTS_PACKED : BLEND_WEIGHTS_MAPPED;
  const blendpp::Model model(ctx, path, model_options);
  for (const size_t context : s.contexts) {
    std::vector<double> ours, theirs;
    json peer;  // the last
    for (int i = 0; i < s.repeat; ++i) {
      const std::vector<double> times = token_times(model, s, context, spec.n_vocab);
      ours.insert(ours.end(), times.begin(), times.end());
      peer = blend::bench::checked_peer(blend::bench::run_json(
          {s.python, BLEND_BENCH_DIR "/llama_cpp_decode.py", path, std::to_string(context),
           std::to_string(s.threads), std::to_string(s.tokens)}));
      if (!peer.is_object()) continue;
      theirs.push_back(peer["token_ms"].get<double>());
    }
    const double rate = 1e3 / blend::bench::median(ours);
    json row = {{"dtype", dtype}, {"context", context}, {"tokens_per_s", rate}};
    std::printf("%-8s %8zu %12.2f", dtype.c_str(), context, rate);
    if (!theirs.empty()) {
      const double peer_rate = 1e3 / blend::bench::median(theirs);
      row["llama_cpp_tokens_per_s"] = peer_rate;
      for (const char* key : {"flash", "system_info", "differs"}) {
        if (peer.contains(key)) row[std::string("llama_cpp_") + key] = peer[key];
      }
      std::printf(" %12.2f %8.2f", peer_rate, rate / peer_rate);
    }
    std::printf("\n");
    std::fflush(stdout);
    rows.push_back(std::move(row));
  }
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  CLI::App app{"Tokens per second of generation, beside llama.cpp."};
  app.add_option("--shape", s.shape, "tiny, 30m, 135m, 1b, 8b or moe")->capture_default_str();
  app.add_option("--dtypes", s.dtypes, "of the weights: f32, f16, bf16, q8_0, q4_0, q4_k, q6_k")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--contexts", s.contexts, "tokens before the generated ones")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--cache", s.cache,
                 "what K and V are kept as: auto (f32), f16 (llama.cpp's choice) or bf16")
      ->capture_default_str();
  app.add_option("--tokens", s.tokens, "generated in each run")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--threads", s.threads, "0: all CPUs of the process")->capture_default_str();
  app.add_option("--repeat", s.repeat)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--isa", s.isa, blend::bench::kIsaHelp);
  app.add_option("--json", s.json_path, "also write the figures there");
  app.add_option("--python", s.python, "interpreter that has llama_cpp")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    blend::bench::cap_isa(s.isa);
    std::printf("%s\n", blend::bench::machine_line().c_str());
    std::printf("shape %s, %u tokens generated, medians of %d, KV cache %s; tokens/s\n",
                s.shape.c_str(), s.tokens, s.repeat, s.cache.c_str());
    std::printf("%-8s %8s %12s %12s %8s\n", "weights", "context", "ours", "llama.cpp", "ratio");
    json rows = json::array();
    for (const std::string& dtype : s.dtypes) measure(s, dtype, rows);
    blend::bench::write_json(s.json_path, {{"bench", "decode"},
                                           {"machine", blend::bench::machine()},
                                           {"shape", s.shape},
                                           {"cache", s.cache},
                                           {"tokens", s.tokens},
                                           {"repeat", s.repeat},
                                           {"rows", rows}});
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_decode: %s\n", e.what());
    return 1;
  }
}

// Time to first token of a fused prompt against full prefill: the question the project exists for.
//
// Writes a model of random weights of a known shape, precomputes chunks, and fuses
// chunks + question from a warm store, loading included, in one run with our own full prefill and,
// where its Python package is installed, llama.cpp's on the same file and threads. Then one fuse in
// a process of its own, for the memory that it takes.
//
//   bench_ttft --shape 135m --chunks 6 --chunk-tokens 512 --ratios 0.05,0.15,0.3 --json out.json
#include <CLI/CLI.hpp>
#include <blend/blend.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/isa_option.h"
#include "bench/json_file.h"
#include "bench/kept_as.h"
#include "bench/measure.h"
#include "bench/memory.h"
#include "bench/run_json.h"
#include "bench/shapes.h"
#include "support/temp_dir.h"

namespace {

using blendpp::Fusion;
using blendpp::FusionReport;
using nlohmann::json;

struct Settings {
  std::string shape = "135m";
  std::string dtype = "f16";
  std::string weights = "auto";
  std::string cache = "auto";
  size_t chunks = 6;
  size_t chunk_tokens = 512;
  size_t question_tokens = 64;
  std::vector<double> ratios{0.05, 0.15, 0.3};
  std::vector<double> corrected;
  uint32_t drift_rank = 0;
  bool deviation_only = false;
  uint32_t threads = 0;
  int repeat = 5;
  std::string flash = "both";
  std::string isa;
  std::string json_path;
  std::string python = "python3";
  std::string memory_of;  // a directory: this process fuses once what another prepared there
};

struct Opened {
  blendpp::Context ctx;
  blendpp::Model model;
  blendpp::Store store;
};

Opened open(const Settings& s, const std::string& dir) {
  blendpp::ContextOptions ctx_options;
  ctx_options.n_threads = s.threads;
  ctx_options.cache_dtype = blend::bench::cache_dtype_of(s.cache);
  blendpp::Context ctx(ctx_options);
  blendpp::ModelOptions model_options;
  model_options.weights = blend::bench::weights_of(s.weights);
  blendpp::Model model(ctx, dir + "/model.gguf", model_options);
  blendpp::Store store(ctx, dir + "/store");
  return {std::move(ctx), std::move(model), std::move(store)};
}

blendpp::Tokens chunk_of(const Settings& s, size_t i, uint32_t n_vocab) {
  return blend::bench::random_tokens(s.chunk_tokens, n_vocab, 100 + i);
}

blendpp::Prompt prompt_of(const Settings& s, uint32_t n_vocab) {
  blendpp::Prompt prompt;
  for (size_t i = 0; i < s.chunks; ++i) prompt.chunk(chunk_of(s, i, n_vocab));
  prompt.question(blend::bench::random_tokens(s.question_tokens, n_vocab, 99));
  return prompt;
}

// One row of the table: medians over the repeats, in milliseconds.
json measure(const std::string& name, const blendpp::Model& model, const blendpp::Store& store,
             const blendpp::Prompt& prompt, const blendpp::FuseOptions& options, int repeat) {
  std::vector<FusionReport> infos;
  for (int i = 0; i < repeat + 1; ++i) {
    const Fusion fusion(model, &store, prompt, options);
    if (i > 0) infos.push_back(fusion.report());  // the first warms caches and primitives
  }
  const auto ms = [&](uint64_t blend_fusion_report::*field) {
    std::vector<double> v;
    for (const FusionReport& info : infos) v.push_back(static_cast<double>(info.*field) * 1e-6);
    return blend::bench::median(std::move(v));
  };
  const FusionReport& last = infos.back();
  return {{"name", name},
          {"rows", last.n_rows},
          {"rows_selected", last.n_rows_selected},
          {"rows_always", last.n_rows_always},
          {"rows_corrected", last.n_rows_corrected},
          {"bytes_loaded", last.bytes_loaded},
          {"ttft_ms", ms(&blend_fusion_report::ttft_ns)},
          {"plan_ms", ms(&blend_fusion_report::plan_ns)},
          {"load_ms", ms(&blend_fusion_report::load_ns)},
          {"wait_ms", ms(&blend_fusion_report::wait_ns)},
          {"place_ms", ms(&blend_fusion_report::place_ns)},
          {"correct_ms", ms(&blend_fusion_report::correct_ns)},
          {"select_ms", ms(&blend_fusion_report::select_ns)},
          {"compute_ms", ms(&blend_fusion_report::compute_ns)}};
}

// One fuse of what is in `memory_of`, and what this process took for it. Each part as it is
// predicted: the weights' own memory, K and V of all rows, and the ring that the reader fills.
json measure_memory(const Settings& s) {
  blend::bench::OwnMemoryWatch memory;
  const Opened o = open(s, s.memory_of);
  const blendpp::ModelInfo model = o.model.info();
  blendpp::FuseOptions options;
  options.policy = BLEND_POLICY_HKVD;
  options.ratio = s.ratios.at(0);
  options.reserve_tokens = 0;
  const Fusion fusion(o.model, &o.store, prompt_of(s, model.n_vocab), options);
  const FusionReport info = fusion.report();
  const uint64_t chunk_rows = s.chunks * s.chunk_tokens;
  const uint64_t stored_layer =
      chunk_rows * 2 * model.n_kv_heads * model.head_dim * sizeof(uint16_t);
  const uint64_t kv = info.n_rows * model.kv_bytes_per_token;
  const uint64_t ring = info.ring_depth * stored_layer;
  return {{"ratio", options.ratio},
          {"weight_bytes", model.weight_bytes},
          {"kv_bytes", kv},
          {"ring_bytes", ring},
          {"predicted_bytes", model.weight_bytes + kv + ring},
          {"own_peak_bytes", memory.peak()},
          {"peak_bytes", blend::bench::peak_resident_bytes()}};
}

// A profile with drift maps for the chunks of this benchmark, in `file`.
void fit_drift(const Settings& s, const blendpp::Model& model, const std::string& file) {
  const uint32_t n_vocab = model.info().n_vocab;
  std::vector<blendpp::Prompt> samples(4);
  for (size_t i = 0; i < samples.size(); ++i) {
    for (size_t c = 0; c < 2; ++c) {
      samples[i].chunk(blend::bench::random_tokens(96, n_vocab, 1000 + 2 * i + c));
    }
    samples[i].question(blend::bench::random_tokens(8, n_vocab, 2000 + i));
  }
  const blend_token_list none = {nullptr, 0};
  const double ratio = 0.05;
  blendpp::CalibrateOptions options;
  options.chunk_prefixes = &none;
  options.n_chunk_prefixes = 1;
  options.ratios = &ratio;
  options.n_ratios = 1;
  options.drift_rank = s.drift_rank;
  if (s.deviation_only) options.drift_inputs = BLEND_DRIFT_DEVIATION;
  options.score_tokens = 1;
  blendpp::calibrate(model, samples, file, options);
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

void print_memory(const json& memory) {
  const auto mb = [&](const char* key) { return memory[key].get<double>() * 1e-6; };
  std::printf("memory of one fuse at %g %%: %.0f MB of its own at most\n",
              memory["ratio"].get<double>() * 100, mb("own_peak_bytes"));
  std::printf("  predicted: weights %.0f + KV %.0f + ring %.0f = %.0f MB (%.2f)\n",
              mb("weight_bytes"), mb("kv_bytes"), mb("ring_bytes"), mb("predicted_bytes"),
              mb("own_peak_bytes") / mb("predicted_bytes"));
  std::printf("  with the pages of mapped files: %.0f MB\n", mb("peak_bytes"));
}

int run(const Settings& s) {
  const blend::test::TempDir dir;
  const blend::test::RandomModelSpec spec = blend::bench::shape_of(s.shape, s.dtype);
  const std::string path = dir.file("model.gguf");
  blend::test::write_random_model(spec, path);

  const Opened o = open(s, dir.path());
  const auto& [ctx, model, store] = o;
  for (size_t i = 0; i < s.chunks; ++i) model.precompute(store, chunk_of(s, i, spec.n_vocab));
  const blendpp::Prompt prompt = prompt_of(s, spec.n_vocab);

  std::printf("%s\n", blend::bench::machine_line().c_str());
  std::printf(
      "shape %s (%s weights, %s), %zu chunks x %zu tokens + %zu question tokens, median of %d\n",
      s.shape.c_str(), s.dtype.c_str(), s.weights.c_str(), s.chunks, s.chunk_tokens,
      s.question_tokens, s.repeat);
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
  const auto measure_at = [&](double ratio, blendpp::FuseOptions& how, const char* kind) {
    how.ratio = ratio;
    char name[64];
    std::snprintf(name, sizeof name, "%s %g %%%s",
                  how.policy == BLEND_POLICY_HKVD ? "hkvd" : "cascade", ratio * 100, kind);
    rows.push_back(measure(name, model, store, prompt, how, s.repeat));
    print_row(rows.back(), full_ms);
  };
  for (const double ratio : s.ratios) measure_at(ratio, options, "");
  blendpp::FuseOptions cascade;
  cascade.policy = BLEND_POLICY_CASCADE;
  for (const double ratio : s.ratios) measure_at(ratio, cascade, "");
  std::optional<blendpp::Profile> profile;
  if (!s.corrected.empty()) {
    const std::string file = dir.file("profile");
    fit_drift(s, model, file);
    blendpp::FuseOptions corrected;
    profile.emplace(model, file).apply(corrected);
    corrected.policy = BLEND_POLICY_HKVD;
    corrected.selection.correction = BLEND_CORRECTION_ON;  // whatever the maps are worth
    for (const double ratio : s.corrected) measure_at(ratio, corrected, " corrected");
    corrected.policy = BLEND_POLICY_CASCADE;
    for (const double ratio : s.corrected) measure_at(ratio, corrected, " corrected");
  }
  const json peer = blend::bench::llama_cpp_prefill(s.python, path, prompt.n_tokens(), s.threads,
                                                    s.repeat, s.flash);
  if (peer.is_object()) {
    rows.push_back(peer);
    print_row(peer, full_ms);
  }
  // The middle of the ratios; nothing of this process's own tables stands in its way.
  const double ratio = s.ratios.empty() ? 0.15 : s.ratios[s.ratios.size() / 2];
  const json memory = blend::bench::run_self(
      {"--memory-of", dir.path(), "--weights", s.weights, "--cache", s.cache, "--chunks",
       std::to_string(s.chunks), "--chunk-tokens", std::to_string(s.chunk_tokens),
       "--question-tokens", std::to_string(s.question_tokens), "--ratios", std::to_string(ratio),
       "--threads", std::to_string(s.threads), "--isa", s.isa});
  print_memory(memory);
  blend::bench::write_json(s.json_path, {{"bench", "ttft"},
                                         {"machine", blend::bench::machine()},
                                         {"shape", s.shape},
                                         {"dtype", s.dtype},
                                         {"weights", s.weights},
                                         {"cache", s.cache},
                                         {"corrected", s.corrected},
                                         {"drift_rank", s.drift_rank},
                                         {"deviation_only", s.deviation_only},
                                         {"chunks", s.chunks},
                                         {"chunk_tokens", s.chunk_tokens},
                                         {"question_tokens", s.question_tokens},
                                         {"repeat", s.repeat},
                                         {"rows", rows},
                                         {"memory", memory}});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  CLI::App app{"Time to first token of a fused prompt beside full prefill and llama.cpp."};
  app.add_option("--shape", s.shape, "tiny, 30m, 135m, 1b or 8b")->capture_default_str();
  app.add_option("--dtype", s.dtype, "of the file's weights: f16, bf16, f32 or q8_0, q4_k, ...")
      ->capture_default_str();
  app.add_option("--weights", s.weights, "how they are kept: auto, packed, mapped or int8")
      ->capture_default_str();
  app.add_option("--cache", s.cache, "what K and V are kept as: auto (f32), f16 or bf16")
      ->capture_default_str();
  app.add_option(
         "--corrected", s.corrected,
         "ratios that are also fused with the drift correction. Its maps are fitted on a few "
         "random tokens, so that they cost what a calibrated profile's cost, and mean nothing")
      ->delimiter(',');
  app.add_option("--drift-rank", s.drift_rank, "of the maps; 0: whole matrices")
      ->capture_default_str();
  app.add_flag("--deviation-only", s.deviation_only,
               "the maps' input: the deviation, without the fresh K and V and the constant");
  app.add_option("--chunks", s.chunks)->capture_default_str();
  app.add_option("--chunk-tokens", s.chunk_tokens)->capture_default_str();
  app.add_option("--question-tokens", s.question_tokens)->capture_default_str();
  app.add_option("--ratios", s.ratios, "recompute ratios, comma-separated")->delimiter(',');
  app.add_option("--threads", s.threads, "0: all CPUs of the process")->capture_default_str();
  app.add_option("--repeat", s.repeat)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--flash", s.flash, "llama.cpp's flash attention; both: the faster")
      ->check(CLI::IsMember({"on", "off", "both"}))
      ->capture_default_str();
  app.add_option("--isa", s.isa, blend::bench::kIsaHelp);
  app.add_option("--json", s.json_path, "also write the figures there");
  app.add_option("--python", s.python, "interpreter that has llama_cpp")->capture_default_str();
  app.add_option("--memory-of", s.memory_of, "fuse once what is there and print JSON")->group("");
  CLI11_PARSE(app, argc, argv);
  try {
    blend::bench::cap_isa(s.isa);
    if (s.memory_of.empty()) return run(s);
    std::printf("%s\n", measure_memory(s).dump().c_str());
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_ttft: %s\n", e.what());
    return 1;
  }
}

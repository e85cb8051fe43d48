// What does libblend do for a model file of yours, on this machine? Everything that a host feels:
// the first token by full prefill, by default, by plain reuse and the first time, precomputing,
// very many chunks, decoding, and opening; beside llama.cpp where `llama-bench` is there.
//
//   bench_real model.gguf --prompts 20x50,8x256 --contexts 100,1000 --json real.json
//   bench/real/picture.py real.json > real.svg
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>

#include "bench/isa_option.h"
#include "bench/json_file.h"
#include "bench/kept_as.h"
#include "bench/measure.h"
#include "bench/memory.h"
#include "bench/real/bed.h"
#include "bench/real/decoding.h"
#include "bench/real/llama_bench.h"
#include "bench/real/prompts.h"
#include "bench/run_json.h"
#include "support/temp_dir.h"

namespace {

using blend::bench::PromptShape;
using blend::bench::RealBed;
using nlohmann::json;

struct Settings {
  std::string model;
  std::vector<std::string> text{BLEND_BENCH_DIR "/questions/town.jsonl",
                                BLEND_BENCH_DIR "/questions/forms.jsonl"};
  std::string weights = "auto";
  std::vector<std::string> prompts{"20x50", "4x256", "8x256"};
  std::string short_chunks = "20x50";
  std::vector<std::string> many{"100x64", "400x16"};
  std::vector<size_t> contexts{100, 1000};
  uint32_t tokens = 32;
  uint32_t threads = 0;
  int repeat = 5;
  double min_seconds = 1;
  std::string llama_bench = "llama-bench";
  std::string isa;
  std::string json_path;
  std::string opening_of;  // a directory: this process opens the store there, and fuses once
};

constexpr size_t kOtherRows = 512;  // more than head, question and reserve take

PromptShape shape_of(const std::string& text) {
  PromptShape shape;
  int end = 0;
  if (std::sscanf(text.c_str(), "%zux%zu%n", &shape.n_chunks, &shape.chunk_tokens, &end) != 2 ||
      text.c_str()[end] != '\0' || shape.n_chunks == 0 || shape.chunk_tokens == 0) {
    throw std::runtime_error("'" + text + "' is no CHUNKSxTOKENS, as 8x256");
  }
  return shape;
}

blendpp::Context context_of(const Settings& s) {
  blendpp::ContextOptions options;
  options.n_threads = s.threads;
  return blendpp::Context(options);
}

blendpp::Model model_of(const Settings& s, const blendpp::Context& ctx) {
  blendpp::ModelOptions options;
  options.weights = blend::bench::weights_of(s.weights);
  return blendpp::Model(ctx, s.model, options);
}

RealBed bed_of(const Settings& s) {
  blendpp::Context ctx = context_of(s);
  blendpp::Model model = model_of(s, ctx);
  blend::bench::Text text(model, s.text);
  return {std::move(ctx), std::move(model), std::move(text), s.threads, s.repeat, s.min_seconds};
}

// In a process of its own: each part of the way to the first token, in milliseconds.
json measure_opening(const Settings& s) {
  auto last = std::chrono::steady_clock::now();
  const auto lap = [&] {
    const double ms = blend::bench::seconds_since(last) * 1e3;
    last = std::chrono::steady_clock::now();
    return ms;
  };
  blendpp::Context ctx = context_of(s);
  const double context_ms = lap();
  blendpp::Model model = model_of(s, ctx);
  const double model_ms = lap();
  const blendpp::Store store(ctx, s.opening_of);
  const double store_ms = lap();
  blend::bench::Text text(model, s.text);
  const RealBed bed{std::move(ctx), std::move(model), std::move(text)};
  const blendpp::Prompt prompt = bed.prompt(shape_of(s.prompts.at(0)));
  lap();
  const blendpp::Fusion fusion(bed.model, &store, prompt);
  const double fuse_ms = lap();
  return {{"context_ms", context_ms},
          {"model_ms", model_ms},
          {"store_ms", store_ms},
          {"fuse_ms", fuse_ms},
          {"own_bytes", blend::bench::own_bytes()}};
}

json measure_openings(const Settings& s, const RealBed& bed) {
  const blend::test::TempDir dir;
  bed.precompute(blendpp::Store(bed.ctx, dir.path()), shape_of(s.prompts.at(0)));
  std::vector<json> all;
  for (int i = 0; i < s.repeat; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::string> arguments = {
        s.model,         "--opening-of", dir.path(),
        "--weights",     s.weights,      "--prompts",
        s.prompts.at(0), "--threads",    std::to_string(s.threads),
        "--isa",         s.isa};
    arguments.insert(arguments.end(), {"--text"});
    arguments.insert(arguments.end(), s.text.begin(), s.text.end());
    json one = blend::bench::run_self(arguments);
    one["process_ms"] = blend::bench::seconds_since(begin) * 1e3;
    all.push_back(std::move(one));
  }
  json out = json::object();
  for (const auto& [key, value] : all.at(0).items()) {
    std::vector<double> values;
    for (const json& one : all) values.push_back(one.at(key).get<double>());
    out[key] = blend::bench::median(std::move(values));
  }
  return out;
}

// A figure, or a dash where there is none.
std::string cell(const json& row, const char* key, int decimals = 0) {
  if (!row.contains(key)) return "-";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, row[key].get<double>());
  return text.data();
}

void print_prompts(const json& rows) {
  std::printf("\nTime to first token, ms\n%-12s %6s %10s %8s %8s %9s %8s %8s %8s\n", "chunks",
              "rows", "llama.cpp", "full", "cold", "default", "ratio", "reuse", "bound");
  for (const json& row : rows) {
    std::printf("%-12s %6s %10s %8s %8s %9s %8s %8s %8s\n",
                row["prompt"].get<std::string>().c_str(), cell(row, "rows").c_str(),
                cell(row, "llama_cpp_ms").c_str(), cell(row, "full_ms").c_str(),
                cell(row, "cold_ms").c_str(), cell(row, "default_ms").c_str(),
                cell(row, "default_ratio", 3).c_str(), cell(row, "reuse_ms", 1).c_str(),
                cell(row, "reuse_bound_ms", 1).c_str());
  }
}

int run(const Settings& s) {
  const RealBed bed = bed_of(s);
  const blendpp::ModelInfo info = bed.model.info();
  std::printf("%s\n%s, weights %s, medians of %d or more\n", blend::bench::machine_line().c_str(),
              info.name, s.weights.c_str(), s.repeat);
  json prompts = json::array(), many = json::array(), decoding = json::array();
  for (const std::string& text : s.prompts) {
    prompts.push_back(blend::bench::measure_prompt(bed, shape_of(text), s.llama_bench, s.model));
  }
  print_prompts(prompts);

  const json precompute = blend::bench::measure_precompute(bed, shape_of(s.short_chunks));
  std::printf("\nPrecomputing chunks of %s: %s tokens a second; one long prompt: %s\n",
              precompute["prompt"].get<std::string>().c_str(),
              cell(precompute, "chunk_tokens_per_s").c_str(),
              cell(precompute, "full_tokens_per_s").c_str());

  std::printf("\nReuse of very many chunks, microseconds a chunk\n%-12s %9s %8s %8s %8s\n",
              "chunks", "TTFT ms", "plan", "load", "place");
  for (const std::string& text : s.many) {
    if (shape_of(text).n_rows() + kOtherRows > info.context_length) {
      std::printf("%-12s does not fit into the model's context\n", text.c_str());
      continue;
    }
    many.push_back(blend::bench::measure_many(bed, shape_of(text)));
    const json& row = many.back();
    std::printf("%-12s %9s %8s %8s %8s\n", row["prompt"].get<std::string>().c_str(),
                cell(row, "ttft_ms").c_str(), cell(row, "plan_us_per_chunk", 1).c_str(),
                cell(row, "load_us_per_chunk", 1).c_str(),
                cell(row, "place_us_per_chunk", 1).c_str());
  }

  std::printf("\nDecoding, tokens a second\n%-12s %8s %10s\n", "context", "ours", "llama.cpp");
  for (const size_t context : s.contexts) {
    decoding.push_back(
        blend::bench::measure_decoding(bed, context, s.tokens, s.llama_bench, s.model));
    std::printf("%-12zu %8s %10s\n", context, cell(decoding.back(), "tokens_per_s", 1).c_str(),
                cell(decoding.back(), "llama_cpp_tokens_per_s", 1).c_str());
  }

  const json opening = measure_openings(s, bed);
  std::printf(
      "\nA process from its start to the first token of %s: %s ms (context %s, model %s, "
      "store %s, fuse %s)\n",
      s.prompts.at(0).c_str(), cell(opening, "process_ms").c_str(),
      cell(opening, "context_ms").c_str(), cell(opening, "model_ms").c_str(),
      cell(opening, "store_ms").c_str(), cell(opening, "fuse_ms").c_str());
  blend::bench::write_json(s.json_path, {{"bench", "real"},
                                         {"machine", blend::bench::machine()},
                                         {"model", info.name},
                                         {"weights", s.weights},
                                         {"threads", s.threads},
                                         {"repeat", s.repeat},
                                         {"prompts", prompts},
                                         {"precompute", precompute},
                                         {"many", many},
                                         {"decoding", decoding},
                                         {"opening", opening}});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  CLI::App app{"Everything that a host feels of a model file, beside llama.cpp."};
  app.add_option("model", s.model, "GGUF file or Hugging Face directory")->required();
  app.add_option("--text", s.text,
                 "questions whose passages are the text, as `blend eval` reads them");
  app.add_option("--weights", s.weights, "how they are kept: auto, packed, mapped or int8")
      ->capture_default_str();
  app.add_option("--prompts", s.prompts, "CHUNKSxTOKENS, comma-separated")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--short", s.short_chunks, "the chunks whose precomputing is timed")
      ->capture_default_str();
  app.add_option("--many", s.many, "prompts of very many chunks")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--contexts", s.contexts, "tokens before the decoded ones")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--tokens", s.tokens, "decoded in each run")->capture_default_str();
  app.add_option("--threads", s.threads, "0: all CPUs of the process")->capture_default_str();
  app.add_option("--repeat", s.repeat)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--min-seconds", s.min_seconds, "what is short is repeated for this long")
      ->capture_default_str();
  app.add_option("--llama-bench", s.llama_bench,
                 "llama.cpp's program, or bench/llama_bench.py; \"\": without it")
      ->capture_default_str();
  app.add_option("--isa", s.isa, blend::bench::kIsaHelp);
  app.add_option("--json", s.json_path, "also write the figures there");
  app.add_option("--opening-of", s.opening_of, "open what is there, and print JSON")->group("");
  CLI11_PARSE(app, argc, argv);
  try {
    blend::bench::cap_isa(s.isa);
    if (s.opening_of.empty()) {
      s.llama_bench = blend::bench::llama_bench_or_none(s.llama_bench);
      return run(s);
    }
    std::printf("%s\n", measure_opening(s).dump().c_str());
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_real: %s\n", e.what());
    return 1;
  }
}

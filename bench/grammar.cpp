// What does it cost that a text keeps to a grammar?
//
//   bench_grammar MODEL [--tokens N] [--rounds N] [--threads N] [--json FILE]
//
// Tokens of one prompt, decoded one by one: without a grammar, by grammars that allow nearly every
// token (any text) or few (digits), and by JSON schemas: the time of a token, the best of several
// rounds that alternate.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/json_file.h"
#include "blend/blend.hpp"

namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

struct Case {
  const char* name;
  uint32_t kind;
  std::string text;
};

const std::vector<Case> kCases = {
    {"any text", BLEND_GRAMMAR_REGEX, "(.|\\n)*"},
    {"digits", BLEND_GRAMMAR_REGEX, "[0-9]*"},
    {"a long string", BLEND_GRAMMAR_JSON_SCHEMA, R"({"type":"string","minLength":100000})"},
    {"an array of objects", BLEND_GRAMMAR_JSON_SCHEMA,
     R"({"type":"array","minItems":100000,"items":{"type":"object","properties":{"name":{"type":"string","maxLength":12},
         "kind":{"enum":["red","green","blue"]},"size":{"type":"number","minimum":0,"maximum":100},
         "tags":{"type":"array","items":{"type":"string","maxLength":8},"maxItems":3}},
         "required":["name","kind","size","tags"]}})"},
};

}  // namespace

int main(int argc, char** argv) {
  std::string model_path, json_path;
  uint32_t n_tokens = 64, n_threads = 0, n_rounds = 5;
  CLI::App app("What does it cost that a text keeps to a grammar?");
  app.add_option("model", model_path)->required();
  app.add_option("--tokens", n_tokens)->capture_default_str();
  app.add_option("--threads", n_threads);
  app.add_option("--rounds", n_rounds)->capture_default_str();
  app.add_option("--json", json_path);
  CLI11_PARSE(app, argc, argv);

  const blendpp::Context ctx;
  const blendpp::Model model(ctx, model_path);
  auto begin = Clock::now();
  const blendpp::Grammar first(model, BLEND_GRAMMAR_JSON);
  std::printf("%u tokens in the vocabulary; it and any JSON object: %.0f ms\n",
              model.info().n_vocab, ms_since(begin));
  blendpp::Prompt prompt;
  prompt.question(model.tokenize("A list of things, as JSON:", BLEND_TOKENIZE_BOS));
  blendpp::FuseOptions fuse;
  fuse.policy = BLEND_POLICY_FULL;
  fuse.reserve_tokens = n_tokens;
  blendpp::Fusion parent(model, nullptr, prompt, fuse);

  std::vector<std::unique_ptr<blendpp::Grammar>> grammars;
  std::vector<double> compile_ms;
  for (const Case& c : kCases) {
    begin = Clock::now();
    grammars.push_back(std::make_unique<blendpp::Grammar>(model, c.kind, c.text));
    compile_ms.push_back(ms_since(begin));
  }
  const auto round = [&](const blendpp::Grammar* grammar, uint32_t max_tokens) {
    blendpp::Fusion fusion = parent.fork();
    blendpp::GenerateOptions options;
    options.max_tokens = max_tokens;
    options.n_threads = n_threads;
    options.temperature = 1;
    options.seed = 3;
    if (grammar == nullptr) {
      options.ignore_eos = 1;
    } else {
      options.grammar = grammar->get();
    }
    const auto from = Clock::now();
    const size_t n = fusion.generate(options, nullptr).n_tokens;
    return ms_since(from) / static_cast<double>(std::max<size_t>(n, 1));  // it may end early
  };
  round(nullptr, 4);
  std::vector<double> best(kCases.size() + 1, 1e9);
  for (uint32_t r = 0; r < n_rounds; ++r) {
    best[0] = std::min(best[0], round(nullptr, n_tokens));
    for (size_t i = 0; i < kCases.size(); ++i) {
      best[i + 1] = std::min(best[i + 1], round(grammars[i].get(), n_tokens));
    }
  }
  nlohmann::json out = {{"model", model_path}, {"n_vocab", model.info().n_vocab}};
  std::printf("%-22s %10s %12s %8s\n", "grammar", "compile ms", "ms a token", "");
  std::printf("%-22s %10s %12.3f\n", "none", "", best[0]);
  for (size_t i = 0; i < kCases.size(); ++i) {
    const double more = 100 * (best[i + 1] / best[0] - 1);
    std::printf("%-22s %10.1f %12.3f %+7.1f %%\n", kCases[i].name, compile_ms[i], best[i + 1],
                more);
    out["grammars"].push_back(
        {{"name", kCases[i].name}, {"compile_ms", compile_ms[i]}, {"token_ms", best[i + 1]}});
  }
  out["none_token_ms"] = best[0];
  blend::bench::write_json(json_path, out);
  return 0;
}

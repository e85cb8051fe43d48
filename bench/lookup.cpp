// How much does prompt look-up gain where an answer quotes its prompt, and cost where it does not?
//
// Writes a model of random weights of a known shape. The answers are forced by the logits callback:
// pieces of the prompt, of --quote tokens each, between as many tokens that are not in it. "none"
// has no token of the prompt, "misled" the worst case: three tokens of the prompt and then another,
// again and again, so that all drafts are wrong. And N of them at once.
//
//   bench_lookup --shape 135m --dtypes f16 --weights mapped,int8 --threads 1
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
#include "bench/shapes.h"
#include "support/temp_dir.h"

namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using blendpp::Tokens;

struct Settings {
  std::string shape = "135m";
  std::vector<std::string> dtypes{"f16"};
  std::vector<std::string> weights{"mapped", "int8"};
  std::vector<uint32_t> lookups{0, 4, 8, 16};
  std::vector<size_t> at_once{1};
  size_t context = 512;
  uint32_t tokens = 48;
  uint32_t threads = 0;
  int repeat = 3;
  std::string isa;
  std::string json_path;
};

// Pieces of the prompt of n_quoted tokens, each after n_other that are not in it. The prompt has
// tokens below n_vocab / 2 only.
Tokens answer(const Tokens& prompt, uint32_t n_vocab, size_t n, size_t n_quoted, size_t n_other) {
  const Tokens others = blend::bench::random_tokens(n, n_vocab / 2, 77);
  Tokens out;
  for (size_t piece = 1; out.size() < n; ++piece) {
    const size_t from = piece * 61 % (prompt.size() - 64);
    for (size_t i = 0; i < n_other; ++i) {
      out.push_back(others[out.size() % n] + static_cast<int32_t>(n_vocab / 2) - 259);
    }
    for (size_t i = 0; i < n_quoted; ++i) out.push_back(prompt[from + i]);
  }
  out.resize(n);
  return out;
}

struct Forced {
  std::unique_ptr<blendpp::Fusion> fusion;
  size_t told = 0;
};

// Tokens a second of n fusions with such answers.
double rate(const Settings& s, const blendpp::Model& model, const Tokens& prompt,
            const Tokens& answer, uint32_t lookup, size_t n) {
  std::vector<Forced> all(n);
  blendpp::Prompt asked;
  asked.question(prompt);
  blendpp::FuseOptions fuse;
  fuse.policy = BLEND_POLICY_FULL;
  fuse.reserve_tokens = s.tokens;
  all[0].fusion = std::make_unique<blendpp::Fusion>(model, nullptr, asked, fuse);
  for (size_t i = 1; i < n; ++i) {
    all[i].fusion = std::make_unique<blendpp::Fusion>(all[0].fusion->fork());
  }
  std::vector<blendpp::Fusion::Request> requests;
  for (Forced& one : all) {
    blendpp::GenerateOptions o;
    o.max_tokens = s.tokens;
    o.ignore_eos = 1;
    o.draft_tokens = lookup;
    o.on_logits = [&](blendpp::Span<float> logits) {
      logits[static_cast<size_t>(answer[one.told])] = 1e30f;
      return true;
    };
    requests.push_back({one.fusion.get(), o, [&](int32_t, std::string_view) {
                          ++one.told;
                          return true;
                        }});
  }
  const auto begin = Clock::now();
  const auto outcomes = blendpp::Fusion::generate_batch(requests);
  const double took = std::chrono::duration<double>(Clock::now() - begin).count();
  for (const auto& outcome : outcomes) {
    if (outcome.error) throw blendpp::Error(*outcome.error);
  }
  return static_cast<double>(n * s.tokens) / took;
}

void measure(const Settings& s, const std::string& dtype, json& rows) {
  const blend::test::TempDir dir;
  const blend::test::RandomModelSpec spec = blend::bench::shape_of(s.shape, dtype);
  const std::string path = dir.file("model.gguf");
  blend::test::write_random_model(spec, path);
  const Tokens prompt = blend::bench::random_tokens(s.context, spec.n_vocab / 2, 1);
  const struct {
    const char* name;
    size_t n_quoted, n_other;
  } kAnswers[] = {{"quotes 48", 48, 0},
                  {"quotes 24 of 32", 24, 8},
                  {"quotes 12 of 24", 12, 12},
                  {"misled", 3, 1},
                  {"none", 0, 8}};
  for (const std::string& kept : s.weights) {
    blendpp::ContextOptions ctx_options;
    ctx_options.n_threads = s.threads;
    const blendpp::Context ctx(ctx_options);
    blendpp::ModelOptions model_options;
    model_options.weights = blend::bench::weights_of(kept);
    const blendpp::Model model(ctx, path, model_options);
    for (const size_t n : s.at_once) {
      for (const auto& kind : kAnswers) {
        const Tokens text = answer(prompt, spec.n_vocab, s.tokens, kind.n_quoted, kind.n_other);
        std::vector<std::vector<double>> rates(s.lookups.size());
        for (int i = 0; i < s.repeat; ++i) {  // in turns
          for (size_t k = 0; k < s.lookups.size(); ++k) {
            rates[k].push_back(rate(s, model, prompt, text, s.lookups[k], n));
          }
        }
        std::printf("%-6s %-7s %7zu  %-16s", dtype.c_str(), kept.c_str(), n, kind.name);
        json row = {{"dtype", dtype}, {"weights", kept}, {"at_once", n}, {"answer", kind.name}};
        for (size_t k = 0; k < s.lookups.size(); ++k) {
          const double r = blend::bench::median(rates[k]);
          row["tokens_per_s"].push_back({{"draft_tokens", s.lookups[k]}, {"rate", r}});
          std::printf(" %9.2f", r);
        }
        std::printf("\n");
        std::fflush(stdout);
        rows.push_back(std::move(row));
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  CLI::App app{"Tokens per second with and without prompt look-up."};
  app.add_option("--shape", s.shape, "tiny, 30m, 135m, 1b or 8b")->capture_default_str();
  app.add_option("--dtypes", s.dtypes, "of the file: f32, f16, bf16, q8_0, q4_0, q4_k, q6_k")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--weights", s.weights, "how they are kept: mapped, int8 or packed")
      ->delimiter(',')
      ->check(CLI::IsMember({"mapped", "int8", "packed"}))
      ->capture_default_str();
  app.add_option("--lookup", s.lookups, "draft_tokens; 0: without")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--at-once", s.at_once, "generations")->delimiter(',')->capture_default_str();
  app.add_option("--context", s.context, "tokens of the prompt")
      ->check(CLI::Range(128, 1 << 20))
      ->capture_default_str();
  app.add_option("--tokens", s.tokens, "generated by each")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--threads", s.threads, "of the context; 0: all CPUs of the process")
      ->capture_default_str();
  app.add_option("--repeat", s.repeat, "runs, of which the median counts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--isa", s.isa, blend::bench::kIsaHelp);
  app.add_option("--json", s.json_path, "also write the figures there");
  CLI11_PARSE(app, argc, argv);
  try {
    blend::bench::cap_isa(s.isa);
    std::printf("%s\n", blend::bench::machine_line().c_str());
    std::printf("shape %s, %zu tokens of prompt, %u generated by each, %u threads\n",
                s.shape.c_str(), s.context, s.tokens, s.threads);
    std::printf("%-6s %-7s %7s  %-16s tokens/s with draft_tokens", "file", "kept", "at once",
                "answer");
    for (const uint32_t l : s.lookups) std::printf(" %u", l);
    std::printf("\n");
    json rows = json::array();
    for (const std::string& dtype : s.dtypes) measure(s, dtype, rows);
    blend::bench::write_json(s.json_path, {{"bench", "lookup"},
                                           {"machine", blend::bench::machine()},
                                           {"shape", s.shape},
                                           {"context", s.context},
                                           {"tokens", s.tokens},
                                           {"threads", s.threads},
                                           {"rows", rows}});
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_lookup: %s\n", e.what());
    return 1;
  }
}

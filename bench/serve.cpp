// How many tokens a second do concurrent generations give, in all and each?
//
// Writes a model of random weights of a known shape and computes a prompt for each of N fusions.
// Then N threads generate at once, and, for comparison, one thread generates for one fusion after
// the other, which costs as much as if each decoded apart. With --fuse a further thread fuses long
// prompts meanwhile: this shows what each costs the other.
//
// With --forks all have one prompt, and its K and V, as forks of one fusion: with prompts of
// several lengths that shows attention's share of a step.
//
// With --python llama.cpp decodes as many sequences together, from the same file.
//
//   bench_serve --shape 135m --dtypes f16 --weights mapped,int8 --at-once 1,4,8,16,32 --threads 1
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <blend/blend.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
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
using Clock = std::chrono::steady_clock;

struct Settings {
  std::string shape = "135m";
  std::vector<std::string> dtypes{"f16"};
  std::vector<std::string> weights{"mapped", "int8"};
  std::vector<size_t> at_once{1, 4, 8, 16, 32};
  size_t context = 128;
  uint32_t tokens = 32;
  uint32_t threads = 0;
  size_t fuse = 0;  // tokens of the prompts that are fused meanwhile; 0: none
  bool forks = false;
  std::string python;  // empty: no peer
  std::string isa;
  std::string json_path;
};

using Fusions = std::vector<std::unique_ptr<blendpp::Fusion>>;

std::unique_ptr<blendpp::Fusion> make_fusion(const blendpp::Model& model, size_t context,
                                             uint32_t reserve, uint32_t n_vocab, uint64_t seed) {
  blendpp::Prompt prompt;
  prompt.question(blend::bench::random_tokens(context, n_vocab, seed));
  blendpp::FuseOptions options;
  options.policy = BLEND_POLICY_FULL;
  options.reserve_tokens = reserve;
  return std::make_unique<blendpp::Fusion>(model, nullptr, prompt, options);
}

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

// Milliseconds from each token to the next.
std::vector<double> generate(blendpp::Fusion& fusion, uint32_t n_tokens) {
  blendpp::GenerateOptions options;
  options.max_tokens = n_tokens;
  options.ignore_eos = 1;
  std::vector<double> gaps;
  auto last = Clock::now();
  bool first = true;
  fusion.generate(options, [&](int32_t, std::string_view) {
    const auto now = Clock::now();
    if (!first) gaps.push_back(1e3 * seconds(now - last));
    first = false;
    last = now;
    return true;
  });
  return gaps;
}

struct Run {
  double rate = 0;  // tokens a second, of all
  std::vector<double> gaps;
};

Run together(Fusions& fusions, uint32_t n_tokens) {
  std::vector<std::vector<double>> gaps(fusions.size());
  std::vector<std::thread> threads;
  const auto begin = Clock::now();
  for (size_t i = 0; i < fusions.size(); ++i) {
    threads.emplace_back([&, i] { gaps[i] = generate(*fusions[i], n_tokens); });
  }
  for (std::thread& t : threads) t.join();
  Run run;
  run.rate = static_cast<double>(fusions.size() * n_tokens) / seconds(Clock::now() - begin);
  for (const auto& g : gaps) run.gaps.insert(run.gaps.end(), g.begin(), g.end());
  std::sort(run.gaps.begin(), run.gaps.end());
  return run;
}

double in_turn(Fusions& fusions, uint32_t n_tokens) {
  const auto begin = Clock::now();
  for (auto& fusion : fusions) generate(*fusion, n_tokens);
  return static_cast<double>(fusions.size() * n_tokens) / seconds(Clock::now() - begin);
}

double quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0;
  return sorted[std::min(sorted.size() - 1,
                         static_cast<size_t>(q * static_cast<double>(sorted.size())))];
}

// Fuses until it is told to stop; the mean of its seconds.
class Fuser {
 public:
  Fuser(const blendpp::Model& model, size_t context, uint32_t n_vocab)
      : thread_([this, &model, context, n_vocab] {
          while (!stop_) {
            const auto begin = Clock::now();
            make_fusion(model, context, 1, n_vocab, 7);
            total_ += seconds(Clock::now() - begin);
            ++n_;
          }
        }) {}
  double finish() {
    stop_ = true;
    thread_.join();
    return total_ / n_;
  }

 private:
  std::atomic<bool> stop_{false};
  double total_ = 0;
  int n_ = 0;
  std::thread thread_;
};

// Tokens a second of llama.cpp on the same file, for each of at_once; empty: it is not there.
json peer_rates(const Settings& s, const std::string& path) {
  if (s.python.empty()) return json::array();
  std::string list;
  for (const size_t n : s.at_once) list += (list.empty() ? "" : ",") + std::to_string(n);
  const json peer = blend::bench::checked_peer(blend::bench::run_json(
      {s.python, BLEND_BENCH_DIR "/llama_cpp_serve.py", path, std::to_string(s.context),
       std::to_string(s.threads), std::to_string(s.tokens), list}));
  if (!peer.is_object()) return json::array();
  for (const json& row : peer["rows"]) {
    std::printf("%-14s %7zu %19.2f %17.2f   flash %d, one cache %d\n", "llama.cpp",
                row["at_once"].get<size_t>(), row["tokens_per_s"].get<double>(),
                row["tokens_per_s"].get<double>() / row["at_once"].get<double>(),
                row["flash"].get<bool>(), row["unified"].get<bool>());
  }
  std::fflush(stdout);
  return peer["rows"];
}

void measure(const Settings& s, const std::string& dtype, json& rows, json& peers) {
  const blend::test::TempDir dir;
  const blend::test::RandomModelSpec spec = blend::bench::shape_of(s.shape, dtype);
  const std::string path = dir.file("model.gguf");
  blend::test::write_random_model(spec, path);
  for (const json& row : peer_rates(s, path)) {
    peers.push_back(row);
    peers.back()["dtype"] = dtype;
  }
  for (const std::string& kept : s.weights) {
    blendpp::ContextOptions ctx_options;
    ctx_options.n_threads = s.threads;
    const blendpp::Context ctx(ctx_options);
    blendpp::ModelOptions model_options;
    model_options.weights = blend::bench::weights_of(kept);
    const blendpp::Model model(ctx, path, model_options);
    double fuse_alone = 0;
    if (s.fuse > 0) {
      const auto begin = Clock::now();
      make_fusion(model, s.fuse, 1, spec.n_vocab, 7);
      fuse_alone = seconds(Clock::now() - begin);
    }
    for (const size_t n : s.at_once) {
      Fusions fusions;
      for (size_t i = 0; i < n; ++i) {
        if (s.forks && i > 0) {
          fusions.push_back(std::make_unique<blendpp::Fusion>(fusions[0]->fork()));
        } else {
          fusions.push_back(make_fusion(model, s.context, 3 * s.tokens, spec.n_vocab, i));
        }
      }
      const double apart = in_turn(fusions, s.tokens);
      const Run run = together(fusions, s.tokens);
      json row = {{"dtype", dtype},
                  {"weights", kept},
                  {"at_once", n},
                  {"in_turn_tokens_per_s", apart},
                  {"tokens_per_s", run.rate},
                  {"gap_p50_ms", quantile(run.gaps, 0.5)},
                  {"gap_p99_ms", quantile(run.gaps, 0.99)}};
      std::printf("%-6s %-7s %7zu %9.2f %9.2f %7.2f %9.2f %9.1f %9.1f", dtype.c_str(), kept.c_str(),
                  n, apart, run.rate, run.rate / apart, run.rate / static_cast<double>(n),
                  quantile(run.gaps, 0.5), quantile(run.gaps, 0.99));
      if (s.fuse > 0) {
        Fuser fuser(model, s.fuse, spec.n_vocab);
        const Run mixed = together(fusions, s.tokens);
        const double fuse = fuser.finish();
        row["fuse_alone_s"] = fuse_alone;
        row["fuse_beside_s"] = fuse;
        row["beside_tokens_per_s"] = mixed.rate;
        row["beside_gap_p50_ms"] = quantile(mixed.gaps, 0.5);
        row["beside_gap_p99_ms"] = quantile(mixed.gaps, 0.99);
        std::printf(" | %9.2f %9.1f %9.1f %8.2f %8.2f", mixed.rate, quantile(mixed.gaps, 0.5),
                    quantile(mixed.gaps, 0.99), fuse_alone, fuse);
      }
      std::printf("\n");
      std::fflush(stdout);
      rows.push_back(std::move(row));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  CLI::App app{"Tokens per second of generations at the same time."};
  app.add_option("--shape", s.shape, "tiny, 30m, 135m, 1b or 8b")->capture_default_str();
  app.add_option("--dtypes", s.dtypes, "of the file: f32, f16, bf16, q8_0, q4_0, q4_k, q6_k")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--weights", s.weights, "how they are kept: mapped, int8 or packed")
      ->delimiter(',')
      ->check(CLI::IsMember({"mapped", "int8", "packed"}))
      ->capture_default_str();
  app.add_option("--at-once", s.at_once, "generations")->delimiter(',')->capture_default_str();
  app.add_option("--context", s.context, "tokens before the generated ones")->capture_default_str();
  app.add_option("--tokens", s.tokens, "generated by each")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--threads", s.threads, "of the context; 0: all CPUs of the process")
      ->capture_default_str();
  app.add_option("--fuse", s.fuse, "also: while prompts of so many tokens are prefilled in full");
  app.add_flag("--forks", s.forks, "forks of one fusion, instead of a prompt for each");
  app.add_option("--python", s.python,
                 "interpreter that has llama_cpp: also as many sequences of llama.cpp");
  app.add_option("--isa", s.isa, blend::bench::kIsaHelp);
  app.add_option("--json", s.json_path, "also write the figures there");
  CLI11_PARSE(app, argc, argv);
  try {
    blend::bench::cap_isa(s.isa);
    std::printf("%s\n", blend::bench::machine_line().c_str());
    std::printf("shape %s, %zu tokens of prompt, %u generated by each, %u threads\n",
                s.shape.c_str(), s.context, s.tokens, s.threads);
    std::printf("%-6s %-7s %7s %9s %9s %7s %9s %9s %9s%s\n", "file", "kept", "at once", "in turn",
                "tokens/s", "ratio", "each", "p50 ms", "p99 ms",
                s.fuse > 0 ? " | beside a fuse: tokens/s, p50, p99 ms, fuse alone, beside s" : "");
    json rows = json::array(), peers = json::array();
    for (const std::string& dtype : s.dtypes) measure(s, dtype, rows, peers);
    blend::bench::write_json(s.json_path, {{"bench", "serve"},
                                           {"machine", blend::bench::machine()},
                                           {"shape", s.shape},
                                           {"context", s.context},
                                           {"tokens", s.tokens},
                                           {"threads", s.threads},
                                           {"fuse", s.fuse},
                                           {"forks", s.forks},
                                           {"llama_cpp", peers},
                                           {"rows", rows}});
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_serve: %s\n", e.what());
    return 1;
  }
}

// Does the self-check keep the agreement that is asked for, how soon, and at what cost?
//
// A store that knows nothing of the model: all chunks of the questions are precomputed as a corpus,
// then questions are drawn and answered with the library's defaults, a pause after each, in which
// the store checks answers. Every few questions this program itself compares one with full
// prefill decoded along the answer, so that the figures do not depend on the checks under test.
//
//   bench_fidelity --model model.gguf --data town.jsonl,rgb.jsonl --chat --seconds 3600
#include <CLI/CLI.hpp>
#include <algorithm>
#include <blend/blend.hpp>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/json_file.h"
#include "bench/measure.h"
#include "bench/questions.h"
#include "support/temp_dir.h"

namespace {

using blend::bench::Asking;
using blend::bench::cpu_seconds;
using blend::bench::Question;
using blend::bench::read_questions;
using blend::bench::seconds_since;
using blendpp::Tokens;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

struct Settings {
  std::string model;
  std::vector<std::string> data;
  bool corpus = true;
  Asking asking;
  double seconds = 3600;
  double report_s = 300;
  double pause_ms = 200;
  double target = 0;
  uint32_t check_every = 16;
  uint32_t verify_every = 4;
  uint32_t max_tokens = 24;
  uint32_t threads = 0;
  uint64_t seed = 1;
  std::string json_path;
};

int32_t likeliest(const blendpp::Fusion& fusion) {
  const auto logits = fusion.logits();
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// What happened between two reports.
struct Interval {
  size_t asked = 0;
  double ratio = 0, rows = 0, ttft_ms = 0;  // sums
  size_t verified = 0, identical = 0, tokens = 0, agree = 0;
  double full_ms = 0;  // sum over the verified
  double call_cpu_s = 0, cpu_s = 0;
};

class Run {
 public:
  explicit Run(const Settings& settings)
      : settings_(settings),
        questions_(read_questions(settings.data)),
        model_(context_, settings.model),
        store_(context_, dir_.path(), store_options(settings)),
        random_(settings.seed) {}

  json measure() {
    const double begin_cpu = cpu_seconds();
    const auto begin = Clock::now();
    if (settings_.corpus) settings_.asking.precompute(model_, store_, questions_);
    json out;
    out["precompute_s"] = seconds_since(begin);
    out["precompute_cpu_s"] = cpu_seconds() - begin_cpu;
    std::printf("%zu questions; precompute %.0f s\n", questions_.size(), seconds_since(begin));
    std::printf("%7s %6s %6s %6s %8s %8s %7s %7s %7s  %s\n", "s", "asked", "ratio", "rows",
                "TTFT ms", "full ms", "agree", "same", "checks",
                "in force; share of CPU in checks");
    const auto start = Clock::now();
    auto report_at = settings_.report_s;
    Interval interval;
    double cpu = cpu_seconds();
    while (seconds_since(start) < settings_.seconds) {
      ask(interval);
      if (seconds_since(start) < report_at) continue;
      interval.cpu_s = cpu_seconds() - cpu;
      out["intervals"].push_back(report(seconds_since(start), interval));
      cpu = cpu_seconds();
      interval = {};
      report_at += settings_.report_s;
    }
    return out;
  }

 private:
  static blendpp::StoreOptions store_options(const Settings& settings) {
    blendpp::StoreOptions o;
    o.check_every = settings.check_every;
    return o;
  }

  void ask(Interval& out) {
    Question q = questions_[random_() % questions_.size()];
    std::shuffle(q.chunks.begin(), q.chunks.end(), random_);
    const blendpp::Prompt prompt = settings_.asking.prompt(model_, q);
    const double cpu = cpu_seconds();
    blendpp::FuseOptions options;
    options.agreement_target = settings_.target;
    options.n_threads = settings_.threads;
    options.reserve_tokens = settings_.max_tokens;
    Tokens answer;
    {
      blendpp::Fusion fusion(model_, &store_, prompt, options);
      const blendpp::FusionReport info = fusion.report();
      ++out.asked;
      out.ratio += info.ratio;
      out.rows += static_cast<double>(info.n_rows_selected + info.n_rows_always) /
                  static_cast<double>(info.n_rows);
      out.ttft_ms += 1e-6 * static_cast<double>(info.ttft_ns);
      blendpp::GenerateOptions generate;
      generate.max_tokens = settings_.max_tokens;
      fusion.generate(generate, [&](int32_t token, std::string_view) {
        answer.push_back(token);
        return true;
      });
    }
    out.call_cpu_s += cpu_seconds() - cpu;
    if (n_asked_++ % settings_.verify_every == 0) verify(prompt, answer, out);
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(settings_.pause_ms));
  }

  // Full prefill, decoded along the answer.
  void verify(const blendpp::Prompt& prompt, const Tokens& answer, Interval& out) {
    const double cpu = cpu_seconds();
    blendpp::FuseOptions options;
    options.policy = BLEND_POLICY_FULL;
    options.n_threads = settings_.threads;
    options.reserve_tokens = settings_.max_tokens;
    blendpp::Fusion full(model_, nullptr, prompt, options);
    out.full_ms += 1e-6 * static_cast<double>(full.info().ttft_ns);
    size_t agree = 0;
    for (size_t i = 0; i < answer.size(); ++i) {
      if (likeliest(full) == answer[i]) ++agree;
      if (i + 1 < answer.size()) full.decode({answer[i]});
    }
    out.tokens += answer.size();
    out.agree += agree;
    ++out.verified;
    if (agree == answer.size()) ++out.identical;
    out.call_cpu_s += cpu_seconds() - cpu;
  }

  json report(double at, const Interval& i) {
    const auto n = static_cast<double>(std::max<size_t>(i.asked, 1));
    const auto v = static_cast<double>(std::max<size_t>(i.verified, 1));
    const double agree =
        static_cast<double>(i.agree) / static_cast<double>(std::max<size_t>(i.tokens, 1));
    const double in_checks = std::max(0.0, i.cpu_s - i.call_cpu_s) / std::max(i.cpu_s, 1e-9);
    uint64_t checks = 0;
    std::string force;
    json in_force = json::object();
    store_.fidelity(
        model_,
        [&](const blendpp::FidelityRow& row) {
          checks += row.n_checks;
          if (row.in_force == 0) return true;
          const char* const names[] = {"none",       "exact", "predecessor",
                                       "contextual", "head",  "alone"};
          const char* const name = names[std::min<uint32_t>(row.record, 5)];
          char text[64];
          std::snprintf(text, sizeof text, "%s %g ", name, row.ratio);
          force += text;
          in_force[name] = row.ratio;
          return true;
        },
        settings_.target);
    std::printf("%7.0f %6zu %6.3f %6.3f %8.0f %8.0f %7.4f %7.3f %7llu  %s; %.3f\n", at, i.asked,
                i.ratio / n, i.rows / n, i.ttft_ms / n, i.full_ms / v, agree,
                static_cast<double>(i.identical) / v, static_cast<unsigned long long>(checks),
                force.c_str(), in_checks);
    std::fflush(stdout);
    return {{"seconds", at},
            {"asked", i.asked},
            {"ratio", i.ratio / n},
            {"rows_computed", i.rows / n},
            {"ttft_ms", i.ttft_ms / n},
            {"full_ms", i.full_ms / v},
            {"verified", i.verified},
            {"tokens", i.tokens},
            {"agreement", agree},
            {"identical", static_cast<double>(i.identical) / v},
            {"checks", checks},
            {"in_force", in_force},
            {"check_cpu_share", in_checks}};
  }

  const Settings settings_;
  const std::vector<Question> questions_;
  const blend::test::TempDir dir_;
  blendpp::Context context_;
  blendpp::Model model_;
  blendpp::Store store_;
  std::mt19937_64 random_;
  size_t n_asked_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("What the self-check makes of the recompute ratio, from a cold start");
  app.add_option("--model", settings.model, "GGUF file or Hugging Face directory")->required();
  app.add_option("--data", settings.data, "Questions, JSON lines of {\"chunks\", \"question\"}")
      ->delimiter(',')
      ->required();
  app.add_flag("--chat", settings.asking.chat, "By the model's chat template");
  app.add_flag("--corpus,!--no-corpus", settings.corpus,
               "Precompute all chunks first; else they are stored as prompts use them");
  app.add_option("--seconds", settings.seconds)->capture_default_str();
  app.add_option("--report-every", settings.report_s, "Seconds")->capture_default_str();
  app.add_option("--pause-ms", settings.pause_ms, "Idle time after a question")
      ->capture_default_str();
  app.add_option("--target", settings.target, "Agreement; 0: the library's")->capture_default_str();
  app.add_option("--check-every", settings.check_every)->capture_default_str();
  app.add_option("--verify-every", settings.verify_every)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--max-tokens", settings.max_tokens)->capture_default_str();
  app.add_option("--threads", settings.threads)->capture_default_str();
  app.add_option("--seed", settings.seed)->capture_default_str();
  app.add_option("--json", settings.json_path, "Write the figures here");
  CLI11_PARSE(app, argc, argv);
  try {
    json out = {{"model", settings.model}};
    out["target"] = settings.target;
    out["check_every"] = settings.check_every;
    out.update(Run(settings).measure());
    blend::bench::write_json(settings.json_path, out);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_fidelity: %s\n", e.what());
    return 1;
  }
  return 0;
}

// Is it worth making a fused prompt exact after its answer has begun (blend_fusion_make_exact)?
//
// Every question is answered three times: by full prefill; from a fuse with the library's
// defaults; and as `blend ask --exact` answers. It prints when the first token is shown, when the
// last one is known to be full prefill's, and how often something that was shown had to be taken
// back.
//
//   bench_exact --model model.gguf --data rgb.jsonl --chat
#include <CLI/CLI.hpp>
#include <blend/blend.hpp>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bench/json_file.h"
#include "bench/measure.h"
#include "bench/questions.h"
#include "support/temp_dir.h"
#include "tools/blend/exact_answer.h"

namespace {

using blend::bench::cpu_seconds;
using blend::bench::median;
using blend::bench::Question;
using blend::bench::seconds_since;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

struct Settings {
  std::string model;
  std::vector<std::string> data;
  blend::bench::Asking asking;
  size_t limit = 0;
  uint32_t max_tokens = 24;
  uint32_t threads = 0;
  std::string json_path;
};

struct Answer {
  std::string text;
  double first_s = 0, last_s = 0, cpu_s = 0;
};

// Times and tokens of one question.
struct Row {
  Answer full, fused, exact;
  size_t shown = 0, taken_back = 0;  // tokens, when full prefill was done
};

class Run {
 public:
  explicit Run(const Settings& settings)
      : settings_(settings),
        questions_(blend::bench::read_questions(settings.data)),
        model_(context_, settings.model),
        store_(context_, dir_.path(), unchecked()) {
    if (settings.limit > 0 && settings.limit < questions_.size()) questions_.resize(settings.limit);
  }

  json measure() {
    settings_.asking.precompute(model_, store_, questions_);
    for (const Question& q : questions_) {
      const blendpp::Prompt prompt = settings_.asking.prompt(model_, q);
      Row row;
      row.full = plain_answer(prompt, true);
      row.fused = plain_answer(prompt, false);
      row.exact = exact_answer(prompt, row);
      rows_.push_back(std::move(row));
    }
    return report();
  }

 private:
  // Without checks, which would run beside the timed calls.
  static blendpp::StoreOptions unchecked() {
    blendpp::StoreOptions o;
    o.check_every = UINT32_MAX;
    return o;
  }

  blendpp::FuseOptions options() const {
    blendpp::FuseOptions o;
    o.on_miss = BLEND_MISS_PRECOMPUTE;
    o.reserve_tokens = settings_.max_tokens;
    o.n_threads = settings_.threads;
    return o;
  }

  blendpp::GenerateOptions answer_options() const {
    blendpp::GenerateOptions o;
    o.max_tokens = settings_.max_tokens;
    return o;
  }

  // `generate(fusion, show)` answers from the fusion; `show` is told of each token's text.
  template <typename Generate>
  Answer answer(const blendpp::Prompt& prompt, bool full, Generate generate) const {
    Answer out;
    const double cpu = cpu_seconds();
    const auto begin = Clock::now();
    blendpp::FuseOptions o = options();
    if (full) o.policy = BLEND_POLICY_FULL;
    blendpp::Fusion fusion(model_, full ? nullptr : &store_, prompt, o);
    generate(fusion, out.text, [&] {
      if (out.first_s == 0) out.first_s = seconds_since(begin);
    });
    out.last_s = seconds_since(begin);
    out.cpu_s = cpu_seconds() - cpu;
    return out;
  }

  Answer plain_answer(const blendpp::Prompt& prompt, bool full) const {
    return answer(prompt, full, [&](blendpp::Fusion& fusion, std::string& text, auto shown) {
      fusion.generate(answer_options(), [&](int32_t, std::string_view more) {
        shown();
        text += more;
        return true;
      });
    });
  }

  Answer exact_answer(const blendpp::Prompt& prompt, Row& row) const {
    return answer(prompt, false, [&](blendpp::Fusion& fusion, std::string& text, auto shown) {
      blend_cli::ExactCalls calls;
      calls.show = [&](std::string_view) { shown(); };
      calls.correct = [](std::string_view) {};
      blend_cli::ExactAnswer exact = blend_cli::answer_exactly(fusion, answer_options(), calls);
      text = std::move(exact.text);
      row.shown = exact.n_shown;
      row.taken_back = exact.n_taken_back;
    });
  }

  template <typename Of>
  double middle(Of of) const {
    std::vector<double> all;
    for (const Row& row : rows_) all.push_back(of(row));
    return median(std::move(all));
  }
  template <typename Of>
  double share(Of of) const {
    size_t n = 0;
    for (const Row& row : rows_) n += of(row) ? 1 : 0;
    return static_cast<double>(n) / static_cast<double>(rows_.size());
  }

  json report() const {
    double shown = 0, back = 0;
    for (const Row& row : rows_) {
      shown += static_cast<double>(row.shown);
      back += static_cast<double>(row.taken_back);
    }
    const json out = {
        {"questions", rows_.size()},
        {"same_fused", share([](const Row& r) { return r.fused.text == r.full.text; })},
        {"same_exact", share([](const Row& r) { return r.exact.text == r.full.text; })},
        {"corrected", share([](const Row& r) { return r.taken_back > 0; })},
        {"taken_back", back / std::max(shown, 1.0)},
        {"first_full_s", middle([](const Row& r) { return r.full.first_s; })},
        {"first_fused_s", middle([](const Row& r) { return r.fused.first_s; })},
        {"first_exact_s", middle([](const Row& r) { return r.exact.first_s; })},
        {"last_full_s", middle([](const Row& r) { return r.full.last_s; })},
        {"last_fused_s", middle([](const Row& r) { return r.fused.last_s; })},
        {"last_exact_s", middle([](const Row& r) { return r.exact.last_s; })},
        {"cpu_exact_over_full", middle([](const Row& r) { return r.exact.cpu_s / r.full.cpu_s; })},
        {"cpu_fused_over_full", middle([](const Row& r) { return r.fused.cpu_s / r.full.cpu_s; })}};
    const auto of = [&](const char* key) { return out.at(key).get<double>(); };
    std::printf("%zu questions; medians, seconds after the prompt came\n", rows_.size());
    std::printf("%-22s %8s %8s %8s %8s\n", "", "first", "last", "same", "CPU");
    std::printf("%-22s %8.3f %8.3f %8s %8s\n", "full prefill", of("first_full_s"),
                of("last_full_s"), "", "1");
    std::printf("%-22s %8.3f %8.3f %8.3f %8.2f\n", "fused", of("first_fused_s"), of("last_fused_s"),
                of("same_fused"), of("cpu_fused_over_full"));
    std::printf("%-22s %8.3f %8.3f %8.3f %8.2f\n", "exact after a moment", of("first_exact_s"),
                of("last_exact_s"), of("same_exact"), of("cpu_exact_over_full"));
    std::printf("corrected: %.3f of the answers, %.3f of the tokens shown before\n",
                of("corrected"), of("taken_back"));
    return out;
  }

  const Settings settings_;
  std::vector<Question> questions_;
  const blend::test::TempDir dir_;
  blendpp::Context context_;
  blendpp::Model model_;
  blendpp::Store store_;
  std::vector<Row> rows_;
};

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("What it gives and costs to make a fused prompt exact after its answer has begun");
  app.add_option("--model", settings.model, "GGUF file or Hugging Face directory")->required();
  app.add_option("--data", settings.data, "Questions, JSON lines of {\"chunks\", \"question\"}")
      ->delimiter(',')
      ->required();
  app.add_flag("--chat", settings.asking.chat, "By the model's chat template");
  app.add_option("--limit", settings.limit, "Questions; 0: all")->capture_default_str();
  app.add_option("--max-tokens", settings.max_tokens)->capture_default_str();
  app.add_option("--threads", settings.threads)->capture_default_str();
  app.add_option("--json", settings.json_path, "Write the figures here");
  CLI11_PARSE(app, argc, argv);
  try {
    json out = {{"model", settings.model}};
    out.update(Run(settings).measure());
    blend::bench::write_json(settings.json_path, out);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_exact: %s\n", e.what());
    return 1;
  }
  return 0;
}

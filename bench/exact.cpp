// Is it worth making a fused prompt exact after its answer has begun (blend_fusion_make_exact)?
//
// Every question is answered three times: by full prefill; from what was fused with the library's
// defaults; and so that tokens are shown from a fork of what was fused while full prefill of the
// same prompt runs beside it, what was shown is then checked, and the answer goes on from the exact
// cache. When the first token is shown, when the last one is known to be full prefill's, and how
// often something that was shown had to be taken back.
//
//   bench_exact --model model.gguf --data rgb.jsonl --chat
#include <CLI/CLI.hpp>
#include <atomic>
#include <blend/blend.hpp>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/json_file.h"
#include "bench/measure.h"
#include "bench/questions.h"
#include "support/temp_dir.h"

namespace {

using blend::bench::cpu_seconds;
using blend::bench::median;
using blend::bench::Question;
using blend::bench::seconds_since;
using blendpp::Tokens;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

struct Settings {
  std::string model;
  std::vector<std::string> data;
  blend::bench::Asking asking;
  size_t limit = 0;
  uint32_t max_tokens = 24;
  uint32_t threads = 0;
  std::string stop;
  std::string json_path;
};

struct Answer {
  Tokens tokens;
  bool ended = false;  // by the model or a stop text
  double first_s = 0, last_s = 0, cpu_s = 0;
};

// What one question showed.
struct Row {
  Answer full, fused, exact;
  size_t shown = 0, taken_back = 0;  // tokens, when full prefill was done
  double prefilled_s = 0;            // when it was
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
      row.full = answer(prompt, true);
      row.fused = answer(prompt, false);
      exact_after_a_moment(prompt, row);
      rows_.push_back(std::move(row));
    }
    return report();
  }

 private:
  // Its checks would run beside what is timed.
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

  // Generates up to max_tokens in all, those that the answer has already included. False from
  // `go_on` ends it early.
  template <typename GoOn>
  void generate(blendpp::Fusion& fusion, Answer& out, Clock::time_point begin, GoOn go_on) const {
    if (out.tokens.size() >= settings_.max_tokens) return;
    blendpp::GenerateOptions o;
    o.max_tokens = settings_.max_tokens - static_cast<uint32_t>(out.tokens.size());
    const std::string stop = settings_.stop;
    const std::vector<blend_text> stops = {{stop.data(), stop.size()}};
    if (!stop.empty()) {
      o.stop_texts = stops.data();
      o.n_stop_texts = stops.size();
    }
    const blendpp::Generated made = fusion.generate(o, [&](int32_t token, std::string_view) {
      if (token < 0) return true;
      if (out.tokens.empty()) out.first_s = seconds_since(begin);
      out.tokens.push_back(token);
      return go_on();
    });
    out.ended = made.by_stop_token;
    out.last_s = seconds_since(begin);
  }

  Answer answer(const blendpp::Prompt& prompt, bool full) const {
    Answer out;
    const double cpu = cpu_seconds();
    const auto begin = Clock::now();
    blendpp::FuseOptions o = options();
    if (full) o.policy = BLEND_POLICY_FULL;
    blendpp::Fusion fusion(model_, full ? nullptr : &store_, prompt, o);
    generate(fusion, out, begin, [] { return true; });
    out.cpu_s = cpu_seconds() - cpu;
    return out;
  }

  void exact_after_a_moment(const blendpp::Prompt& prompt, Row& row) const {
    Answer& out = row.exact;
    const double cpu = cpu_seconds();
    const auto begin = Clock::now();
    blendpp::Fusion fusion(model_, &store_, prompt, options());
    blendpp::Fusion shown = fusion.fork();
    std::atomic<bool> prefilled{false};
    std::thread beside([&] {
      fusion.make_exact();
      row.prefilled_s = seconds_since(begin);
      prefilled.store(true);
    });
    generate(shown, out, begin, [&] { return !prefilled.load(); });
    beside.join();
    row.shown = out.tokens.size();
    const size_t kept = fusion.make_exact(out.tokens);
    row.taken_back = row.shown - kept;
    out.tokens.resize(kept);
    // Where all is kept, what ended the answer was full prefill's too, but for its last word: the
    // exact cache says whether it ends here.
    const bool stopped_by_text = out.ended && !settings_.stop.empty() && row.taken_back == 0;
    if (!stopped_by_text) generate(fusion, out, begin, [] { return true; });
    out.last_s = seconds_since(begin);
    out.cpu_s = cpu_seconds() - cpu;
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
        {"same_fused", share([](const Row& r) { return r.fused.tokens == r.full.tokens; })},
        {"same_exact", share([](const Row& r) { return r.exact.tokens == r.full.tokens; })},
        {"corrected", share([](const Row& r) { return r.taken_back > 0; })},
        {"taken_back", back / std::max(shown, 1.0)},
        {"first_full_s", middle([](const Row& r) { return r.full.first_s; })},
        {"first_fused_s", middle([](const Row& r) { return r.fused.first_s; })},
        {"first_exact_s", middle([](const Row& r) { return r.exact.first_s; })},
        {"prefilled_s", middle([](const Row& r) { return r.prefilled_s; })},
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
    std::printf(
        "full prefill beside it was done after %.3f; corrected: %.3f of the answers, %.3f of "
        "the tokens shown by then\n",
        of("prefilled_s"), of("corrected"), of("taken_back"));
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
  app.add_option("--answer-stop", settings.stop, "The answer ends before this text");
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

#include "eval/run.h"

#include <algorithm>
#include <map>
#include <utility>

#include "choices.h"
#include "command.h"
#include "compare.h"
#include "eval/metrics.h"
#include "interrupt.h"
#include "progress.h"
#include "table.h"

namespace blend_cli {
namespace {

// Questions of each kind whose rows are kept to be drawn.
constexpr size_t kTraces = 3;

// Runs the plan. Used by one thread.
class Runner {
 public:
  Runner(const blendpp::Model& model, const blendpp::Store& store, const EvalPlan& plan)
      : model_(model),
        store_(store),
        plan_(plan),
        info_(model.info()),
        recorder_(model, store, plan.profile, plan.corpus) {
    for (const EvalConfig& config : plan.configs) {
      if (config.policy != BLEND_POLICY_FULL) recorder_.add(config.records, config.codec);
    }
  }

  EvalResult run(const std::vector<Record>& records) {
    EvalResult result;
    ProgressBar bar("Evaluating", ProgressBar::Elsewhere::lines);
    const size_t runs = plan_.configs.size() + 1;
    bool warm = false;
    for (size_t i = 0; i < records.size(); ++i) {
      throw_if_interrupted();
      const Question question = make_question(model_, records[i], plan_.prompt.form);
      if (question.tokens.size() + 1 > info_.context_length) {
        result.skipped.push_back(
            {i, format("the prompt has %zu tokens, the model's context is %u with room for an "
                       "answer",
                       question.tokens.size(), info_.context_length)});
        continue;
      }
      // The first use of each code path pays for set-up that later ones find done: not measured.
      if (!std::exchange(warm, true)) warm_up(question);
      result.questions.push_back(answer(
          question, i, [&](size_t done) { bar.update(i * runs + done, records.size() * runs); }));
      keep_few_traces(question, result.questions.back());
      // Between questions: every fuse finds its chunks.
      if (plan_.trim_bytes != 0) recorder_.trim(plan_.trim_bytes);
    }
    result.sizes = recorder_.sizes();
    if (result.questions.empty()) {
      throw CommandError(kExitError, "no question fits the model: " + result.skipped[0].reason);
    }
    return result;
  }

  // The ratio at which `config` costs its budget on these records; negative: it never does.
  double ratio_for_budget(const std::vector<Record>& records, EvalConfig config) {
    std::vector<Question> questions;
    double full_flops = 0;
    for (const Record& record : records) {
      if (questions.size() == kFitted) break;
      Question question = make_question(model_, record, plan_.prompt.form);
      if (question.tokens.size() + 1 > info_.context_length) continue;
      recorder_.store(question);
      EvalConfig full;
      full.policy = BLEND_POLICY_FULL;
      full_flops += flops_of(question, full);
      questions.push_back(std::move(question));
    }
    const auto cost = [&](double ratio) {
      config.ratio = ratio;
      double sum = 0;
      for (const Question& question : questions) sum += flops_of(question, config);
      return sum / full_flops;
    };
    if (questions.empty() || cost(0) > config.flops) return -1;
    if (cost(1) <= config.flops) return 1;
    double low = 0, high = 1;
    for (int i = 0; i < kBisections; ++i) {
      const double middle = 0.5 * (low + high);
      (cost(middle) <= config.flops ? low : high) = middle;
    }
    return low;
  }

 private:
  static constexpr size_t kFitted = 4;    // records that a ratio is fitted on
  static constexpr int kBisections = 10;  // to a thousandth

  double flops_of(const Question& question, const EvalConfig& config) {
    throw_if_interrupted();
    return blendpp::Fusion(model_, &store_, question.prompt, fuse_options(question, config))
        .report()
        .flops;
  }

  void warm_up(const Question& question) {
    recorder_.store(question);
    EvalConfig full;
    full.policy = BLEND_POLICY_FULL;
    flops_of(question, full);
    for (const EvalConfig& config : plan_.configs) flops_of(question, config);
  }

  blendpp::FuseOptions fuse_options(const Question& question, const EvalConfig& config) {
    blendpp::FuseOptions fuse;
    fuse.policy = config.policy;
    // By default the store makes better records in idle time: configurations would find different
    // ones.
    fuse.on_miss = BLEND_MISS_PRECOMPUTE;
    if (config.chooses()) fuse.ratio = config.ratio;
    if (config.measures()) {
      fuse.selection.metric = config.metric;
      fuse.selection.norm = config.norm;
      fuse.selection.relative = config.relative ? 1 : 0;
    }
    fuse.selection.terms = config.spec.terms.data();
    fuse.selection.n_terms = config.spec.terms.size();
    fuse.selection.seed = config.seed;
    fuse.selection.ape_temperature = config.ape.temperature;
    fuse.selection.ape_scale = config.ape.scale;
    if (config.checks > 1) {
      checks_ = model_.default_check_layers(config.ratio, config.check_layer, config.checks);
      fuse.selection.check_layers = checks_.data();
      fuse.selection.n_check_layers = checks_.size();
    }
    fuse.selection.check_layer = config.check_layer;
    const uint32_t uncorrected = plan_.shift ? BLEND_CORRECTION_SHIFT : BLEND_CORRECTION_OFF;
    fuse.selection.correction = uncorrected;
    if (config.records == kProfileRecords) {
      fuse.profile = plan_.profile->get();
      fuse.selection.correction = !config.corrected ? uncorrected
                                  : config.guarded  ? BLEND_CORRECTION_ON
                                                    : BLEND_CORRECTION_UNGUARDED;
    }
    fuse.reserve_tokens = limits_of(question.tokens.size()).max_tokens;
    if (config.policy != BLEND_POLICY_FULL) {
      recorder_.find(config.records, config.codec, question, fuse);
    }
    fuse.cancel = interrupt_token();
    return fuse;
  }

  // The context may end before the answer does.
  AnswerLimits limits_of(size_t n_prompt) const {
    AnswerLimits limits = plan_.prompt.limits;
    limits.max_tokens =
        static_cast<uint32_t>(std::min<size_t>(limits.max_tokens, info_.context_length - n_prompt));
    return limits;
  }

  static void mark(const Record& record, Outcome& outcome) {
    outcome.found = answer_found(outcome.answer, record.answers);
    outcome.exact_match = exact_match(outcome.answer, record.answers);
    outcome.f1 = token_f1(outcome.answer, record.answers);
  }

  // Fuses, as often as repeats are asked for; `outcome` gets the report.
  blendpp::Fusion fuse(const blendpp::Model& model, const Question& question,
                       const EvalConfig& config, Outcome& outcome) {
    const blendpp::FuseOptions options = fuse_options(question, config);
    std::vector<double> times;
    for (size_t i = 1; i < plan_.repeats; ++i) {
      throw_if_interrupted();
      const blendpp::Fusion fusion(model, &store_, question.prompt, options);
      times.push_back(static_cast<double>(fusion.report().ttft_ns));
    }
    blendpp::Fusion fusion(model, &store_, question.prompt, options);
    const blendpp::FusionReport info = fusion.report();
    times.push_back(static_cast<double>(info.ttft_ns));
    outcome.ttft_ns = static_cast<uint64_t>(quantile(times, 0.5));
    outcome.n_rows = info.n_rows;
    outcome.n_rows_reused = info.n_rows_reused;
    outcome.n_rows_selected = info.n_rows_selected;
    outcome.n_rows_always = info.n_rows_always;
    outcome.n_misses = info.n_misses;
    outcome.flops = info.flops;
    outcome.drift_share = info.drift_share;
    return fusion;
  }

  static double smallest(const std::vector<double>& leads) {
    return *std::min_element(leads.begin(), leads.end());
  }

  // Full prefill's answer, and the outcome of comparing it with itself.
  Reference reference_of(const blendpp::Model& model, const Question& question, Outcome& outcome) {
    EvalConfig full;
    full.policy = BLEND_POLICY_FULL;
    blendpp::Fusion fusion = fuse(model, question, full, outcome);
    Reference reference = reference_answer(model, fusion, limits_of(question.tokens.size()));
    outcome.answer = reference.answer;
    outcome.n_places = outcome.n_agree = outcome.n_common = reference.likeliest.size();
    outcome.lead = smallest(reference.lead);
    outcome.top1_agrees = outcome.same_answer = true;
    mark(*question.record, outcome);
    return reference;
  }

  Outcome outcome_of(const Question& question, const EvalConfig& config, const Reference& reference,
                     Logits* logits_out, RowTrace* trace_out) {
    Outcome outcome;
    blendpp::Fusion fusion = fuse(model_, question, config, outcome);
    if (trace_out != nullptr) *trace_out = trace_of(fusion);
    Led led = led_answer(model_, fusion, reference, limits_of(question.tokens.size()));
    outcome.kl = led.kl.front();
    outcome.kl8 = mean(led.kl);
    outcome.n_places = reference.likeliest.size();
    outcome.n_agree = led.n_agree;
    outcome.top1_agrees = led.first_agrees;
    outcome.n_common = led.n_common;
    outcome.took_second = led.took_second;
    outcome.lead =
        led.n_common < outcome.n_places ? reference.lead[led.n_common] : smallest(reference.lead);
    outcome.answer = std::move(led.answer);
    outcome.same_answer = outcome.answer == reference.answer;
    mark(*question.record, outcome);
    if (logits_out != nullptr) *logits_out = std::move(led.first);
    return outcome;
  }

  // The model's answer without having read anything.
  Outcome floor_of(const Question& question) {
    const blendpp::Prompt prompt =
        make_prompt(model_, plan_.prompt.form, {}, question.record->question);
    const AnswerLimits limits = limits_of(prompt.n_tokens());
    blendpp::FuseOptions options;
    options.policy = BLEND_POLICY_FULL;
    options.reserve_tokens = limits.max_tokens;
    options.cancel = interrupt_token();
    blendpp::Fusion fusion(model_, &store_, prompt, options);
    Outcome outcome;
    outcome.answer = reference_answer(model_, fusion, limits).answer;
    mark(*question.record, outcome);
    return outcome;
  }

  template <typename Progress>
  QuestionResult answer(const Question& question, size_t index, const Progress& progress) {
    QuestionResult result;
    result.record = index;
    recorder_.store(question);
    EvalConfig full;
    full.policy = BLEND_POLICY_FULL;
    const bool own = plan_.reference == nullptr;
    const Reference reference =
        reference_of(own ? model_ : *plan_.reference, question, result.full);
    if (!own) result.full = outcome_of(question, full, reference, nullptr, nullptr);
    if (plan_.floor) result.floor = floor_of(question);
    progress(1);
    std::map<size_t, Logits> unrounded;  // of what others are compared with
    for (const EvalConfig& config : plan_.configs) {
      if (config.unrounded) unrounded[*config.unrounded];
    }
    for (size_t i = 0; i < plan_.configs.size(); ++i) {
      throw_if_interrupted();
      const EvalConfig& config = plan_.configs[i];
      Logits own_logits;
      // With repeats full prefill runs again, so that its line shows how well it repeats itself.
      const bool again = config.policy != BLEND_POLICY_FULL || plan_.repeats > 1;
      Outcome outcome = again ? outcome_of(question, config, reference, &own_logits,
                                           i == plan_.showcase ? &result.trace : nullptr)
                              : result.full;
      if (config.unrounded) {
        outcome.kl_rounding = kl_divergence(unrounded.at(*config.unrounded), own_logits);
      }
      if (const auto kept = unrounded.find(i); kept != unrounded.end()) {
        kept->second = std::move(own_logits);
      }
      result.outcomes.push_back(std::move(outcome));
      progress(i + 2);
    }
    result.telling = is_telling(result);
    return result;
  }

  bool is_telling(const QuestionResult& result) const {
    if (plan_.showcase >= plan_.configs.size()) return false;
    const EvalConfig& showcase = plan_.configs[plan_.showcase];
    bool reuse_is_wrong = false;
    for (size_t i = 0; i < plan_.configs.size(); ++i) {
      const EvalConfig& config = plan_.configs[i];
      reuse_is_wrong =
          reuse_is_wrong || (config.policy == BLEND_POLICY_REUSE &&
                             config.records == showcase.records && !result.outcomes[i].found);
    }
    return result.full.found && result.outcomes[plan_.showcase].found && reuse_is_wrong;
  }

  // Keeping every question's rows would take most of the memory of a long run.
  void keep_few_traces(const Question& question, QuestionResult& result) {
    size_t& kept = result.telling ? kept_telling_ : kept_others_;
    if (kept < kTraces) {
      ++kept;
      result.tokens = question.tokens;
    } else {
      result.trace = {};
    }
  }

  const blendpp::Model& model_;
  const blendpp::Store& store_;
  const EvalPlan& plan_;
  const blendpp::ModelInfo info_;
  Recorder recorder_;
  std::vector<blend_check_layer> checks_;  // of the fuse that is prepared
  size_t kept_telling_ = 0;
  size_t kept_others_ = 0;
};

}  // namespace

std::string config_name(const EvalConfig& config) {
  std::string name =
      config.spec.name.empty() ? name_of(policy_choices(), config.policy) : config.spec.name;
  if (config.tempers()) name += format(" %g:%g", config.ape.temperature, config.ape.scale);
  if (config.keeps_agreement()) name += " fidelity";
  const std::string also =
      config.codec == BLEND_CODEC_DEFAULT ? "" : ", " + name_of(codec_choices(), config.codec);
  if (!config.measures()) return name + also;
  name += " " + name_of(metric_choices(), config.metric);
  if (config.norm != BLEND_NORM_L2) name += " " + name_of(norm_choices(), config.norm);
  if (config.relative) name += " relative";
  if (config.checks > 1) name += format(", %u checks", config.checks);
  if (config.corrected) name += config.guarded ? " corrected" : " unguarded";
  return name + also;
}

std::vector<std::string> fit_ratios(const blendpp::Model& model, const blendpp::Store& store,
                                    const std::vector<Record>& records, EvalPlan& plan) {
  std::vector<std::string> left_out;
  std::vector<EvalConfig> fitted;
  Runner runner(model, store, plan);
  for (EvalConfig config : plan.configs) {
    if (config.flops > 0) {
      config.ratio = runner.ratio_for_budget(records, config);
      if (config.ratio < 0) {
        left_out.push_back(format("%s costs more than %.1f %% of full prefill's FLOPs at ratio 0",
                                  config_name(config).c_str(), 100 * config.flops));
        continue;
      }
    }
    fitted.push_back(std::move(config));
  }
  plan.configs = std::move(fitted);
  return left_out;
}

EvalResult run_eval(const blendpp::Model& model, const blendpp::Store& store,
                    const std::vector<Record>& records, const EvalPlan& plan) {
  return Runner(model, store, plan).run(records);
}

}  // namespace blend_cli

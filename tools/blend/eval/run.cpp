#include "eval/run.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "choices.h"
#include "command.h"
#include "compare.h"
#include "eval/metrics.h"
#include "eval/options.h"
#include "interrupt.h"
#include "progress.h"
#include "question.h"
#include "table.h"

namespace blend_cli {
namespace {

// Questions of each kind whose rows are kept to be drawn.
constexpr size_t kTraces = 3;

using Logits = std::vector<float>;

// ", first chunk exact": what a configuration's name ends in.
std::string also_stored_name(AlsoStored also) {
  switch (also) {
    case AlsoStored::none:
      return "";
    case AlsoStored::first:
      return ", first chunk exact";
    case AlsoStored::neighbors:
      return ", behind neighbors";
  }
  return "";
}

size_t likeliest(const Logits& logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Runs the plan. Used by one thread.
class Runner {
 public:
  Runner(const blendpp::Model& model, const blendpp::Store& store, const EvalPlan& plan)
      : model_(model), store_(store), plan_(plan), info_(model.info()) {
    for (const EvalConfig& config : plan.configs) {
      chunk_prefix(config.chunk_prefix);
      prefixes_of_[config.also_stored].insert(config.chunk_prefix);
      if (config.policy != BLEND_POLICY_FULL) codecs_.insert(config.codec);
    }
    CorpusOptions options;
    options.system = plan.prompt.system;
    system_ = make_corpus(model_, options).prefix;
  }

  EvalResult run(const std::vector<Record>& records) {
    EvalResult result;
    ProgressBar bar("Evaluating");
    const size_t runs = plan_.configs.size() + 1;
    bool warm = false;
    for (size_t i = 0; i < records.size(); ++i) {
      throw_if_interrupted();
      const Question question =
          make_question(model_, records[i], system_, plan_.prompt.question_template);
      if (question.tokens.size() + 1 > info_.context_length) {
        result.skipped.push_back(
            {i, format("the prompt has %zu tokens, the model's context is %u with room for an "
                       "answer",
                       question.tokens.size(), info_.context_length)});
        continue;
      }
      // The first use of each code path pays for what later ones find ready: not measured.
      if (!std::exchange(warm, true)) answer(question, i, [](size_t) {});
      result.questions.push_back(answer(
          question, i, [&](size_t done) { bar.update(i * runs + done, records.size() * runs); }));
      keep_few_traces(question, result.questions.back());
      trim();
    }
    result.sizes = sizes_;
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
      Question question = make_question(model_, record, system_, plan_.prompt.question_template);
      if (question.tokens.size() + 1 > info_.context_length) continue;
      precompute_all(question);
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
        .info()
        .flops;
  }

  const blendpp::Tokens& chunk_prefix(const std::string& spec) {
    const auto it = prefixes_.find(spec);
    if (it != prefixes_.end()) return it->second;
    if (spec == kProfilePrefix) return prefixes_[spec] = plan_.profile->chunk_prefix();
    CorpusOptions options;
    options.chunk_prefix = spec.empty() ? "none" : spec;
    return prefixes_[spec] = make_corpus(model_, options).chunk_prefix;
  }

  // Whose chunks they are: what is stored behind BOS for one configuration must not be the first
  // chunk of another, nor with one codec what is to be read with another. Nobody's where there is
  // one kind only.
  std::string tenant_of(const std::string& prefix, AlsoStored also, uint32_t codec) {
    const std::string kind = kind_of(prefix, also);
    return codecs_.size() > 1 ? name_of(codec_choices(), codec) + ' ' + kind : kind;
  }
  std::string kind_of(const std::string& prefix, AlsoStored also) {
    const std::set<std::string>& once = prefixes_of_[AlsoStored::none];
    if (prefixes_of_[AlsoStored::first].empty() && prefixes_of_[AlsoStored::neighbors].empty() &&
        once.size() <= 2) {
      bool alike = true;  // "" is full prefill's
      for (const std::string& other : once) {
        alike = alike && (other.empty() || chunk_prefix(other) == chunk_prefix(prefix));
      }
      if (alike) return {};
    }
    return "eval" + also_stored_name(also) + ": " + nlohmann::json(chunk_prefix(prefix)).dump();
  }

  void precompute(const blendpp::Tokens& tokens, const blendpp::Tokens& prefix,
                  const std::string& tenant, uint32_t codec) {
    blendpp::PrecomputeOptions options;
    options.codec = codec;
    options.tenant = tenant.c_str();
    options.chunk_prefix = prefix.data();
    options.n_chunk_prefix = prefix.size();
    options.cancel = interrupt_token();
    const auto stored = [&] {
      return codec == BLEND_CODEC_DEFAULT ? 0 : store_.codec_stat(codec).stored_bytes;
    };
    const uint64_t before = stored();
    const blendpp::Precomputed done = model_.precompute(store_, tokens, options);
    if (done.existed) return;
    stored_.push_back(done.id);
    if (codec == BLEND_CODEC_DEFAULT) return;
    CodecSize& size = sizes_[codec];
    size.tokens += tokens.size();
    size.elements +=
        uint64_t{2} * tokens.size() * info_.n_layers * info_.n_kv_heads * info_.head_dim;
    size.stored_bytes += stored() - before;
  }

  void precompute_question(const Question& question, const std::string& spec, AlsoStored also,
                           uint32_t codec) {
    const std::string tenant = tenant_of(spec, also, codec);
    if (!question.system.empty()) precompute(question.system, {}, tenant, codec);
    for (const blendpp::Tokens& chunk : question.chunks) {
      precompute(chunk, chunk_prefix(spec), tenant, codec);
    }
    if (also == AlsoStored::first) {
      precompute(question.chunks.front(), question.system, tenant, codec);
    }
    for (size_t i = 1; also == AlsoStored::neighbors && i < question.chunks.size(); ++i) {
      precompute(question.chunks[i], question.chunks[i - 1], tenant, codec);
    }
  }

  void precompute_all(const Question& question) {
    for (const auto& [also, specs] : prefixes_of_) {
      for (const std::string& spec : specs) {
        if (spec.empty()) continue;  // full prefill stores nothing
        for (const uint32_t codec : codecs_) precompute_question(question, spec, also, codec);
      }
    }
  }

  // Only what this run stored, and only between questions: every fuse finds its chunks.
  void trim() {
    if (plan_.trim_bytes == 0 || store_.stat().bytes <= plan_.trim_bytes) return;
    for (const blendpp::ChunkId& id : std::exchange(stored_, {})) store_.remove(id);
  }

  blendpp::FuseOptions fuse_options(const Question& question, const EvalConfig& config) {
    blendpp::FuseOptions fuse;
    fuse.policy = config.policy;
    if (config.chooses()) fuse.ratio = config.ratio;
    if (config.measures()) {
      fuse.metric = config.metric;
      fuse.norm = config.norm;
      fuse.relative = config.relative ? 1 : 0;
    }
    fuse.terms = config.spec.terms.data();
    fuse.n_terms = config.spec.terms.size();
    fuse.seed = config.seed;
    fuse.ape_temperature = config.ape.temperature;
    fuse.ape_scale = config.ape.scale;
    if (config.checks > 1) {
      checks_ = model_.falling_check_layers(config.ratio, config.check_layer, config.checks);
      fuse.check_layers = checks_.data();
      fuse.n_check_layers = checks_.size();
    }
    fuse.check_layer = config.check_layer;
    if (config.chunk_prefix == kProfilePrefix) {
      fuse.profile = plan_.profile->get();
      fuse.correction = !config.corrected ? BLEND_CORRECTION_OFF
                        : config.guarded  ? BLEND_CORRECTION_ON
                                          : BLEND_CORRECTION_UNGUARDED;
    }
    fuse.reserve_tokens = static_cast<uint32_t>(
        std::min<size_t>(plan_.prompt.max_tokens, info_.context_length - question.tokens.size()));
    const blendpp::Tokens& prefix = chunk_prefix(config.chunk_prefix);
    fuse.chunk_prefix = prefix.data();
    fuse.n_chunk_prefix = prefix.size();
    tenant_ = tenant_of(config.chunk_prefix, config.also_stored, config.codec);
    fuse.tenant = tenant_.c_str();
    fuse.cancel = interrupt_token();
    return fuse;
  }

  std::string generate(blendpp::Fusion& fusion, uint32_t most) const {
    const std::string& stop = plan_.prompt.answer_stop;
    blendpp::GenerateOptions options;
    options.max_tokens = most;
    options.cancel = interrupt_token();
    std::string text;
    fusion.generate(options, [&](int32_t, std::string_view piece) {
      text += piece;
      return stop.empty() || text.find(stop) == std::string::npos;
    });
    return answer_of(text, stop);
  }

  // Fuses and answers. `reference` is full prefill's first logits, null while they are made.
  Outcome outcome_of(const blendpp::Model& model, const Question& question,
                     const EvalConfig& config, const Logits* reference, Logits* logits_out,
                     RowTrace* trace_out) {
    const blendpp::FuseOptions options = fuse_options(question, config);
    std::vector<double> times;
    for (size_t i = 1; i < plan_.repeats; ++i) {
      throw_if_interrupted();
      const blendpp::Fusion fusion(model, &store_, question.prompt, options);
      times.push_back(static_cast<double>(fusion.info().ttft_ns));
    }
    blendpp::Fusion fusion(model, &store_, question.prompt, options);
    const blendpp::FusionInfo info = fusion.info();
    times.push_back(static_cast<double>(info.ttft_ns));

    Outcome outcome;
    outcome.ttft_ns = static_cast<uint64_t>(quantile(times, 0.5));
    outcome.n_rows = info.n_rows;
    outcome.n_rows_reused = info.n_rows_reused;
    outcome.n_rows_selected = info.n_rows_selected;
    outcome.n_rows_always = info.n_rows_always;
    outcome.n_misses = info.n_misses;
    outcome.flops = info.flops;
    outcome.drift_share = info.drift_share;
    RowTrace trace = trace_of(fusion);
    const auto view = fusion.logits();
    Logits logits(view.begin(), view.end());
    outcome.kl = reference == nullptr ? 0 : kl_divergence(*reference, logits);
    outcome.top1_agrees = reference == nullptr || likeliest(*reference) == likeliest(logits);
    outcome.answer = generate(fusion, options.reserve_tokens);
    outcome.exact_match = exact_match(outcome.answer, question.record->answers);
    outcome.f1 = token_f1(outcome.answer, question.record->answers);
    if (logits_out != nullptr) *logits_out = std::move(logits);
    if (trace_out != nullptr) *trace_out = std::move(trace);
    return outcome;
  }

  template <typename Progress>
  QuestionResult answer(const Question& question, size_t index, const Progress& progress) {
    QuestionResult result;
    result.record = index;
    precompute_all(question);
    Logits logits;
    EvalConfig full;
    full.policy = BLEND_POLICY_FULL;
    const bool own = plan_.reference == nullptr;
    const Outcome reference =
        outcome_of(own ? model_ : *plan_.reference, question, full, nullptr, &logits, nullptr);
    result.full = own ? reference : outcome_of(model_, question, full, &logits, nullptr, nullptr);
    result.full.same_answer = result.full.answer == reference.answer;
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
      Outcome outcome = again ? outcome_of(model_, question, config, &logits, &own_logits,
                                           i == plan_.showcase ? &result.trace : nullptr)
                              : result.full;
      outcome.same_answer = outcome.answer == reference.answer;
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
      reuse_is_wrong = reuse_is_wrong || (config.policy == BLEND_POLICY_REUSE &&
                                          config.chunk_prefix == showcase.chunk_prefix &&
                                          !result.outcomes[i].exact_match);
    }
    return result.full.exact_match && result.outcomes[plan_.showcase].exact_match && reuse_is_wrong;
  }

  // Every question's rows would be most of the memory of a long run.
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
  blendpp::Tokens system_;
  std::map<std::string, blendpp::Tokens> prefixes_;          // by their spec
  std::set<uint32_t> codecs_;                                // of the chunks
  std::map<uint32_t, CodecSize> sizes_;                      // of those that were named
  std::map<AlsoStored, std::set<std::string>> prefixes_of_;  // specs of such configurations
  std::string tenant_;                                       // of the fuse that is prepared
  std::vector<blendpp::ChunkId> stored_;                     // by this run
  std::vector<blend_check_layer> checks_;                    // of the fuse that is prepared
  size_t kept_telling_ = 0;
  size_t kept_others_ = 0;
};

}  // namespace

double CodecSize::bytes_per_token() const {
  return tokens == 0 ? 0 : static_cast<double>(stored_bytes) / static_cast<double>(tokens);
}

double CodecSize::bits_per_element() const {
  return elements == 0 ? 0
                       : 8.0 * static_cast<double>(stored_bytes) / static_cast<double>(elements);
}

std::string config_name(const EvalConfig& config) {
  std::string name =
      config.spec.name.empty() ? name_of(policy_choices(), config.policy) : config.spec.name;
  if (config.tempers()) name += format(" %g:%g", config.ape.temperature, config.ape.scale);
  const std::string also =
      also_stored_name(config.also_stored) +
      (config.codec == BLEND_CODEC_DEFAULT ? "" : ", " + name_of(codec_choices(), config.codec));
  if (!config.measures()) return name + also;
  name += " " + name_of(metric_choices(), config.metric);
  if (config.norm != BLEND_NORM_L2) name += " " + name_of(norm_choices(), config.norm);
  if (config.relative) name += " relative";
  if (config.checks > 1) name += format(", %u checks", config.checks);
  if (config.corrected) name += config.guarded ? " corrected" : " unguarded";
  return name + also;
}

std::string answer_of(const std::string& text, const std::string& stop) {
  constexpr const char* kBlank = " \t\r\n";
  std::string answer = stop.empty() ? text : text.substr(0, text.find(stop));
  const size_t first = answer.find_first_not_of(kBlank);
  if (first == std::string::npos) return {};
  return answer.substr(first, answer.find_last_not_of(kBlank) - first + 1);
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

#include "eval_summary.h"

#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "choices.h"
#include "table.h"

namespace blend_cli {
namespace {

using Outcomes = std::vector<const Outcome*>;

std::vector<double> each(const Outcomes& outcomes,
                         const std::function<double(const Outcome&)>& of) {
  std::vector<double> values;
  for (const Outcome* outcome : outcomes) values.push_back(of(*outcome));
  return values;
}

double sum(const Outcomes& outcomes, const std::function<double(const Outcome&)>& of) {
  double total = 0;
  for (const double value : each(outcomes, of)) total += value;
  return total;
}

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

Summary summary_of(const EvalConfig& config, const Outcomes& outcomes, const Outcomes& full,
                   uint64_t seed) {
  const auto n_rows = [](const Outcome& o) { return static_cast<double>(o.n_rows); };
  const auto ttft_ms = [](const Outcome& o) { return static_cast<double>(o.ttft_ns) / 1e6; };
  const auto flops = [](const Outcome& o) { return o.flops; };
  const std::vector<double> matches =
      each(outcomes, [](const Outcome& o) { return o.exact_match ? 1.0 : 0.0; });
  const std::vector<double> f1 = each(outcomes, [](const Outcome& o) { return o.f1; });
  const std::vector<double> kl = each(outcomes, [](const Outcome& o) { return o.kl; });

  Summary s;
  s.config = config;
  s.n = outcomes.size();
  s.exact_match = mean(matches);
  s.exact_match_ci = bootstrap_mean(matches, seed);
  s.f1 = mean(f1);
  s.f1_ci = bootstrap_mean(f1, seed);
  s.kl_mean = mean(kl);
  s.kl_ci = bootstrap_mean(kl, seed);
  s.kl_median = quantile(kl, 0.5);
  s.kl_p95 = quantile(kl, 0.95);
  s.top1_agreement =
      mean(each(outcomes, [](const Outcome& o) { return o.top1_agrees ? 1.0 : 0.0; }));
  s.answer_agreement =
      mean(each(outcomes, [](const Outcome& o) { return o.same_answer ? 1.0 : 0.0; }));
  const double selected =
      sum(outcomes, [](const Outcome& o) { return static_cast<double>(o.n_rows_selected); });
  const double reused =
      sum(outcomes, [](const Outcome& o) { return static_cast<double>(o.n_rows_reused); });
  const double always =
      sum(outcomes, [](const Outcome& o) { return static_cast<double>(o.n_rows_always); });
  s.rows_of_reused = share(selected, reused);
  s.rows_of_all = share(selected + always, sum(outcomes, n_rows));
  s.flops_relative = share(sum(outcomes, flops), sum(full, flops));
  s.ttft_ms_median = quantile(each(outcomes, ttft_ms), 0.5);
  s.ttft_relative = share(s.ttft_ms_median, quantile(each(full, ttft_ms), 0.5));
  for (const Outcome* outcome : outcomes) s.n_misses += outcome->n_misses;
  return s;
}

// How much of what full reuse (with the same chunk prefix) loses a configuration wins back.
void set_recovered(EvalSummary& summary) {
  for (Summary& s : summary.configs) {
    for (const Summary& reuse : summary.configs) {
      const bool base = reuse.config.policy == BLEND_POLICY_REUSE &&
                        reuse.config.chunk_prefix == s.config.chunk_prefix;
      const double lost = summary.full.exact_match - reuse.exact_match;
      if (!base || !s.config.chooses() || lost <= 0) continue;
      s.has_recovered = true;
      s.recovered = (s.exact_match - reuse.exact_match) / lost;
    }
  }
}

std::vector<EvalSummary::Group> groups_of(const std::vector<Record>& records,
                                          const EvalResult& result, size_t n_configs) {
  std::map<std::string, EvalSummary::Group> groups;
  for (const QuestionResult& question : result.questions) {
    const std::string& name = records[question.record].group;
    if (name.empty()) continue;
    EvalSummary::Group& group = groups[name];
    group.name = name;
    group.configs.resize(n_configs);
    ++group.n;
    group.full += question.full.exact_match ? 1 : 0;
    for (size_t i = 0; i < n_configs; ++i) {
      group.configs[i] += question.outcomes[i].exact_match ? 1 : 0;
    }
  }
  std::vector<EvalSummary::Group> out;
  for (auto& [name, group] : groups) {
    const auto n = static_cast<double>(group.n);
    group.full /= n;
    for (double& match : group.configs) match /= n;
    out.push_back(std::move(group));
  }
  return out;
}

std::string percent(double share_of_one) { return format("%.1f", 100.0 * share_of_one); }

void add_row(Table& table, const Summary& s) {
  const bool full = s.config.policy == BLEND_POLICY_FULL;
  table.add({config_name(s.config), full ? "-" : s.config.chunk_prefix,
             s.config.chooses() ? format("%g", s.config.ratio) : "-",
             format("%s [%s, %s]", percent(s.exact_match).c_str(),
                    percent(s.exact_match_ci.low).c_str(), percent(s.exact_match_ci.high).c_str()),
             percent(s.f1), s.has_recovered ? percent(s.recovered) : "-", kl_text(s.kl_mean),
             kl_text(s.kl_median), kl_text(s.kl_p95), percent(s.top1_agreement),
             percent(s.answer_agreement), full ? "-" : percent(s.rows_of_reused),
             percent(s.rows_of_all), percent(s.flops_relative), format("%.2f", s.ttft_ms_median),
             s.ttft_relative > 0 ? format("%.2fx", 1.0 / s.ttft_relative) : "-"});
}

std::string groups_table(const EvalContext& context, const EvalSummary& summary) {
  std::vector<std::string> header = {"EM % by " + context.group_by, "chunk prefix", "ratio"};
  std::vector<std::string> full = {"full", "-", "-"};
  for (const EvalSummary::Group& group : summary.groups) {
    header.push_back(format("%s (%zu)", group.name.c_str(), group.n));
    full.push_back(percent(group.full));
  }
  Table table(header);
  table.add(full);
  for (size_t i = 0; i < summary.configs.size(); ++i) {
    const EvalConfig& config = summary.configs[i].config;
    if (config.policy == BLEND_POLICY_FULL) continue;
    std::vector<std::string> row = {config_name(config), config.chunk_prefix,
                                    config.chooses() ? format("%g", config.ratio) : "-"};
    for (const EvalSummary::Group& group : summary.groups) {
      row.push_back(percent(group.configs[i]));
    }
    table.add(row);
  }
  return table.str();
}

nlohmann::json interval_json(const Interval& interval) { return {interval.low, interval.high}; }

nlohmann::json config_json(const EvalConfig& config) {
  nlohmann::json out = {{"name", config_name(config)}, {"policy", config.policy}};
  out["policy"] =
      config.spec.name.empty() ? name_of(policy_choices(), config.policy) : config.spec.name;
  if (config.measures()) {
    out["metric"] = name_of(metric_choices(), config.metric);
    out["norm"] = name_of(norm_choices(), config.norm);
    out["relative"] = config.relative;
    out["corrected"] = config.corrected;
    out["check_layer"] = config.check_layer;
    out["n_check_layers"] = config.checks;
  }
  if (config.tempers()) {
    out["ape_temperature"] = config.ape.temperature;
    out["ape_scale"] = config.ape.scale;
  }
  if (config.chooses()) out["policy_seed"] = config.seed;
  out["ratio"] = config.ratio;
  if (config.policy != BLEND_POLICY_FULL) out["chunk_prefix"] = config.chunk_prefix;
  return out;
}

nlohmann::json summary_json(const Summary& s) {
  nlohmann::json out = config_json(s.config);
  out.update({{"n", s.n},
              {"exact_match", s.exact_match},
              {"exact_match_ci95", interval_json(s.exact_match_ci)},
              {"f1", s.f1},
              {"f1_ci95", interval_json(s.f1_ci)},
              {"kl_mean", s.kl_mean},
              {"kl_mean_ci95", interval_json(s.kl_ci)},
              {"kl_median", s.kl_median},
              {"kl_p95", s.kl_p95},
              {"top1_agreement", s.top1_agreement},
              {"answer_agreement", s.answer_agreement},
              {"rows_of_reused", s.rows_of_reused},
              {"rows_of_all", s.rows_of_all},
              {"flops_relative", s.flops_relative},
              {"ttft_ms_median", s.ttft_ms_median},
              {"ttft_relative", s.ttft_relative},
              {"n_misses", s.n_misses}});
  out["recovered"] = s.has_recovered ? nlohmann::json(s.recovered) : nlohmann::json();
  return out;
}

nlohmann::json outcome_json(const Outcome& o) {
  return {{"answer", o.answer},
          {"exact_match", o.exact_match},
          {"f1", o.f1},
          {"kl", o.kl},
          {"top1_agrees", o.top1_agrees},
          {"same_answer", o.same_answer},
          {"ttft_ns", o.ttft_ns},
          {"n_rows", o.n_rows},
          {"n_rows_reused", o.n_rows_reused},
          {"n_rows_selected", o.n_rows_selected},
          {"n_rows_always", o.n_rows_always},
          {"n_misses", o.n_misses},
          {"flops", o.flops}};
}

}  // namespace

EvalSummary summarise(const EvalPlan& plan, const std::vector<Record>& records,
                      const EvalResult& result, uint64_t seed) {
  EvalSummary summary;
  Outcomes full;
  for (const QuestionResult& question : result.questions) full.push_back(&question.full);
  EvalConfig reference;
  reference.policy = BLEND_POLICY_FULL;
  reference.ratio = 1;
  summary.full = summary_of(reference, full, full, seed);
  for (size_t i = 0; i < plan.configs.size(); ++i) {
    Outcomes outcomes;
    for (const QuestionResult& question : result.questions) {
      outcomes.push_back(&question.outcomes[i]);
    }
    summary.configs.push_back(summary_of(plan.configs[i], outcomes, full, seed));
  }
  set_recovered(summary);
  summary.groups = groups_of(records, result, plan.configs.size());
  return summary;
}

std::string kl_text(double kl) {
  if (kl == 0) return "0";
  return format(kl >= 0.001 && kl < 1000 ? "%.4f" : "%.1e", kl);
}

std::string summary_table(const EvalContext& context, const EvalSummary& summary,
                          const EvalResult& result) {
  Table table({"policy", "chunk prefix", "ratio", "EM % [95 % CI]", "F1 %", "recovered %",
               "KL mean", "KL median", "KL p95", "top-1 %", "same answer %", "rows % reused",
               "rows % all", "FLOPs %", "TTFT ms", "speed-up"});
  const bool again =
      !summary.configs.empty() && summary.configs[0].config.policy == BLEND_POLICY_FULL;
  if (!again) add_row(table, summary.full);
  for (const Summary& s : summary.configs) add_row(table, s);
  std::string text = table.str();
  if (!summary.groups.empty()) text += '\n' + groups_table(context, summary);
  text += format("\n%zu questions", result.questions.size());
  if (!result.skipped.empty()) {
    text += format(", %zu skipped (longer than the model's context)", result.skipped.size());
  }
  text +=
      ". EM, F1: exact match and token F1. Recovered: of the EM that reuse loses. KL(full || "
      "policy) in\nnats and top-1: of the first answer token. Rows: recomputed by the policy, of "
      "the reused rows; computed, of\nall rows. FLOPs: of full prefill's. TTFT: median, warm "
      "store, loading included.\n";
  return text;
}

nlohmann::json eval_json(const EvalContext& context, const EvalPlan& plan,
                         const std::vector<Record>& records, const EvalResult& result,
                         const EvalSummary& summary) {
  const blendpp::ModelInfo& model = context.model;
  nlohmann::json out = {{"format", "blend-eval-1"}, {"version", blend_version()}};
  out["model"] = {{"path", context.model_path},
                  {"name", context.model_name},
                  {"fingerprint", hex_text(model.fingerprint, sizeof model.fingerprint)},
                  {"n_parameters", model.n_parameters},
                  {"n_layers", model.n_layers}};
  out["data"] = {
      {"path", context.data_path},
      {"n_records", records.size()},
      {"n_questions", result.questions.size()},
      {"limit", context.limit},
      {"shuffle_seed", context.shuffled ? nlohmann::json(context.shuffle_seed) : nlohmann::json()}};
  out["settings"] = {{"question_template", plan.prompt.question_template},
                     {"answer_stop", plan.prompt.answer_stop},
                     {"system", plan.prompt.system},
                     {"max_tokens", plan.prompt.max_tokens},
                     {"repeats", plan.repeats},
                     {"kv_dtype", context.kv_dtype},
                     {"codec", context.codec},
                     {"cache_dtype", context.cache_dtype},
                     {"weights", name_of(weights_choices(), model.weights)},
                     {"reference_weights", context.reference_weights.empty()
                                               ? name_of(weights_choices(), model.weights)
                                               : context.reference_weights},
                     {"threads", context.threads},
                     {"seed", context.seed}};
  out["command"] = context.command;
  out["full"] = summary_json(summary.full);
  out["configs"] = nlohmann::json::array();
  for (const Summary& s : summary.configs) out["configs"].push_back(summary_json(s));

  out["groups"] = nlohmann::json::array();
  for (const EvalSummary::Group& group : summary.groups) {
    // "configs" in the order of "configs" above.
    out["groups"].push_back({{"key", context.group_by},
                             {"name", group.name},
                             {"n", group.n},
                             {"full", group.full},
                             {"configs", group.configs}});
  }

  out["questions"] = nlohmann::json::array();
  for (const QuestionResult& question : result.questions) {
    const Record& record = records[question.record];
    nlohmann::json outcomes = nlohmann::json::array();
    // In the order of "configs".
    for (const Outcome& outcome : question.outcomes) outcomes.push_back(outcome_json(outcome));
    out["questions"].push_back({{"line", record.line},
                                {"question", record.question},
                                {"answers", record.answers},
                                {"n_chunks", record.chunks.size()},
                                {"full", outcome_json(question.full)},
                                {"configs", std::move(outcomes)}});
  }
  out["skipped"] = nlohmann::json::array();
  for (const Skipped& skipped : result.skipped) {
    out["skipped"].push_back({{"line", records[skipped.record].line}, {"reason", skipped.reason}});
  }
  return out;
}

}  // namespace blend_cli

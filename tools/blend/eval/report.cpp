#include "eval/report.h"

#include <nlohmann/json.hpp>

#include "choices.h"
#include "costly_codec.h"
#include "table.h"

namespace blend_cli {
namespace {

std::string percent(double share_of_one) { return format("%.1f", 100.0 * share_of_one); }

std::string with_interval(const std::string& value, const std::string& low,
                          const std::string& high) {
  return value + " [" + low + ", " + high + "]";
}

std::string share_text(double value, const Interval& interval) {
  return with_interval(percent(value), percent(interval.low), percent(interval.high));
}

// The ratio asked for, or the one that the library took.
double ratio_of(const Summary& s) {
  return s.config.keeps_agreement() ? s.rows_of_reused : s.config.ratio;
}

// The first columns of every table.
std::vector<std::string> names_of(const Summary& s) {
  const bool full = s.config.policy == BLEND_POLICY_FULL;
  return {config_name(s.config), full ? "-" : s.config.records,
          s.config.chooses() ? format("%.3g", ratio_of(s)) : "-"};
}

std::vector<std::string> joined(std::vector<std::string> names,
                                const std::vector<std::string>& figures) {
  names.insert(names.end(), figures.begin(), figures.end());
  return names;
}

// Full prefill, the reference, comes first, and only once.
std::vector<const Summary*> lines_of(const EvalSummary& summary) {
  std::vector<const Summary*> lines;
  const bool again =
      !summary.configs.empty() && summary.configs[0].config.policy == BLEND_POLICY_FULL;
  if (!again) lines.push_back(&summary.full);
  for (const Summary& s : summary.configs) lines.push_back(&s);
  return lines;
}

std::string answers_table(const EvalSummary& summary) {
  Table table({"policy", "records", "ratio", "found % [95 % CI]", "- full [95 % CI]", "PGR %",
               "EM %", "F1 %", "same %", "agree %"});
  for (const Summary* s : lines_of(summary)) {
    const bool full = s->config.policy == BLEND_POLICY_FULL;
    table.add(joined(names_of(*s),
                     {share_text(s->found, s->found_ci),
                      full ? "-" : share_text(s->found_difference, s->found_difference_ci),
                      s->pgr ? percent(*s->pgr) : "-", percent(s->exact_match), percent(s->f1),
                      percent(s->answer_agreement), percent(s->token_agreement)}));
  }
  if (summary.floor) {
    const Floor& floor = *summary.floor;
    table.add({"no chunks", "-", "-", share_text(floor.found, floor.found_ci), "-", "-",
               percent(floor.exact_match), percent(floor.f1), "-", "-"});
  }
  return table.str();
}

std::string costs_table(const EvalSummary& summary) {
  Table table({"policy", "records", "ratio", "KL first", "KL of 8 [95 % CI]", "top-1 %", "rows %",
               "FLOPs %", "TTFT ms", "speed-up"});
  for (const Summary* s : lines_of(summary)) {
    table.add(joined(
        names_of(*s),
        {kl_text(s->kl_mean),
         with_interval(kl_text(s->kl8_mean), kl_text(s->kl8_ci.low), kl_text(s->kl8_ci.high)),
         percent(s->top1_agreement), percent(s->rows_of_all), percent(s->flops_relative),
         format("%.2f", s->ttft_ms_median),
         s->ttft_relative > 0 ? format("%.2fx", 1.0 / s->ttft_relative) : "-"}));
  }
  return table.str();
}

std::string groups_table(const EvalContext& context, const EvalSummary& summary) {
  std::vector<std::string> header = {"found % by " + context.group_by, "records", "ratio"};
  std::vector<std::string> full = {"full", "-", "-"};
  for (const EvalSummary::Group& group : summary.groups) {
    header.push_back(format("%s (%zu)", group.name.c_str(), group.n));
    full.push_back(percent(group.full));
  }
  Table table(header);
  table.add(full);
  for (size_t i = 0; i < summary.configs.size(); ++i) {
    if (summary.configs[i].config.policy == BLEND_POLICY_FULL) continue;
    std::vector<std::string> row = names_of(summary.configs[i]);
    for (const EvalSummary::Group& group : summary.groups) {
      row.push_back(percent(group.configs[i]));
    }
    table.add(row);
  }
  return table.str();
}

std::string codecs_table(const EvalSummary& summary) {
  Table table({"codec", "policy", "ratio", "bytes a token", "bits an element", "KL mean",
               "KL of rounding [95 % CI]", "median"});
  for (const Summary& s : summary.configs) {
    if (s.config.codec == BLEND_CODEC_DEFAULT) continue;
    EvalConfig plain = s.config;
    plain.codec = BLEND_CODEC_DEFAULT;
    table.add({name_of(codec_choices(), s.config.codec), config_name(plain),
               s.config.chooses() ? format("%.3g", ratio_of(s)) : "-",
               format("%.0f", s.size.bytes_per_token()), format("%.2f", s.size.bits_per_element()),
               kl_text(s.kl_mean),
               s.config.unrounded ? format("%s [%s, %s]", kl_text(s.kl_rounding_mean).c_str(),
                                           kl_text(s.kl_rounding_ci.low).c_str(),
                                           kl_text(s.kl_rounding_ci.high).c_str())
                                  : "-",
               s.config.unrounded ? kl_text(s.kl_rounding_median) : "-"});
  }
  return table.str();
}

// Of the codecs that round less than the fuse costs, the one with the fewest bits.
std::string cheaper_codec(const EvalSummary& summary, const Summary& costly, double fuse) {
  const Summary* best = nullptr;
  for (const Summary& s : summary.configs) {
    const bool other_way = s.config.unrounded != costly.config.unrounded;
    if (other_way || s.config.codec == BLEND_CODEC_ZSTD || s.kl_rounding_mean > fuse) continue;
    if (best == nullptr || s.size.bits_per_element() < best->size.bits_per_element()) best = &s;
  }
  return best == nullptr ? "" : name_of(codec_choices(), best->config.codec);
}

nlohmann::json interval_json(const Interval& interval) { return {interval.low, interval.high}; }

nlohmann::json config_json(const EvalConfig& config) {
  nlohmann::json out = {{"name", config_name(config)}, {"chooses", config.chooses()}};
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
  if (config.policy != BLEND_POLICY_FULL) out["records"] = config.records;
  if (config.codec != BLEND_CODEC_DEFAULT) out["codec"] = name_of(codec_choices(), config.codec);
  return out;
}

nlohmann::json summary_json(const Summary& s) {
  nlohmann::json out = config_json(s.config);
  out["ratio"] = ratio_of(s);
  out.update({{"n", s.n},
              {"found", s.found},
              {"found_ci95", interval_json(s.found_ci)},
              {"found_difference", s.found_difference},
              {"found_difference_ci95", interval_json(s.found_difference_ci)},
              {"exact_match", s.exact_match},
              {"exact_match_ci95", interval_json(s.exact_match_ci)},
              {"f1", s.f1},
              {"f1_ci95", interval_json(s.f1_ci)},
              {"kl_mean", s.kl_mean},
              {"kl_mean_ci95", interval_json(s.kl_ci)},
              {"kl8_mean", s.kl8_mean},
              {"kl8_mean_ci95", interval_json(s.kl8_ci)},
              {"kl8_median", s.kl8_median},
              {"kl8_difference", s.kl8_difference},
              {"kl8_difference_ci95", interval_json(s.kl8_difference_ci)},
              {"kl_median", s.kl_median},
              {"kl_p95", s.kl_p95},
              {"top1_agreement", s.top1_agreement},
              {"token_agreement", s.token_agreement},
              {"answer_agreement", s.answer_agreement},
              {"rows_of_reused", s.rows_of_reused},
              {"rows_of_all", s.rows_of_all},
              {"flops_relative", s.flops_relative},
              {"ttft_ms_median", s.ttft_ms_median},
              {"ttft_relative", s.ttft_relative},
              {"n_misses", s.n_misses}});
  if (s.config.codec != BLEND_CODEC_DEFAULT) {
    out["bytes_per_token"] = s.size.bytes_per_token();
    out["bits_per_element"] = s.size.bits_per_element();
  }
  if (s.config.unrounded) {
    out["kl_rounding_mean"] = s.kl_rounding_mean;
    out["kl_rounding_mean_ci95"] = interval_json(s.kl_rounding_ci);
    out["kl_rounding_median"] = s.kl_rounding_median;
  }
  out["pgr"] = s.pgr ? nlohmann::json(*s.pgr) : nlohmann::json();
  out["recovered"] = s.has_recovered ? nlohmann::json(s.recovered) : nlohmann::json();
  return out;
}

nlohmann::json outcome_json(const Outcome& o) {
  return {{"answer", o.answer},
          {"found", o.found},
          {"exact_match", o.exact_match},
          {"f1", o.f1},
          {"kl", o.kl},
          {"kl8", o.kl8},
          {"n_places", o.n_places},
          {"n_agree", o.n_agree},
          {"top1_agrees", o.top1_agrees},
          {"n_common", o.n_common},
          {"took_second", o.took_second},
          {"lead", o.lead},
          {"same_answer", o.same_answer},
          {"ttft_ns", o.ttft_ns},
          {"n_rows", o.n_rows},
          {"n_rows_reused", o.n_rows_reused},
          {"n_rows_selected", o.n_rows_selected},
          {"n_rows_always", o.n_rows_always},
          {"n_misses", o.n_misses},
          {"flops", o.flops},
          {"drift_share", o.drift_share},
          {"kl_rounding", o.kl_rounding}};
}

nlohmann::json floor_json(const Outcome& o) {
  return {{"answer", o.answer}, {"found", o.found}, {"exact_match", o.exact_match}, {"f1", o.f1}};
}

}  // namespace

std::vector<std::string> costly_codecs(const EvalSummary& summary) {
  std::vector<std::string> out;
  for (const Summary& s : summary.configs) {
    if (!s.config.unrounded) continue;
    const double fuse = summary.configs[*s.config.unrounded].kl_mean;
    EvalConfig plain = s.config;
    plain.codec = BLEND_CODEC_DEFAULT;
    std::string way = config_name(plain);
    if (s.config.chooses()) way += format(" at ratio %.3g", ratio_of(s));
    way += " (records " + s.config.records + ")";
    const auto said =
        costly_codec_text({name_of(codec_choices(), s.config.codec), way, s.kl_rounding_mean, fuse,
                           cheaper_codec(summary, s, fuse)});
    if (said) out.push_back(*said);
  }
  return out;
}

std::string summary_table(const EvalContext& context, const EvalSummary& summary,
                          const EvalResult& result) {
  std::string text = answers_table(summary) + '\n' + costs_table(summary);
  if (!result.sizes.empty()) text += '\n' + codecs_table(summary);
  for (const std::string& said : costly_codecs(summary)) text += "! " + said + '\n';
  if (!summary.groups.empty()) text += '\n' + groups_table(context, summary);
  text += format("\n%zu questions", result.questions.size());
  if (!result.skipped.empty()) {
    text += format(", %zu skipped (longer than the model's context)", result.skipped.size());
  }
  text +=
      ". Found: a right answer stands in the answer. - full: less full prefill's, question by\n"
      "question. PGR: (found - no chunks) / (full - no chunks). EM, F1: exact match and token F1. "
      "Same: the\nwhole answer is full prefill's. Agree: tokens of full prefill's answer that this "
      "would take too.\nKL(full || policy), nats: of the first answer token, and mean over the "
      "first "
      "eight of full prefill's\nanswer. Rows: computed, of all. FLOPs: of full prefill's. TTFT: "
      "median, warm store, loading included.\n";
  return text;
}

nlohmann::json eval_json(const EvalContext& context, const EvalPlan& plan,
                         const std::vector<Record>& records, const EvalResult& result,
                         const EvalSummary& summary) {
  const blendpp::ModelInfo& model = context.model;
  nlohmann::json out = {{"format", "blend-eval-2"}, {"version", blend_version()}};
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
  const PromptForm& form = plan.prompt.form;
  out["settings"] = {{"question_template", question_template_of(form)},
                     {"answer_stop", plan.prompt.limits.stop},
                     {"system", form.system},
                     {"special", form.special},
                     {"chat", form.chat.wanted},
                     {"chat_template", form.chat.template_file},
                     {"chat_variables", form.chat.variables},
                     {"max_tokens", plan.prompt.limits.max_tokens},
                     {"repeats", plan.repeats},
                     {"kv_dtype", context.kv_dtype},
                     {"codec", context.codec},
                     {"codec_step", context.codec_step},
                     {"layer_steps", context.layer_steps},
                     {"cache_dtype", context.cache_dtype},
                     {"weights", name_of(weights_choices(), model.weights)},
                     {"reference_weights", context.reference_weights.empty()
                                               ? name_of(weights_choices(), model.weights)
                                               : context.reference_weights},
                     {"threads", context.threads},
                     {"seed", context.seed}};
  out["command"] = context.command;
  out["full"] = summary_json(summary.full);
  out["floor"] = nlohmann::json();
  if (summary.floor) {
    out["floor"] = {{"found", summary.floor->found},
                    {"found_ci95", interval_json(summary.floor->found_ci)},
                    {"exact_match", summary.floor->exact_match},
                    {"f1", summary.floor->f1}};
  }
  out["configs"] = nlohmann::json::array();
  for (const Summary& s : summary.configs) out["configs"].push_back(summary_json(s));

  out["costly_codecs"] = costly_codecs(summary);

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
    if (question.floor) out["questions"].back()["floor"] = floor_json(*question.floor);
  }
  out["skipped"] = nlohmann::json::array();
  for (const Skipped& skipped : result.skipped) {
    out["skipped"].push_back({{"line", records[skipped.record].line}, {"reason", skipped.reason}});
  }
  return out;
}

}  // namespace blend_cli

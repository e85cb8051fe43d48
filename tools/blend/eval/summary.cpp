#include "eval/summary.h"

#include <cmath>
#include <functional>
#include <map>

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
  const auto found = [](const Outcome& o) { return o.found ? 1.0 : 0.0; };
  const auto kl8 = [](const Outcome& o) { return o.kl8; };
  const std::vector<double> finds = each(outcomes, found);
  const std::vector<double> kl8s = each(outcomes, kl8);
  const std::vector<double> matches =
      each(outcomes, [](const Outcome& o) { return o.exact_match ? 1.0 : 0.0; });
  const std::vector<double> f1 = each(outcomes, [](const Outcome& o) { return o.f1; });
  const std::vector<double> kl = each(outcomes, [](const Outcome& o) { return o.kl; });

  Summary s;
  s.config = config;
  s.n = outcomes.size();
  s.found = mean(finds);
  s.found_ci = bootstrap_mean(finds, seed);
  s.found_difference = s.found - mean(each(full, found));
  s.found_difference_ci = bootstrap_difference(finds, each(full, found), seed);
  s.kl8_mean = mean(kl8s);
  s.kl8_ci = bootstrap_mean(kl8s, seed);
  s.kl8_median = quantile(kl8s, 0.5);
  s.kl8_difference = s.kl8_mean - mean(each(full, kl8));
  s.kl8_difference_ci = bootstrap_difference(kl8s, each(full, kl8), seed);
  s.token_agreement =
      share(sum(outcomes, [](const Outcome& o) { return static_cast<double>(o.n_agree); }),
            sum(outcomes, [](const Outcome& o) { return static_cast<double>(o.n_places); }));
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
  if (config.unrounded) {
    const auto rounding = each(outcomes, [](const Outcome& o) { return o.kl_rounding; });
    s.kl_rounding_mean = mean(rounding);
    s.kl_rounding_ci = bootstrap_mean(rounding, seed);
    s.kl_rounding_median = quantile(rounding, 0.5);
  }
  return s;
}

// Share of full reuse's loss (with the same kind of record) that a configuration wins back.
void set_recovered(EvalSummary& summary) {
  for (Summary& s : summary.configs) {
    for (const Summary& reuse : summary.configs) {
      const bool base = reuse.config.policy == BLEND_POLICY_REUSE &&
                        reuse.config.records == s.config.records &&
                        reuse.config.codec == s.config.codec;
      const double lost = summary.full.exact_match - reuse.exact_match;
      if (!base || !s.config.chooses() || lost <= 0) continue;
      s.has_recovered = true;
      s.recovered = (s.exact_match - reuse.exact_match) / lost;
    }
  }
}

void set_floor(const EvalResult& result, uint64_t seed, EvalSummary& summary) {
  Outcomes floors;
  for (const QuestionResult& question : result.questions) {
    if (question.floor) floors.push_back(&*question.floor);
  }
  if (floors.empty()) return;
  const std::vector<double> finds =
      each(floors, [](const Outcome& o) { return o.found ? 1.0 : 0.0; });
  Floor& floor = summary.floor.emplace();
  floor.found = mean(finds);
  floor.found_ci = bootstrap_mean(finds, seed);
  floor.exact_match =
      mean(each(floors, [](const Outcome& o) { return o.exact_match ? 1.0 : 0.0; }));
  floor.f1 = mean(each(floors, [](const Outcome& o) { return o.f1; }));
  for (Summary& s : summary.configs) {
    s.pgr = performance_gap_recovered(s.found, floor.found, summary.full.found);
  }
  summary.full.pgr = performance_gap_recovered(summary.full.found, floor.found, summary.full.found);
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
    group.full += question.full.found ? 1 : 0;
    for (size_t i = 0; i < n_configs; ++i) {
      group.configs[i] += question.outcomes[i].found ? 1 : 0;
    }
  }
  std::vector<EvalSummary::Group> out;
  for (auto& [name, group] : groups) {
    const auto n = static_cast<double>(group.n);
    group.full /= n;
    for (double& found : group.configs) found /= n;
    out.push_back(std::move(group));
  }
  return out;
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
    const auto size = result.sizes.find(plan.configs[i].codec);
    if (size != result.sizes.end()) summary.configs.back().size = size->second;
  }
  set_recovered(summary);
  set_floor(result, seed, summary);
  summary.groups = groups_of(records, result, plan.configs.size());
  return summary;
}

}  // namespace blend_cli

#include "compare.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "choices.h"
#include "interrupt.h"
#include "report.h"
#include "table.h"

namespace blend_cli {
namespace {

using Logits = std::vector<float>;

Logits logits_of(const blendpp::Fusion& fusion) {
  const auto view = fusion.logits();
  return {view.begin(), view.end()};
}

int32_t likeliest(const Logits& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double log_sum_exp(const Logits& logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  return top + std::log(sum);
}

struct Run {
  uint64_t ttft_ns = 0;
  blendpp::Tokens answer;      // greedy, or the one it was led along
  std::vector<Logits> logits;  // before each token of the answer; at least the first
};

// Full prefill and full reuse choose no rows, and report an error when told how to.
void forget_choice(blendpp::FuseOptions& options) {
  options.selection.check_layers = nullptr;
  options.selection.n_check_layers = 0;
  options.selection.terms = nullptr;
  options.selection.n_terms = 0;
}

// Fuses and answers: greedily when `lead` is null, otherwise along it.
Run answer(const blendpp::Model& model, const blendpp::Store& store, const blendpp::Prompt& prompt,
           const blendpp::FuseOptions& options, size_t max_tokens, const blendpp::Tokens* lead) {
  blendpp::Fusion fusion(model, &store, prompt, options);
  Run run;
  run.ttft_ns = fusion.report().ttft_ns;
  run.logits.push_back(logits_of(fusion));
  const int32_t eos = model.info().eos_token;
  const size_t most = lead == nullptr ? max_tokens : lead->size();
  while (run.answer.size() < most) {
    throw_if_interrupted();
    const int32_t token =
        lead == nullptr ? likeliest(run.logits.back()) : (*lead)[run.answer.size()];
    if (lead == nullptr && token == eos) break;
    run.answer.push_back(token);
    if (run.answer.size() == most) break;
    fusion.decode({token}, interrupt_token());
    run.logits.push_back(logits_of(fusion));
  }
  return run;
}

}  // namespace

double kl_divergence(const std::vector<float>& p_logits, const std::vector<float>& q_logits) {
  const double p_norm = log_sum_exp(p_logits);
  const double q_norm = log_sum_exp(q_logits);
  double kl = 0;
  for (size_t i = 0; i < p_logits.size(); ++i) {
    const double log_p = p_logits[i] - p_norm;
    kl += std::exp(log_p) * (log_p - (q_logits[i] - q_norm));
  }
  return std::max(kl, 0.0);  // rounding can make it negative for equal distributions
}

Comparison compare(const blendpp::Model& model, const blendpp::Store& store,
                   const blendpp::Prompt& prompt, const blendpp::FuseOptions& options,
                   size_t max_tokens) {
  blendpp::FuseOptions full_options = options;
  full_options.policy = BLEND_POLICY_FULL;
  forget_choice(full_options);
  const Run full = answer(model, store, prompt, full_options, max_tokens, nullptr);
  const Run full_again = answer(model, store, prompt, full_options, 0, nullptr);
  const uint64_t full_ns = std::min(full.ttft_ns, full_again.ttft_ns);

  Comparison comparison;
  Comparison::Row reference;
  reference.policy = "full";
  reference.ttft_ns = full_ns;
  reference.speedup = 1;
  reference.n_agree = reference.n_places = full.logits.size();
  reference.answer = model.detokenize(full.answer);
  reference.same_answer = true;
  comparison.rows.push_back(reference);

  std::vector<uint32_t> policies = {BLEND_POLICY_REUSE};
  if (options.policy != BLEND_POLICY_FULL && options.policy != BLEND_POLICY_REUSE) {
    policies.push_back(options.policy);
  }
  for (const uint32_t policy : policies) {
    blendpp::FuseOptions policy_options = options;
    policy_options.policy = policy;
    policy_options.on_untrusted = BLEND_ON_UNTRUSTED_FUSE;  // its cost is measured here
    if (policy == BLEND_POLICY_REUSE) forget_choice(policy_options);
    const Run own = answer(model, store, prompt, policy_options, max_tokens, nullptr);
    const Run led = answer(model, store, prompt, policy_options, max_tokens, &full.answer);
    Comparison::Row row;
    row.policy = policy_name(policy);
    row.ttft_ns = std::min(own.ttft_ns, led.ttft_ns);
    row.speedup =
        row.ttft_ns == 0 ? 0 : static_cast<double>(full_ns) / static_cast<double>(row.ttft_ns);
    row.n_places = std::min(full.logits.size(), led.logits.size());
    for (size_t i = 0; i < row.n_places; ++i) {
      row.kl_mean +=
          kl_divergence(full.logits[i], led.logits[i]) / static_cast<double>(row.n_places);
      row.n_agree += likeliest(full.logits[i]) == likeliest(led.logits[i]) ? 1 : 0;
    }
    row.kl_first = kl_divergence(full.logits[0], led.logits[0]);
    row.answer = model.detokenize(own.answer);
    row.same_answer = own.answer == full.answer;
    comparison.rows.push_back(std::move(row));
  }
  return comparison;
}

std::string comparison_text(const Comparison& comparison) {
  Table table({"policy", "TTFT", "speed-up", "KL first", "KL mean", "top-1", "greedy answer"});
  for (const Comparison::Row& row : comparison.rows) {
    table.add({row.policy, ms_text(row.ttft_ns), format("%.2fx", row.speedup),
               format("%.2e", row.kl_first), format("%.2e", row.kl_mean),
               format("%zu/%zu", row.n_agree, row.n_places),
               row.same_answer ? "as full prefill" : "differs"});
  }
  std::string text = table.str();
  text +=
      "KL(full || policy) in nats of the next-token distribution, along full prefill's answer.\n";
  for (const Comparison::Row& row : comparison.rows) {
    text += '\n' + row.policy + ":\n" + row.answer + '\n';
  }
  return text;
}

nlohmann::json comparison_json(const Comparison& comparison) {
  nlohmann::json out = nlohmann::json::array();
  for (const Comparison::Row& row : comparison.rows) {
    out.push_back({{"policy", row.policy},
                   {"ttft_ns", row.ttft_ns},
                   {"speedup", row.speedup},
                   {"kl_first", row.kl_first},
                   {"kl_mean", row.kl_mean},
                   {"n_agree", row.n_agree},
                   {"n_places", row.n_places},
                   {"answer", row.answer},
                   {"same_answer", row.same_answer}});
  }
  return out;
}

}  // namespace blend_cli

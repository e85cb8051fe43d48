#include "eval/options.h"

#include <algorithm>
#include <cmath>

#include "choices.h"
#include "command.h"

namespace blend_cli {
namespace {

template <typename T>
std::vector<T> without_duplicates(const std::vector<T>& values) {
  std::vector<T> out;
  for (const T& value : values) {
    if (std::find(out.begin(), out.end(), value) == out.end()) out.push_back(value);
  }
  return out;
}

}  // namespace

std::vector<EvalConfig> make_configs(const std::vector<std::string>& policies,
                                     const std::vector<std::string>& metrics,
                                     const std::vector<double>& ratios,
                                     const std::vector<std::string>& records, uint32_t check_layer,
                                     const EvalSelection& selection) {
  const auto asked = [&](const char* policy) {
    return std::find(policies.begin(), policies.end(), policy) != policies.end();
  };
  std::vector<double> sorted = ratios;
  std::sort(sorted.begin(), sorted.end());
  std::vector<EvalConfig> configs;
  // One policy with one metric and number of check layers at every ratio.
  const auto add_ratios = [&](EvalConfig config) {
    for (const double ratio : without_duplicates(sorted)) {
      config.ratio = ratio;
      configs.push_back(config);
    }
  };
  // At every metric and number of check layers, where those mean something.
  const auto add_measures = [&](EvalConfig config) {
    if (!config.chooses()) {
      configs.push_back(config);
      return;
    }
    if (!config.measures()) {
      add_ratios(config);
      return;
    }
    config.norm = selection.norm;
    config.relative = selection.relative;
    std::vector<uint32_t> codes;
    for (const std::string& metric : metrics) {
      const uint32_t code = value_of(metric_choices(), metric);
      codes.push_back(config.spec.weighs() ? code : code & BLEND_METRIC_KV);
    }
    for (const uint32_t code : without_duplicates(codes)) {
      config.metric = code;
      for (const uint32_t checks : without_duplicates(selection.checks)) {
        // The cascade has two of its own.
        if (checks > 1 && config.spec.cascades()) continue;
        config.checks = checks;
        add_ratios(config);
      }
    }
  };
  if (asked("full")) configs.push_back({BLEND_POLICY_FULL, 0, 1, check_layer, ""});
  for (const std::string& kind : without_duplicates(records)) {
    if (asked("reuse")) configs.push_back({BLEND_POLICY_REUSE, 0, 0, check_layer, kind});
    for (const std::string& policy : without_duplicates(policies)) {
      EvalConfig config;
      config.spec = parse_policy(policy);
      config.policy = config.spec.policy;
      config.check_layer = check_layer;
      config.records = kind;
      config.seed = selection.seed;
      if (config.policy == BLEND_POLICY_FULL || config.policy == BLEND_POLICY_REUSE) continue;
      for (const ApeSetting& ape : without_duplicates(selection.ape)) {
        if (config.tempers()) config.ape = ape;
        add_measures(config);
        if (!config.tempers()) break;
      }
    }
  }
  return configs;
}

std::vector<EvalConfig> with_codecs(const std::vector<EvalConfig>& configs,
                                    const std::vector<std::string>& codecs) {
  if (codecs.empty()) return configs;
  std::vector<EvalConfig> out;
  for (const EvalConfig& config : configs) {
    std::optional<size_t> unrounded;
    for (const std::string& codec : without_duplicates(codecs)) {
      out.push_back(config);
      if (config.policy == BLEND_POLICY_FULL) break;
      out.back().codec = value_of(codec_choices(), codec);
      out.back().unrounded = unrounded;
      const bool lossless = codec == "none" || codec == "zstd";
      if (lossless && !unrounded) unrounded = out.size() - 1;
    }
  }
  return out;
}

std::vector<EvalConfig> with_budgets(const std::vector<EvalConfig>& configs,
                                     const std::vector<double>& budgets) {
  std::vector<EvalConfig> out;
  std::vector<std::string> seen;  // those that differ by ratio alone count once
  for (const EvalConfig& config : configs) {
    if (!config.chooses()) {
      out.push_back(config);
      continue;
    }
    const std::string name = config.records + ' ' + config_name(config);
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) continue;
    seen.push_back(name);
    for (const double budget : without_duplicates(budgets)) {
      out.push_back(config);
      out.back().flops = budget;
    }
  }
  return out;
}

void add_profile_configs(const blendpp::Profile& profile, const std::vector<std::string>& policies,
                         std::vector<double> ratios, bool unguarded,
                         std::vector<EvalConfig>& configs) {
  const blendpp::ProfileInfo info = profile.info();
  const auto add = [&](const std::string& policy) {
    std::sort(ratios.begin(), ratios.end());
    EvalConfig config;
    config.spec = parse_policy(policy);
    config.policy = config.spec.policy;
    config.metric = config.spec.weighs() ? info.metric : info.metric & BLEND_METRIC_KV;
    config.check_layer = info.check_layer;
    config.records = kProfileRecords;
    for (const bool corrected : {false, true}) {
      if (corrected && info.drift_inputs == 0) continue;
      config.corrected = corrected;
      for (const bool guarded : {false, true}) {
        if (!guarded && (!corrected || !unguarded)) continue;
        config.guarded = guarded;
        for (const double ratio : without_duplicates(ratios)) {
          config.ratio = ratio;
          configs.push_back(config);
        }
      }
    }
  };
  for (const std::string& policy : without_duplicates(policies)) {
    const PolicySpec spec = parse_policy(policy);
    if (spec.measures() && spec.policy != BLEND_POLICY_HKVD) add(policy);
  }
  ratios.push_back(info.ratio);
  add("hkvd");
}

size_t showcase_of(const std::vector<EvalConfig>& configs) {
  constexpr double kUsual = 0.15;
  size_t best = configs.size();
  for (size_t i = 0; i < configs.size(); ++i) {
    if (configs[i].policy != BLEND_POLICY_HKVD || configs[i].checks > 1) continue;
    if (best == configs.size() ||
        std::abs(configs[i].ratio - kUsual) < std::abs(configs[best].ratio - kUsual)) {
      best = i;
    }
  }
  return best;
}

size_t headline_of(const std::vector<EvalConfig>& configs) {
  constexpr double kUsual = 0.2;
  const auto in_context = [](const EvalConfig& c) {
    const RecordKind kind = parse_record_kind(c.records);
    return kind.contextual() || kind.is == RecordKind::Is::predecessor;
  };
  const auto distance = [&](const EvalConfig& c) {
    const double ratio = c.keeps_agreement() ? 0 : 1 + std::abs(c.ratio - kUsual);
    return std::pair(ratio, !in_context(c));
  };
  size_t best = configs.size();
  for (size_t i = 0; i < configs.size(); ++i) {
    if (configs[i].policy != BLEND_POLICY_ATTENTION) continue;
    if (best == configs.size() || distance(configs[i]) < distance(configs[best])) best = i;
  }
  return best;
}

std::string shell_command(const std::vector<std::string>& arguments) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,:=+@%";
  std::string out;
  for (const std::string& argument : arguments) {
    if (!out.empty()) out += ' ';
    if (!argument.empty() && argument.find_first_not_of(kPlain) == std::string::npos) {
      out += argument;
      continue;
    }
    out += '\'';
    for (const char c : argument) out += c == '\'' ? "'\\''" : std::string(1, c);
    out += '\'';
  }
  return out;
}

}  // namespace blend_cli

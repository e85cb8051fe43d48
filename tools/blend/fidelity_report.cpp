#include "fidelity_report.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "choices.h"
#include "command.h"
#include "report.h"
#include "table.h"

namespace blend_cli {
namespace {

using ull = unsigned long long;

std::string model_name(const blendpp::FidelityRow& row) {
  std::string hex;
  for (size_t i = 0; i < 8; ++i) hex += format("%02x", row.fingerprint[i]);
  return hex;
}

// Short ones reuse fewer than 800 rows.
const char* prompts_text(const blendpp::FidelityRow& row) {
  return row.short_prompts != 0 ? "short" : "long";
}

}  // namespace

std::vector<blendpp::FidelityRow> fidelity_rows(const blendpp::Store& store) {
  std::vector<blendpp::FidelityRow> rows;
  store.fidelity([&](const blendpp::FidelityRow& row) {
    rows.push_back(row);
    return true;
  });
  return rows;
}

std::string fidelity_text(const std::vector<blendpp::FidelityRow>& rows) {
  if (rows.empty()) return {};
  Table table({"model", "policy", "records", "prompts", "ratio", "answers", "tokens", "agree",
               "95 %", "identical", "KL", "in force"});
  for (const blendpp::FidelityRow& r : rows) {
    const bool seen = r.n_checks > 0;
    table.add({model_name(r), policy_name(r.policy), record_text(r.record), prompts_text(r),
               format("%g", r.ratio), std::to_string(r.n_checks), std::to_string(r.n_tokens),
               seen ? format("%.4f", r.agreement) : "",
               seen ? format("%.4f .. %.4f", r.agreement_low, r.agreement_high) : "",
               seen ? format("%.2f", r.identical) : "", seen ? format("%.2g", r.mean_kl) : "",
               r.in_force != 0 ? "yes" : ""});
  }
  return "\nanswers checked against full prefill\n" + table.str();
}

nlohmann::json fidelity_json(const std::vector<blendpp::FidelityRow>& rows) {
  nlohmann::json out = nlohmann::json::array();
  for (const blendpp::FidelityRow& r : rows) {
    nlohmann::json one = {{"model", model_name(r)},
                          {"policy", policy_name(r.policy)},
                          {"record", record_text(r.record)},
                          {"prompts", prompts_text(r)},
                          {"ratio", r.ratio},
                          {"ratio_now", r.ratio_now},
                          {"n_checks", r.n_checks},
                          {"n_tokens", r.n_tokens},
                          {"in_force", r.in_force != 0}};
    if (r.n_checks > 0) {
      one["agreement"] = r.agreement;
      one["agreement_95"] = {r.agreement_low, r.agreement_high};
      one["identical"] = r.identical;
      one["mean_kl"] = r.mean_kl;
    }
    out.push_back(std::move(one));
  }
  return out;
}

std::string fidelity_metrics(const std::vector<blendpp::FidelityRow>& rows) {
  std::ostringstream out;
  out.precision(15);
  const auto figure = [&](const char* name, const char* type, const char* help, auto value) {
    bool first = true;
    for (const blendpp::FidelityRow& r : rows) {
      if (r.n_checks == 0) continue;
      if (first)
        out << "# HELP " << name << ' ' << help << "\n# TYPE " << name << ' ' << type << '\n';
      first = false;
      out << name << "{model=\"" << model_name(r) << "\",policy=\"" << policy_name(r.policy)
          << "\",record=\"" << record_text(r.record) << "\",prompts=\"" << prompts_text(r)
          << "\",ratio=\"" << format("%g", r.ratio) << "\"} " << value(r) << '\n';
    }
  };
  using Row = blendpp::FidelityRow;
  figure("blend_checked_answers_total", "counter", "Answers compared with full prefill.",
         [](const Row& r) { return r.n_checks; });
  figure("blend_checked_tokens_total", "counter", "Their tokens.",
         [](const Row& r) { return r.n_tokens; });
  figure("blend_agreement", "gauge",
         "Share of the tokens at which full prefill prefers the same; later answers count more.",
         [](const Row& r) { return r.agreement; });
  figure("blend_agreement_low", "gauge", "Lower end of its 95 % interval.",
         [](const Row& r) { return r.agreement_low; });
  figure("blend_agreement_high", "gauge", "Upper end of its 95 % interval.",
         [](const Row& r) { return r.agreement_high; });
  figure("blend_fidelity_kl", "gauge", "Mean KL from full prefill over the first tokens.",
         [](const Row& r) { return r.mean_kl; });
  figure("blend_ratio_in_force", "gauge", "1: the ratio that keeps the default target now.",
         [](const Row& r) { return r.in_force; });
  return out.str();
}

}  // namespace blend_cli

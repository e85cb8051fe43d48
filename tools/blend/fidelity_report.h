// How often answers agree with full prefill, for people, programs and Prometheus.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "blend/blend.hpp"

namespace blend_cli {

// One row for each model, policy, record and ratio, for the default target.
std::vector<blendpp::FidelityRow> fidelity_rows(const blendpp::Store& store);
// A line for each; "" where no answer was checked.
std::string fidelity_text(const std::vector<blendpp::FidelityRow>& rows);
nlohmann::json fidelity_json(const std::vector<blendpp::FidelityRow>& rows);
// In the format of blendpp::Store::metrics().
std::string fidelity_metrics(const std::vector<blendpp::FidelityRow>& rows);

}  // namespace blend_cli

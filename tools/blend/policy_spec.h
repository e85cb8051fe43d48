// Policies as the command line names them: one, or several joined by "+", each with its share of
// the budget after a colon ("hkvd:0.7+first_k:0.3"; without one, equal shares).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "blend/blend.hpp"

namespace blend_cli {

struct PolicySpec {
  std::string name;  // as it was given
  uint32_t policy = BLEND_POLICY_HKVD;
  std::vector<blend_policy_term> terms;  // of BLEND_POLICY_UNION

  // Chooses rows to recompute: everything but full, reuse and ape.
  bool chooses() const;
  // Attends to the other rows of chunks with APE's temperature and scale.
  bool tempers() const;
  // Looks at deviations, so metric, norm and check layers mean something.
  bool measures() const;
  bool cascades() const;  // it, or one of its terms, is the cascade
  // Ranks by deviation in a way that may be weighed by the attention to a row
  // (BLEND_METRIC_V_WEIGHED).
  bool weighs() const;
};

// Throws CommandError (usage).
PolicySpec parse_policy(const std::string& text);
// A sentence if `text` is not a policy, otherwise "" (a CLI11 check).
std::string check_policy(const std::string& text);
// "auto, hkvd, ...; for comparison: first_k, ..." for help.
std::string policy_names();

// APE's temperature and scale, as "0.9:0.8". Throws CommandError (usage).
struct ApeSetting {
  double temperature = 0.9;
  double scale = 0.9;
  bool operator==(const ApeSetting&) const = default;
};
ApeSetting parse_ape(const std::string& text);
std::string check_ape(const std::string& text);

// Check layers as the command line gives them: "1:0.3,4:0.2". Throws CommandError (usage).
std::vector<blend_check_layer> parse_check_layers(const std::string& text);
std::string check_check_layers(const std::string& text);

}  // namespace blend_cli

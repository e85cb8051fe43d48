// What `blend eval` can be asked on its command line, beyond what every subcommand takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/run.h"

namespace blend_cli {

// How rows are chosen, beside policy, metric and ratio.
struct EvalSelection {
  uint32_t norm = BLEND_NORM_L2;
  bool relative = false;
  std::vector<uint32_t> checks = {1};  // numbers of check layers
  uint64_t seed = 0;
  std::vector<ApeSetting> ape = {ApeSetting{}};  // that ape is tried with
};

// The configurations that lists of choices stand for, in reading order: full prefill, then
// for each kind of record full reuse and each policy's ratios, smallest first; those that measure
// by each metric and number of check layers, ape by each setting. Duplicates are dropped.
std::vector<EvalConfig> make_configs(const std::vector<std::string>& policies,
                                     const std::vector<std::string>& metrics,
                                     const std::vector<double>& ratios,
                                     const std::vector<std::string>& records, uint32_t check_layer,
                                     const EvalSelection& selection = {});
// Each with every codec, one after the other; full prefill stores nothing.
std::vector<EvalConfig> with_codecs(const std::vector<EvalConfig>& configs,
                                    const std::vector<std::string>& codecs);
// The same with budgets of FLOPs, shares of full prefill's, instead of ratios (fit_ratios()).
std::vector<EvalConfig> with_budgets(const std::vector<EvalConfig>& configs,
                                     const std::vector<double>& budgets);

// Adds the profile's own way of fusing, plain and (where it has maps) corrected, at the ratios and
// at its own; and those of `policies` that measure at the check layer, at the ratios.
// unguarded: corrected without the guard as well.
void add_profile_configs(const blendpp::Profile& profile, const std::vector<std::string>& policies,
                         std::vector<double> ratios, bool unguarded,
                         std::vector<EvalConfig>& configs);

// The configuration whose rows the report shows: HKVD with one check layer at the ratio nearest to
// 15 %, the first of the metrics and kinds of record. configs.size() if there is none.
size_t showcase_of(const std::vector<EvalConfig>& configs);
// The one whose figures the report begins with: the policy that a fuse takes by itself, first at
// the ratio that it takes, then at the one nearest to 20 %; chunks in context before others.
// configs.size() if that policy was not measured.
size_t headline_of(const std::vector<EvalConfig>& configs);

// A command line that a shell reads as `arguments`.
std::string shell_command(const std::vector<std::string>& arguments);

}  // namespace blend_cli

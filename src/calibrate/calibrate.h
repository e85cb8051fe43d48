// Calibrate: from sample prompts to a profile; verify: from other prompts to a verdict on it.
//
// For each chunk prefix the drift maps are fitted on one half of the prompts (the first, third,
// ...) and everything is measured on the other half: each check layer, policy, metric and ratio,
// plain and corrected. The choice is the cheapest, by FLOPs, that keeps the limits with a margin:
// the bounds of the 95 % intervals must keep them. For the chosen chunk prefix the layers'
// scales are found (layer_steps.h), and what
// each codec costs beside the fuse itself (codec_costs.h).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "calibrate/drift_fit.h"
#include "calibrate/measure.h"
#include "engine/model.h"
#include "profile/profile.h"

namespace blend {

// Called as soon as a line of the table is measured; a failure stops the work.
using MeasurementFn = std::function<Status(const Measurement&)>;

struct CalibrateOptions {
  std::vector<std::vector<int32_t>> prefixes = {{}};  // what chunks are prefilled after
  // hkvd, cascade and attention; the latter two only where every sample ends with a question and
  // the model has layers to ask.
  std::vector<Policy> policies = {Policy::attention, Policy::hkvd};
  std::vector<RowMetric> metrics = {{DeviationMetric::v, true}};
  std::vector<double> ratios = {0, 0.05, 0.1, 0.15, 0.2, 0.3};
  std::vector<uint32_t> check_layers = {1};
  DType kv_dtype = DType::f16;
  bool corrects = true;  // fit and measure the drift correction
  DriftInputs inputs = {true, true};
  uint32_t rank = 0;  // of the drift maps; 0: full matrices
  // Rank of the maps of stored rows, which are most of the rows; 0: an eighth of their outputs, at
  // most 64.
  uint32_t stored_rank = 0;
  double ridge = kRidgeAuto;
  uint32_t score_tokens = 16;
  double max_kl = 0.02;    // limits of trust: mean KL in nats,
  double min_top1 = 0.95;  // share of likeliest tokens that agree
  // Samples to fit the layers' scales on, and as many to judge them on, at most (layer_steps.h):
  // the costs of layers differ by orders of magnitude, or do not matter. 0: all layers alike.
  uint64_t step_samples = 32;
  uint32_t n_contexts = 0;  // of the chunks' records (sample_records.h); 0: after the prefix alone
  uint64_t codec_samples = 16;  // measured samples, at most, that codecs are judged on
  MeasurementFn on_measurement;
};

// Progress counts prefills and fuses. INVALID_ARGUMENT names the sample or option.
Result<Profile> calibrate(const std::shared_ptr<const Model>& model,
                          const std::vector<Sample>& samples, const CalibrateOptions& options,
                          const Watch& watch);

struct VerifyOptions {
  std::vector<double> ratios;  // besides the profile's own
  uint32_t score_tokens = 16;
  double max_kl = 0.02;
  double min_top1 = 0.95;
  MeasurementFn on_measurement;
};

struct Verdict {
  bool trusted = false;     // the profile's ratio keeps the limits on these prompts
  double least_ratio = -1;  // of those measured, from which on all keep them; -1: none
  Measurement at_ratio;     // at the profile's ratio
  std::vector<Measurement> table;
};

// A profile's maps, ready for a fuse; null where it has none.
struct ProfileMaps {
  std::shared_ptr<const Drift> check;
  std::shared_ptr<const Drift> stored;
};

// Measures the profile's choice on `samples`.
Result<Verdict> verify(const std::shared_ptr<const Model>& model, const Profile& profile,
                       const ProfileMaps& maps, const std::vector<Sample>& samples,
                       const VerifyOptions& options, const Watch& watch);

}  // namespace blend

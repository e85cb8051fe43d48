// Measure: how far fused distributions are from full prefill's, over sample prompts.
//
// Each prompt is prefilled in full and answered greedily; then it is fused in every setting and
// decoded along that answer, and at each of its tokens the two next-token distributions are
// compared: KL(full || fused) and whether their likeliest tokens agree.
#pragma once

#include <span>
#include <vector>

#include "fusion/run/fuse.h"
#include "profile/profile.h"

namespace blend {

class SampleRecords;

// A prompt to calibrate with: segments with their tokens.
using Sample = std::vector<Segment>;

// One kind of fusing.
struct Setting {
  Policy policy = Policy::hkvd;  // or cascade or attention
  RowMetric metric;
  double ratio = 0;
  std::shared_ptr<const Drift> drift = {};         // null: plain
  std::shared_ptr<const Drift> stored_drift = {};  // of rows left out before layer 0
};

struct MeasureOptions {
  std::vector<int32_t> chunk_prefix;
  uint32_t check_layer = 1;
  DType kv_dtype = DType::f16;
  uint32_t score_tokens = 1;         // most answer tokens; fewer where EOS comes sooner
  SampleRecords* records = nullptr;  // null: chunks after the prefix alone
};

// sum over t of p(t) (log p(t) - log q(t)) of two rows of logits of the same length, in nats.
double kl_divergence(std::span<const float> p, std::span<const float> q);

int32_t likeliest(std::span<const float> logits);

// Collects the results of one setting. A plain value.
struct Divergences {
  // Sums of one prompt.
  struct Sums {
    double kl = 0;
    uint64_t n_agree = 0, n_positions = 0;
  };
  std::vector<double> kl;  // one a position
  uint64_t n_agree = 0;    // positions whose likeliest token is full prefill's
  std::vector<Sums> prompts;
  double flops = 0, full_flops = 0;

  // Called after a prompt's positions.
  void end_prompt();
  double kl_mean() const;
  double kl_p95() const;  // linear between the two nearest order statistics
  double top1() const;    // share
  // Half the 95 % intervals of both, the prompts being a random sample; 0 for a single prompt.
  double kl_margin() const;
  double top1_margin() const;
};

// Measures one sample in every setting; results are appended to out[i] of settings[i]. `done` is
// called after each fuse, the full one included. Errors do not name the sample: the caller does.
Status measure_sample(const std::shared_ptr<const Model>& model, const Sample& sample,
                      const MeasureOptions& options, std::span<const Setting> settings,
                      std::span<Divergences> out, const std::function<Status()>& done,
                      const Watch& watch);

}  // namespace blend

// Scales by layer: which layers bear coarse rounding, and how much that gains.
//
// If what rounding the layers costs adds up and grows with the square of a step, then at given
// bytes it is least where every step is inverse to the root of what its layer costs at the same
// step (docs/research/2026-11-codecs.md, "Steps by layer"). That is measured layer by layer on some
// prompts, in the ways that chunks are used: reused as they are, and as the profile fuses, where
// what is rounded also says which rows are recomputed. On others, which the split did not see, it
// must be better than steps that are all alike.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/threads/cancel.h"
#include "calibrate/measure.h"
#include "calibrate/rounding.h"
#include "profile/layer_steps.h"

namespace blend {

// Least prompts to judge on: fewer give no interval.
inline constexpr size_t kLeastJudged = 8;

// Factors of the layers' scales; kl[l] is the cost of rounding layer l alone at a common scale:
// inverse to the roots, within bounds, their geometric mean 1. Empty where that is meaningless: one
// layer, a cost that is not a number, or no layer with any cost.
std::vector<float> split_steps(std::span<const double> kl);

// The cost of each layer in all ways together, kl[w][l] being its cost in one: sums of its
// shares, because a way with a small total loss would otherwise not count. Empty where the total is
// 0, or a cost is not a number.
std::vector<double> sum_of_shares(std::span<const std::vector<double>> kl);

// KL and bytes of one prompt with each of two sets of scales.
struct StepTrial {
  struct Cost {
    double alike = 0, split = 0;  // KL, mean over the answer's tokens
  };
  std::vector<Cost> ways;  // reuse first
  RoundedSize alike, split;
};
// The scales with the trials' results; without factors where they are not better at reuse by
// the 95 % interval, or in another way worse by it, or where there are too few trials. Where the
// split takes more bytes it has to make up for them.
LayerSteps judge_steps(std::vector<float> factors, std::span<const StepTrial> trials);

// Fits on samples 0, 2, 4, ... and judges on samples 1, 3, 5, ..., at most `most` of each; none at
// all where they are too few.
struct StepPrompts {
  StepPrompts(size_t n_samples, uint64_t most);
  // Number of fuses in all.
  uint64_t n_runs(uint32_t n_layers, uint32_t n_ways) const;
  size_t n_fitted = 0, n_judged = 0;
};

struct StepOptions {
  StepPrompts prompts;
  std::vector<int32_t> chunk_prefix;
  DType kv_dtype = DType::f16;
  std::optional<Setting> way = {};   // besides reuse
  uint32_t check_layer = 1;          // of it
  uint32_t score_tokens = 5;         // of the answer, at most
  SampleRecords* records = nullptr;  // null: chunks after the prefix alone
};

// `done` is called after each fuse. No factors where rounding cannot be measured: too few samples,
// or values that cannot be rounded.
Result<LayerSteps> find_layer_steps(const std::shared_ptr<const Model>& model,
                                    std::span<const Sample> samples, const StepOptions& options,
                                    const std::function<Status()>& done, const Watch& watch);

}  // namespace blend

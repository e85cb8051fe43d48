// Steps by layer: which layers bear coarse rounding, and what it is worth to know.
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

#include "base/cancel.h"
#include "calibrate/measure.h"
#include "calibrate/rounding.h"
#include "profile/layer_steps.h"

namespace blend {

// That steps are judged on: fewer say nothing of an interval.
inline constexpr size_t kLeastJudged = 8;

// Factors of the layers' steps, kl[l] being what rounding layer l alone costs at one step for all:
// inverse to the roots, within bounds, their geometric mean 1. Empty where that says nothing: one
// layer, a number that is none, or no layer that costs anything.
std::vector<float> split_steps(std::span<const double> kl);

// What each layer costs in all ways together, kl[w][l] being what it does in one: sums of its
// shares, because a way of which little is lost at all would not be seen beside the others. Empty
// where none costs anything, or a cost is not a number.
std::vector<double> sum_of_shares(std::span<const std::vector<double>> kl);

// What rounding with each of two sets of steps cost one prompt, and took.
struct StepTrial {
  struct Cost {
    double alike = 0, split = 0;  // KL, mean over the answer's tokens
  };
  std::vector<Cost> ways;  // reuse first
  RoundedSize alike, split;
};
// The steps with what the trials say of them; without factors where they are not better at reuse by
// the 95 % interval, or in another way worse by it, or where there are too few trials. Where the
// split takes more bytes it has to make up for them.
LayerSteps judge_steps(std::vector<float> factors, std::span<const StepTrial> trials);

// Fits on samples 0, 2, 4, ... and judges on samples 1, 3, 5, ..., at most `most` of each; none at
// all where they are too few.
struct StepPrompts {
  StepPrompts(size_t n_samples, uint64_t most);
  // Fuses in all.
  uint64_t n_runs(uint32_t n_layers, uint32_t n_ways) const;
  size_t n_fitted = 0, n_judged = 0;
};

struct StepOptions {
  StepPrompts prompts;
  std::vector<int32_t> chunk_prefix;
  DType kv_dtype = DType::f16;
  std::optional<Setting> way = {};  // besides reuse
  uint32_t check_layer = 1;         // of it
  uint32_t score_tokens = 5;        // of the answer, at most
};

// `done` is called after each fuse. No factors where rounding cannot be measured: too few samples,
// or values that cannot be rounded.
Result<LayerSteps> find_layer_steps(const std::shared_ptr<const Model>& model,
                                    std::span<const Sample> samples, const StepOptions& options,
                                    const std::function<Status()>& done, const Watch& watch);

}  // namespace blend

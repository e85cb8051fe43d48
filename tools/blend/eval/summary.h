// Summary: what the questions of a run say about each configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eval/metrics.h"
#include "eval/run.h"

namespace blend_cli {

struct Summary {
  EvalConfig config;
  size_t n = 0;
  double found = 0;  // answers that contain a right one; this and the next: shares, 0 .. 1
  Interval found_ci;
  double found_difference = 0;  // found - full prefill's, question by question
  Interval found_difference_ci;
  std::optional<double>
      pgr;  // of found; nothing without a floor, or where full prefill is not above it
  double exact_match = 0;
  Interval exact_match_ci;
  double f1 = 0;
  Interval f1_ci;
  double kl_mean = 0;   // nats
  Interval kl_ci;       // of the mean
  double kl8_mean = 0;  // over the first eight positions of full prefill's answer
  Interval kl8_ci;
  double kl8_median = 0;
  double kl8_difference = 0;  // to full prefill's own, which is 0 unless the reference is another
  Interval kl8_difference_ci;
  double kl_median = 0;
  double kl_p95 = 0;
  double top1_agreement = 0;    // likeliest first token as full prefill's
  double token_agreement = 0;   // positions of full prefill's answers with the same likeliest token
  double answer_agreement = 0;  // whole answer as full prefill's
  double rows_of_reused = 0;    // selected rows / rows of reused chunks
  double rows_of_all = 0;       // rows computed after the check layer / rows of the prompts
  double flops_relative = 0;    // operations / full prefill's
  double ttft_ms_median = 0;
  double ttft_relative = 0;  // median TTFT / full prefill's median TTFT
  bool has_recovered = false;
  double recovered =
      0;  // share of the exact match that full reuse loses; not set when it loses none
  uint64_t n_misses = 0;
  CodecSize size;  // of the chunks, where their codec is named
  // KL(with a lossless codec || this), where that was run too; nats.
  double kl_rounding_mean = 0;
  Interval kl_rounding_ci;
  double kl_rounding_median = 0;
};

// The same questions without any chunk.
struct Floor {
  double found = 0;
  Interval found_ci;
  double exact_match = 0;
  double f1 = 0;
};

// Full prefill, the reference, first; then one a configuration, in their order, without `full`
// unless it was run again.
struct EvalSummary {
  // Answers found among the questions with the same value under --group-by.
  struct Group {
    std::string name;
    size_t n = 0;
    double full = 0;
    std::vector<double> configs;
  };
  Summary full;
  std::optional<Floor> floor;
  std::vector<Summary> configs;
  std::vector<Group> groups;  // by name; empty unless asked for
};
EvalSummary summarise(const EvalPlan& plan, const std::vector<Record>& records,
                      const EvalResult& result, uint64_t seed);

}  // namespace blend_cli

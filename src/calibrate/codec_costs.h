// What each codec that rounds adds to a fuse, beside what the fuse costs by itself.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/threads/cancel.h"
#include "calibrate/measure.h"
#include "profile/codec_cost.h"

namespace blend {

struct CodecTrialOptions {
  std::vector<int32_t> chunk_prefix;
  DType kv_dtype = DType::f16;
  Setting way;  // that is fused by; plain
  uint32_t check_layer = 1;
  uint32_t score_tokens = 5;         // of full prefill's answer, at most
  std::vector<float> layer_steps;    // of rans; empty: all layers alike
  SampleRecords* records = nullptr;  // null: chunks after the prefix alone
};

// Fuses and prefills of one sample.
uint64_t codec_runs();

// One for each codec that rounds, over all samples. `done` is called after each fuse. A codec that
// cannot keep a value of these chunks is left out.
Result<std::vector<CodecCost>> find_codec_costs(const std::shared_ptr<const Model>& model,
                                                std::span<const Sample* const> samples,
                                                const CodecTrialOptions& options,
                                                const std::function<Status()>& done,
                                                const Watch& watch);

}  // namespace blend

// Report: a summary as a table and as JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "eval/run.h"
#include "eval/summary.h"

namespace blend_cli {

// What the table and the files say about the origin of the figures.
struct EvalContext {
  std::string model_path;
  std::string data_path;
  std::string command;   // as it may be repeated
  std::string kv_dtype;  // as asked
  std::string codec;
  double codec_step = 1;
  std::vector<float> layer_steps;  // times that, of a profile; empty: all layers alike
  std::string cache_dtype;
  std::string reference_weights;  // as asked; "": the model's own
  uint64_t seed = 0;
  size_t limit = 0;
  std::string group_by;
  bool shuffled = false;
  uint64_t shuffle_seed = 0;
  uint32_t threads = 0;  // 0: the CPUs of the process
  blendpp::ModelInfo model;
  std::string model_name;  // model.name, which ends with the model
};

// One sentence for each codec and way of fusing where rounding costs more than the fuse itself.
std::vector<std::string> costly_codecs(const EvalSummary& summary);

std::string summary_table(const EvalContext& context, const EvalSummary& summary,
                          const EvalResult& result);
// Everything, including a record for each question.
nlohmann::json eval_json(const EvalContext& context, const EvalPlan& plan,
                         const std::vector<Record>& records, const EvalResult& result,
                         const EvalSummary& summary);

}  // namespace blend_cli

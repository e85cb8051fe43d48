// The HTML report: one file that opens anywhere, with nothing fetched from elsewhere. Light or dark
// as the reader's system has it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "eval_run.h"
#include "eval_summary.h"

namespace blend_cli {

// A token's text, as bytes.
using PieceFn = std::function<std::string(int32_t token)>;

std::string eval_html(const EvalContext& context, const EvalPlan& plan,
                      const std::vector<Record>& records, const EvalResult& result,
                      const EvalSummary& summary, const PieceFn& piece);

}  // namespace blend_cli

// The HTML report: one file that opens anywhere, with nothing fetched from elsewhere. It is a
// template (page.html, with its style and scripts) around the figures as JSON; the scripts draw.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "eval/run.h"

namespace blend_cli {

// A token's text, as bytes.
using PieceFn = std::function<std::string(int32_t token)>;

// What the page shows besides the figures of eval_json(): which configurations are compared with
// each other, the rows of a few prompts, and questions that full reuse answers differently.
nlohmann::json page_json(const EvalPlan& plan, const std::vector<Record>& records,
                         const EvalResult& result, const PieceFn& piece);

// The file. report: of eval_json(), its "page" of page_json().
std::string page_html(const nlohmann::json& report);

// Each row's heat, 0 .. 1: the root of its deviation over the 99th percentile of those measured.
// The root, because deviations are squares and a few rows outdo the rest by far. [n_rows]
std::vector<double> heat_of(const RowTrace& trace);

}  // namespace blend_cli

#include "eval/page.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "eval/metrics.h"
#include "eval/options.h"
#include "eval/token_label.h"

namespace blend_cli {

// Made of page.html by embed_page.cmake.
extern const char* const kPageTemplate;

namespace {

constexpr size_t kPrompts = 3;       // drawn row by row
constexpr size_t kDifferences = 60;  // questions in the table of answers

const char* kind_name(uint32_t kind) {
  switch (kind) {
    case BLEND_SEGMENT_CHUNK:
      return "chunk";
    case BLEND_SEGMENT_PREFIX:
      return "prefix";
    case BLEND_SEGMENT_QUESTION:
      return "question";
    default:
      return "text";
  }
}

// Full reuse of the showcase's kind of record, or any; configs.size(): there is none.
size_t reuse_of(const EvalPlan& plan) {
  size_t found = plan.configs.size();
  for (size_t i = 0; i < plan.configs.size(); ++i) {
    const EvalConfig& config = plan.configs[i];
    if (config.policy != BLEND_POLICY_REUSE) continue;
    if (found == plan.configs.size()) found = i;
    if (plan.showcase < plan.configs.size() &&
        config.records == plan.configs[plan.showcase].records) {
      return i;
    }
  }
  return found;
}

nlohmann::json index_json(size_t index, const EvalPlan& plan) {
  return index < plan.configs.size() ? nlohmann::json(index) : nlohmann::json();
}

// Three digits: what a picture needs.
std::vector<double> rounded(std::vector<double> values) {
  for (double& value : values) value = std::round(value * 1000) / 1000;
  return values;
}

nlohmann::json rows_json(const RowTrace& trace) {
  nlohmann::json segments = nlohmann::json::array();
  for (const RowTrace::Segment& segment : trace.segments) {
    segments.push_back({{"kind", kind_name(segment.kind)},
                        {"exact", segment.exact},
                        {"first_row", segment.first_row},
                        {"n_rows", segment.n_rows}});
  }
  nlohmann::json layers = nlohmann::json::array();
  for (const LayerRows& layer : trace.layers) {
    layers.push_back({{"kv", layer.kv}, {"full", layer.full}});
  }
  return {{"n_rows", trace.n_rows},          {"segments", std::move(segments)},
          {"selected", trace.selected},      {"deviation", trace.deviation},
          {"heat", rounded(heat_of(trace))}, {"layers", std::move(layers)}};
}

// A token that does not begin with a space goes on where the one before it ends.
nlohmann::json tokens_json(const blendpp::Tokens& tokens, const PieceFn& piece) {
  nlohmann::json out = nlohmann::json::array();
  for (const int32_t token : tokens) {
    const std::string text = piece(token);
    out.push_back({{"text", token_label(text)}, {"joins", !text.empty() && text[0] != ' '}});
  }
  return out;
}

// The telling ones first: they are what a reader wants to see.
nlohmann::json prompts_json(const EvalResult& result, const PieceFn& piece) {
  nlohmann::json out = nlohmann::json::array();
  for (const bool telling : {true, false}) {
    for (size_t i = 0; i < result.questions.size(); ++i) {
      const QuestionResult& question = result.questions[i];
      if (question.telling != telling || question.trace.n_rows == 0) continue;
      if (out.size() == kPrompts) return out;
      out.push_back({{"question", i},
                     {"rows", rows_json(question.trace)},
                     {"tokens", tokens_json(question.tokens, piece)}});
    }
  }
  return out;
}

nlohmann::json differing_json(const std::vector<Record>& records, const EvalResult& result,
                              size_t reuse) {
  nlohmann::json out = nlohmann::json::array();
  for (size_t i = 0; i < result.questions.size() && out.size() < kDifferences; ++i) {
    const QuestionResult& question = result.questions[i];
    if (question.outcomes[reuse].same_answer) continue;
    out.push_back({{"question", i}, {"chunks", records[question.record].chunks}});
  }
  return out;
}

}  // namespace

std::vector<double> heat_of(const RowTrace& trace) {
  std::vector<double> measured;
  for (const float deviation : trace.deviation) {
    if (deviation > 0) measured.push_back(deviation);
  }
  const double top = quantile(measured, 0.99);
  std::vector<double> heat;
  for (const float deviation : trace.deviation) {
    const double share = top > 0 ? static_cast<double>(deviation) / top : 0;
    heat.push_back(std::sqrt(std::clamp(share, 0.0, 1.0)));
  }
  return heat;
}

nlohmann::json page_json(const EvalPlan& plan, const std::vector<Record>& records,
                         const EvalResult& result, const PieceFn& piece) {
  const size_t reuse = reuse_of(plan);
  nlohmann::json out = {{"reuse", index_json(reuse, plan)},
                        {"showcase", index_json(plan.showcase, plan)},
                        {"headline", index_json(headline_of(plan.configs), plan)},
                        {"prompts", prompts_json(result, piece)}};
  out["differing"] = reuse < plan.configs.size() ? differing_json(records, result, reuse)
                                                 : nlohmann::json::array();
  return out;
}

std::string page_html(const nlohmann::json& report) {
  constexpr std::string_view kPlace = "@REPORT@";
  const std::string_view page = kPageTemplate;
  const size_t at = page.find(kPlace);
  std::string out(page.substr(0, at));
  // Answers may be cut inside a UTF-8 sequence. In a script element only "<" could begin markup:
  // "</script>" in a document would end it.
  for (const char c : report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  out += page.substr(at + kPlace.size());
  return out;
}

}  // namespace blend_cli

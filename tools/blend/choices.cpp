#include "choices.h"

#include <string_view>

#include "blend/blend.hpp"
#include "command.h"
#include "fusion/request/policy_registry.h"
#include "store/codec/registry.h"

namespace blend_cli {
namespace {

constexpr std::string_view kPlaceholder = "{question}";

}  // namespace

const Choices& policy_choices() {
  static const Choices kNamed = [] {
    Choices named;
    for (const blend::PolicyEntry& e : blend::kPolicies) {
      if (!e.has(blend::policy_table::kProgram)) named.emplace_back(e.name, e.code());
    }
    return named;
  }();
  return kNamed;
}

std::string policy_name(uint32_t policy) {
  const blend::PolicyEntry* const entry = blend::find_policy(policy);
  return std::string(entry == nullptr ? "?" : entry->name);
}

const Choices& metric_choices() {
  static const Choices kMetrics = {{"v", BLEND_METRIC_V},
                                   {"k", BLEND_METRIC_K},
                                   {"kv", BLEND_METRIC_KV},
                                   {"v_weighed", BLEND_METRIC_V_WEIGHED},
                                   {"k_weighed", BLEND_METRIC_K_WEIGHED},
                                   {"kv_weighed", BLEND_METRIC_KV_WEIGHED}};
  return kMetrics;
}

const Choices& norm_choices() {
  static const Choices kNorms = {{"l2", BLEND_NORM_L2}, {"l1", BLEND_NORM_L1}};
  return kNorms;
}

const Choices& codec_choices() {
  static const Choices kNamed = [] {
    Choices named;
    for (const blend::CodecEntry& e : blend::kCodecTable) {
      named.emplace_back(e.name, BLEND_CODEC_NONE + static_cast<uint32_t>(named.size()));
    }
    return named;
  }();
  return kNamed;
}

std::string codec_names() {
  std::string lossless, rounded;
  for (const blend::CodecEntry& e : blend::kCodecTable) {
    std::string& list = e.lossless ? lossless : rounded;
    list += (list.empty() ? "" : ", ") + std::string(e.name);
  }
  return lossless + " (lossless), " + rounded + " (rounded)";
}

const Choices& weights_choices() {
  static const Choices kWeights = {{"auto", BLEND_WEIGHTS_AUTO},
                                   {"packed", BLEND_WEIGHTS_PACKED},
                                   {"mapped", BLEND_WEIGHTS_MAPPED},
                                   {"int8", BLEND_WEIGHTS_INT8}};
  return kWeights;
}

const Choices& kv_choices() {
  static const Choices kTypes = {{"auto", BLEND_DTYPE_AUTO},
                                 {"f32", BLEND_DTYPE_F32},
                                 {"f16", BLEND_DTYPE_F16},
                                 {"bf16", BLEND_DTYPE_BF16}};
  return kTypes;
}

const Choices& read_choices() {
  static const Choices kModes = {{"auto", BLEND_READ_AUTO},
                                 {"io_uring", BLEND_READ_URING},
                                 {"threads", BLEND_READ_THREADS},
                                 {"mapped", BLEND_READ_MAPPED}};
  return kModes;
}

const Choices& pooling_choices() {
  static const Choices kPoolings = {{"model", BLEND_POOLING_MODEL},
                                    {"mean", BLEND_POOLING_MEAN},
                                    {"last", BLEND_POOLING_LAST},
                                    {"first", BLEND_POOLING_FIRST}};
  return kPoolings;
}

std::vector<std::string> names_of(const Choices& choices) {
  std::vector<std::string> names;
  for (const auto& choice : choices) names.push_back(choice.first);
  return names;
}

uint32_t value_of(const Choices& choices, const std::string& name) {
  for (const auto& choice : choices) {
    if (choice.first == name) return choice.second;
  }
  std::string known;
  for (const auto& choice : choices) known += (known.empty() ? "" : ", ") + choice.first;
  throw CommandError(kExitUsage, "'" + name + "' is none of " + known);
}

std::string name_of(const Choices& choices, uint32_t value) {
  for (const auto& choice : choices) {
    if (choice.second == value) return choice.first;
  }
  return "?";
}

std::string unescaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool newline = text.compare(i, 2, "\\n") == 0;
    const bool tab = text.compare(i, 2, "\\t") == 0;
    out += newline ? '\n' : tab ? '\t' : text[i];
    if (newline || tab) ++i;
  }
  return out;
}

std::string question_text(const std::string& question_template, const std::string& question) {
  // Escapes are of the template, never of the question, which may hold backslashes of its own.
  std::string text;
  size_t begin = 0;
  for (size_t at = question_template.find(kPlaceholder); at != std::string::npos;
       at = question_template.find(kPlaceholder, begin)) {
    text += unescaped(question_template.substr(begin, at - begin)) + question;
    begin = at + kPlaceholder.size();
  }
  return text + unescaped(question_template.substr(begin));
}

std::string check_question_template(const std::string& question_template) {
  if (question_template.find(kPlaceholder) != std::string::npos) return {};
  return "must contain {question}";
}

}  // namespace blend_cli

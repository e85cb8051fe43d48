// Choices: the names that options give to policies and metrics, and how a question is put.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace blend_cli {

using Choices = std::vector<std::pair<std::string, uint32_t>>;

const Choices& policy_choices();           // BLEND_POLICY_* that have a name on the command line
std::string policy_name(uint32_t policy);  // any of BLEND_POLICY_*
const Choices& metric_choices();           // BLEND_METRIC_*
const Choices& norm_choices();             // BLEND_NORM_*
const Choices& codec_choices();            // BLEND_CODEC_*
std::string codec_names();                 // "none, zstd (lossless), int8, ... (rounded)" for help
const Choices& weights_choices();          // auto, packed, mapped, int8
const Choices& kv_choices();               // auto, f32, f16, bf16
const Choices& read_choices();             // BLEND_READ_*
const Choices& pooling_choices();          // BLEND_POOLING_*

std::vector<std::string> names_of(const Choices& choices);
// Throws CommandError (usage) for a name that is not among them.
uint32_t value_of(const Choices& choices, const std::string& name);
std::string name_of(const Choices& choices, uint32_t value);  // "?" for an unknown one

inline constexpr const char* kDefaultQuestionTemplate = "Question: {question}\\nAnswer:";
// The template with the question filled in; "\n" and "\t" as a shell passes them become one byte.
std::string question_text(const std::string& question_template, const std::string& question);
// A sentence when the template has no place for the question, otherwise "" (a CLI11 check).
std::string check_question_template(const std::string& question_template);
// "\n" and "\t" as a shell passes them become one byte.
std::string unescaped(const std::string& text);

}  // namespace blend_cli

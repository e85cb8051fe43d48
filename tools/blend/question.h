// Prompt: a record of a data set as the segments to fuse, the same for `blend eval`, `blend
// calibrate` and `blend verify`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "blend/blend.hpp"
#include "chat_prompt.h"
#include "dataset.h"

namespace blend_cli {

// How a prompt is put together, whatever is measured with it.
struct PromptForm {
  std::string system;
  std::string question_template;  // see choices.h; "": the default, with chat the question as it is
  bool special = false;  // control tokens in the system text and the template are recognized
  ChatChoice chat;       // by the model's chat template
};
void add_prompt_form(CLI::App& app, PromptForm& form);
// The template in use: the one given, or the default.
std::string question_template_of(const PromptForm& form);

// A prompt of these documents and this question. Without chat it is BOS and the system text
// (PREFIX), the documents (CHUNK), and the question put into the template (QUESTION), each
// tokenized by itself.
blendpp::Prompt make_prompt(const blendpp::Model& model, const PromptForm& form,
                            const std::vector<std::string>& documents, const std::string& question);

// One question as tokens.
struct Question {
  const Record* record = nullptr;
  std::vector<blendpp::Tokens> prefixes;  // the PREFIX segments, in order
  blendpp::Tokens head;                   // all tokens before the first chunk
  std::vector<blendpp::Tokens> chunks;    // in the order of the prompt
  std::vector<blendpp::Tokens> before;    // new text between a chunk and the one before it
  blendpp::Prompt prompt;
  blendpp::Tokens tokens;  // all of it
};
// Keeps a reference to `record`. Throws CommandError where the template changes every document.
Question make_question(const blendpp::Model& model, const Record& record, const PromptForm& form);

}  // namespace blend_cli

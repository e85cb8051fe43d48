// A question and documents put by the model's chat template (--chat), or without it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "blend/blend.hpp"

namespace blend_cli {

struct ChatChoice {
  bool wanted = false;
  std::string template_file;  // empty: the model's own
  std::string variables;      // a JSON object
  std::string tools;          // a JSON list of the functions that an answer may call
  bool must_call = false;     // the answer must be a call
};
// --chat excludes --question-template and --special where the command has them by now.
void add_chat_options(CLI::App& app, ChatChoice& chat);
// --chat-template alone.
CLI::Option* add_chat_template(CLI::App& app, ChatChoice& chat);

// The text of the file that `option` names. Throws CommandError.
std::string read_text_option(const char* option, const std::string& path);
// Throws blendpp::Error, and CommandError for a file that cannot be read.
blendpp::ChatOptions chat_options(const ChatChoice& chat, std::string& template_source);
blendpp::Prompt chat_prompt(const blendpp::Model& model, const ChatChoice& chat,
                            const std::string& system, const std::vector<std::string>& documents,
                            const std::string& question);

// Without a template: BOS and the system text (PREFIX), the documents (CHUNK), and the question put
// into its template (QUESTION), each tokenized by itself. `special`: control tokens of the system
// text and of the template are recognized, those in the question are not.
blendpp::Prompt plain_prompt(const blendpp::Model& model, const std::string& system,
                             const std::vector<std::string>& documents,
                             const std::string& question_template, const std::string& question,
                             bool special);
// The head of that prompt: its tokens before the documents.
blendpp::Tokens plain_head(const blendpp::Model& model, const std::string& system, bool special);

}  // namespace blend_cli

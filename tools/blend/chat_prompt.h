// A question and documents put by the model's chat template: --chat.
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
};
// --chat excludes --question-template and --special where the command has them by now.
void add_chat_options(CLI::App& app, ChatChoice& chat);
// --chat-template alone.
CLI::Option* add_chat_template(CLI::App& app, ChatChoice& chat);

// Throws blendpp::Error, and CommandError for a file that cannot be read.
blendpp::ChatOptions chat_options(const ChatChoice& chat, std::string& template_source);
blendpp::Prompt chat_prompt(const blendpp::Model& model, const ChatChoice& chat,
                            const std::string& system, const std::vector<std::string>& documents,
                            const std::string& question);

}  // namespace blend_cli

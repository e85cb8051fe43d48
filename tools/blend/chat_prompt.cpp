#include "chat_prompt.h"

#include <cstring>

#include "choices.h"
#include "command.h"
#include "documents.h"
#include "interrupt.h"
#include "read_file.h"

namespace blend_cli {

CLI::Option* add_chat_template(CLI::App& app, ChatChoice& chat) {
  return app
      .add_option("--chat-template", chat.template_file,
                  "A Jinja file to use instead of the model's template")
      ->type_name("FILE");
}

void add_chat_options(CLI::App& app, ChatChoice& chat) {
  CLI::Option* const wanted =
      app.add_flag("--chat", chat.wanted,
                   "Format system text, documents and question by the model's chat template; the "
                   "end of the assistant's turn ends the answer");
  for (const char* other : {"--question-template", "--special"}) {
    if (CLI::Option* const option = app.get_option_no_throw(other)) wanted->excludes(option);
  }
  add_chat_template(app, chat)->needs(wanted);
  app.add_option(
         "--chat-variables", chat.variables,
         "A JSON object: further variables of the template, as {\"enable_thinking\": false}")
      ->needs(wanted)
      ->type_name("JSON");
}

std::string read_text_option(const char* option, const std::string& path) {
  constexpr size_t kMostBytes = size_t{64} << 20;
  FileBytes file;
  interruptibly([&] { file = read_file(path, kMostBytes); });
  if (file.error != 0) {
    throw CommandError(kExitNotFound, std::string(option) + ": '" + path +
                                          "' cannot be read: " + std::strerror(file.error));
  }
  std::string text, why;
  if (!decode_document(file.bytes, text, why)) {
    throw CommandError(kExitError, std::string(option) + ": '" + path + "' is not text: " + why);
  }
  return text;
}

blendpp::ChatOptions chat_options(const ChatChoice& chat, std::string& template_source) {
  blendpp::ChatOptions options;
  if (!chat.template_file.empty()) {
    template_source = read_text_option("--chat-template", chat.template_file);
    options.template_source = template_source.c_str();
  }
  options.variables = chat.variables.c_str();
  options.tools = chat.tools.c_str();
  if (chat.must_call) options.flags |= BLEND_CHAT_MUST_CALL;
  options.cancel = interrupt_token();
  return options;
}

blendpp::Prompt chat_prompt(const blendpp::Model& model, const ChatChoice& chat,
                            const std::string& system, const std::vector<std::string>& documents,
                            const std::string& question) {
  std::string source;
  const blendpp::ChatOptions options = chat_options(chat, source);
  std::vector<blendpp::ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", system});
  messages.push_back({"user", question});
  const std::vector<blendpp::ChatDocument> given(documents.begin(), documents.end());
  return blendpp::render_chat(model, messages, given, options).prompt;
}

blendpp::Prompt plain_prompt(const blendpp::Model& model, const std::string& system,
                             const std::vector<std::string>& documents,
                             const std::string& question_template, const std::string& question,
                             bool special) {
  const std::string put = unescaped(question_template);
  blendpp::TextOptions options;
  options.flags = BLEND_TEXT_PLAIN | BLEND_TEXT_VERBATIM | (special ? BLEND_TEXT_SPECIAL : 0u);
  options.system = system.c_str();
  options.question_template = put.c_str();
  options.cancel = interrupt_token();
  return blendpp::render_texts(model, documents, question, options).prompt;
}

blendpp::Tokens plain_head(const blendpp::Model& model, const std::string& system, bool special) {
  // Any document and question will do.
  return plain_prompt(model, system, {"x"}, kDefaultQuestionTemplate, "x", special).head();
}

}  // namespace blend_cli

#include "function_calls.h"

#include "command.h"
#include "interrupt.h"
#include "serve/request.h"

namespace blend_cli {
namespace {

// A body as the server gets one, so that both refuse the same lists. Throws CommandError.
serve::Tools checked_functions(const std::string& list, const std::string& which) {
  nlohmann::json body = {{"tools", nlohmann::json::parse(list, nullptr, false)}};
  if (body["tools"].is_discarded()) throw CommandError(kExitError, "--tools: it is not JSON");
  if (which == "auto" || which == "required") {
    body["tool_choice"] = which;
  } else {
    body["tool_choice"] = {{"type", "function"}, {"function", {{"name", which}}}};
  }
  try {
    return serve::read_tools(body, {list});
  } catch (const serve::HttpError& error) {
    const bool choice = error.param() == "tool_choice";
    throw CommandError(kExitError,
                       std::string(choice ? "--tool-choice: " : "--tools: ") + error.what());
  }
}

}  // namespace

void add_tools(CLI::App& app, FunctionChoice& choice) {
  app.add_option("--tools", choice.file,
                 "A JSON list of the functions that the answer may call, as OpenAI's API has them; "
                 "it is part of the prompt's head")
      ->needs("--chat")
      ->type_name("FILE");
}

void add_tool_choice(CLI::App& app, FunctionChoice& choice) {
  app.add_option("--tool-choice", choice.which,
                 "auto: the model decides; required: the answer is a call; NAME: of this function")
      ->needs("--tools")
      ->type_name("WHICH")
      ->capture_default_str();
}

std::string read_functions(const FunctionChoice& choice) {
  return choice.file.empty() ? std::string() : read_text_option("--tools", choice.file);
}

Functions::Functions(const blendpp::Model& model, const FunctionChoice& choice,
                     const ChatChoice& chat)
    : model_(model), tools_(checked_functions(chat.tools, choice.which)) {
  chat_options(chat, template_source_);
}

std::unique_ptr<blendpp::Grammar> Functions::grammar() const {
  if (tools_.choice != serve::Tools::Choice::required) return nullptr;
  blendpp::GrammarOptions how;
  how.cancel = interrupt_token();
  how.language = BLEND_GRAMMAR_CALL;
  how.text = tools_.json.c_str();
  how.template_source = template_source_.c_str();
  how.function = tools_.only.c_str();
  return std::make_unique<blendpp::Grammar>(model_, how);
}

std::string call_line(const blendpp::CallInfo& call) {
  auto arguments = nlohmann::ordered_json::parse(call.arguments, nullptr, false);
  if (arguments.is_discarded()) arguments = call.arguments;
  const nlohmann::ordered_json line = {{"name", call.name}, {"arguments", std::move(arguments)}};
  return line.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace blend_cli

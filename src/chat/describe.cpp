#include "chat/describe.h"

#include "chat/prompt.h"
#include "chat/template.h"

namespace blend::chat {
namespace {

// Templates write system messages in many ways, some by no word of their own, so one is rendered.
Result<bool> reads_system(const Template& source, const Tokenizer& tokenizer) {
  constexpr std::string_view kSaid = "what the system says";
  Result<text::Prompt> prompt =
      make_prompt(source, tokenizer, {{"system", kSaid}, {"user", "a question"}}, {}, {});
  if (prompt.is_ok()) return prompt->text.find(kSaid) != std::string::npos;
  if (prompt.status().code() == BLEND_E_OUT_OF_MEMORY) return prompt.status();
  return false;  // it refuses the role
}

}  // namespace

CallForm call_form(const Template& source) {
  // So too where the library tells the model of them: tools.cpp asks for this form.
  constexpr CallForm kHermes = {"<tool_call>", "</tool_call>", "<tool_call>\n"};
  if (source.has_word("<tool_call>") || !source.reads("tools")) return kHermes;
  if (source.has_word("[TOOL_CALLS]")) {
    return {"[TOOL_CALLS]", "", "[TOOL_CALLS] [", "arguments", 9};
  }
  const bool is_llama = source.has_word("<|python_tag|>") || source.has_word("\"parameters\"");
  return {"", "", "", is_llama ? "parameters" : "arguments"};
}

Result<Description> describe(const Template& source, const Tokenizer& tokenizer) {
  Description out;
  BLEND_ASSIGN(out.reads_system, reads_system(source, tokenizer));
  out.reads_tools = source.reads("tools");
  out.reads_tool_calls = source.has_word("tool_calls");
  out.reads_documents = source.reads("documents");
  out.reads_generation_prompt = source.reads("add_generation_prompt");
  out.reads_thinking = source.reads("enable_thinking");
  out.calls = call_form(source);
  return out;
}

Result<Description> describe(std::string_view source, const Tokenizer& tokenizer) {
  BLEND_ASSIGN(const auto parsed, Template::parse_given(source));
  return describe(parsed, tokenizer);
}

Result<CallForm> call_form(std::string_view source) {
  BLEND_ASSIGN(const auto parsed, Template::parse_given(source));
  return call_form(parsed);
}

}  // namespace blend::chat

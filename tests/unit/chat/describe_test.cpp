// What is told of templates, by what the library itself makes of them.
#include "chat/describe.h"

#include <gtest/gtest.h>

#include "chat/prompt.h"
#include "model/tokenizer/bpe_tokenizer.h"
#include "model/tokenizer/tokenizer_json.h"
#include "support/golden_tokens.h"

namespace blend::chat {
namespace {

const Tokenizer& tokenizer() {
  static const auto kTokenizer = [] {
    auto spec = parse_tokenizer_json(test::golden_tokenizer("llama2").json);
    EXPECT_TRUE(spec.is_ok()) << spec.status().message();
    return std::move(*BpeTokenizer::create(std::move(*spec)));
  }();
  return *kTokenizer;
}

Description described(std::string_view source) {
  Result<Description> made = describe(source, tokenizer());
  EXPECT_TRUE(made.is_ok()) << source << ": " << made.status().message();
  return made.is_ok() ? *made : Description();
}

constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";

TEST(Describe, AVariableIsReadWhereAStatementNamesIt) {
  for (const char* const without : {"{# no tools #}{{ messages }}", "tools {{ messages }}",
                                    "{{ 'tools' }}", "{{ my_tools }}", "{{ messages.tools }}"}) {
    EXPECT_FALSE(described(without).reads_tools) << without;
  }
  for (const char* const with :
       {"{%- if tools-%}{% endif %}", "{% if not tools is none %}{% endif %}", "{{ [tools] }}",
        "{% for t in tools %}{% endfor %}"}) {
    EXPECT_TRUE(described(with).reads_tools) << with;
  }
  const Description none = described("{{ messages[0].content }}");
  EXPECT_FALSE(none.reads_documents || none.reads_tool_calls || none.reads_generation_prompt ||
               none.reads_thinking);
  EXPECT_TRUE(described("{{ documents }}").reads_documents);
  EXPECT_TRUE(described("{% if add_generation_prompt %}{% endif %}").reads_generation_prompt);
  EXPECT_TRUE(described("{% if enable_thinking is defined %}{% endif %}").reads_thinking);
  EXPECT_TRUE(described("{{ messages[0].tool_calls }}").reads_tool_calls);
}

// By no word of the template: ChatML names no role, and others name the role only to refuse it.
TEST(Describe, ASystemMessageIsReadWhereItsTextComesOut) {
  EXPECT_TRUE(described(kChatMl).reads_system);
  EXPECT_TRUE(described("{{ messages[0].content | upper if false else messages[0].content }}")
                  .reads_system);
  EXPECT_FALSE(
      described("{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}")
          .reads_system);
  EXPECT_FALSE(described("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}")
                   .reads_system);
  EXPECT_FALSE(
      described("{{ messages | batch(2) }}").reads_system);  // a filter that is unsupported
}

TEST(Describe, TheFormOfCalls) {
  const auto form = [](std::string_view source) { return described(source).calls; };
  const std::string hermes = "{% if tools %}<tool_call>{% endif %}";
  const std::string mistral = "{% if tools %}[TOOL_CALLS]{% endif %}";
  const std::string llama = "{% if tools %}'\"parameters\": '{% endif %}";
  for (const std::string& source : {hermes, std::string(kChatMl)}) {
    EXPECT_STREQ(form(source).open, "<tool_call>") << source;
    EXPECT_STREQ(form(source).close, "</tool_call>") << source;
    EXPECT_STREQ(form(source).begin, "<tool_call>\n") << source;
    EXPECT_STREQ(form(source).arguments, "arguments") << source;
    EXPECT_EQ(form(source).id_length, 0u) << source;
  }
  EXPECT_STREQ(form(mistral).open, "[TOOL_CALLS]");
  EXPECT_STREQ(form(mistral).close, "");
  EXPECT_STREQ(form(mistral).begin, "[TOOL_CALLS] [");
  EXPECT_EQ(form(mistral).id_length, 9u);
  EXPECT_STREQ(form(llama).open, "");
  EXPECT_STREQ(form(llama).begin, "");
  EXPECT_STREQ(form(llama).arguments, "parameters");
  EXPECT_STREQ(form("{{ tools }}").open, "");
  EXPECT_STREQ(form("{{ tools }}").arguments, "arguments");
}

// The form that is told where a template has no place for tools is what the library asks for.
TEST(Describe, TheLibraryAsksForThatForm) {
  PromptOptions options;
  options.tools = R"([{"type": "function", "function": {"name": "f"}}])";
  auto prompt = make_prompt(kChatMl, tokenizer(), {{"user", "a question"}}, {}, options);
  ASSERT_TRUE(prompt.is_ok());
  const CallForm form = described(kChatMl).calls;
  const std::string asked = std::string(form.begin) + "{\"name\": <function-name>, \"" +
                            form.arguments + "\": <args-json-object>}\n" + form.close;
  EXPECT_NE(prompt->text.find(asked), std::string::npos) << prompt->text;
}

TEST(Describe, WhatCannotBeRead) {
  EXPECT_EQ(describe("", tokenizer()).status().code(), BLEND_E_NOT_FOUND);
  EXPECT_EQ(describe("{% if %}", tokenizer()).status().code(), BLEND_E_FORMAT);
}

}  // namespace
}  // namespace blend::chat

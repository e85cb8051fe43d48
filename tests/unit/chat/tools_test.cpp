// Functions and their calls in prompts: as jinja2 puts them, and as text where a template does not.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "chat/prompt.h"
#include "model/tokenizer/bpe_tokenizer.h"
#include "model/tokenizer/tokenizer_json.h"
#include "support/golden_tokens.h"

namespace blend::chat {
namespace {

using Ordered = nlohmann::ordered_json;

// It has <s> and </s>, as the goldens have.
std::unique_ptr<BpeTokenizer> tokenizer() {
  auto spec = parse_tokenizer_json(test::golden_tokenizer("llama2").json);
  EXPECT_TRUE(spec.is_ok()) << spec.status().message();
  spec->bos = find_token(*spec, "<s>");
  spec->eos = find_token(*spec, "</s>");
  return std::move(*BpeTokenizer::create(std::move(*spec)));
}

const Ordered& goldens() {
  static const Ordered kGoldens = [] {
    std::ifstream file(BLEND_TEST_SOURCE_DIR "/unit/chat/golden/goldens.json");
    return Ordered::parse(file);
  }();
  return kGoldens;
}

const Ordered& golden(const std::string& name) {
  for (const Ordered& one : goldens()["cases"]) {
    if (one["name"] == name) return one;
  }
  ADD_FAILURE() << "no golden " << name;
  return goldens()["cases"][0];
}

// A golden's conversation as a host gives it: arguments as a text, as OpenAI's API has them.
Result<text::Prompt> rendered(const std::string& source, const Ordered& variables) {
  const auto t = tokenizer();
  std::vector<std::string> texts;
  texts.reserve(3 * variables["messages"].size());
  const auto keep = [&](std::string text) -> std::string_view {
    return texts.emplace_back(std::move(text));
  };
  std::vector<Message> messages;
  for (Ordered m : variables["messages"]) {
    Message& to = messages.emplace_back();
    to.role = keep(m["role"]);
    to.content = keep(m["content"]);
    m.erase("role");
    m.erase("content");
    if (m.contains("tool_calls")) {
      for (Ordered& call : m["tool_calls"]) {
        Ordered& arguments = call["function"]["arguments"];
        arguments = arguments.dump();
      }
    }
    if (!m.empty()) to.members = keep(m.dump());
  }
  const std::string tools = variables["tools"].is_null() ? "" : variables["tools"].dump();
  PromptOptions options;
  options.now = goldens()["now"].get<int64_t>();
  options.generation_prompt = variables["add_generation_prompt"].get<bool>();
  options.tools = tools;
  return make_prompt(source, *t, messages, {}, options);
}

TEST(ChatTools, AreWhereTheTemplateHasThem) {
  std::set<std::string> with_calls;
  for (const Ordered& one : goldens()["cases"]) {
    const auto source = one["source"].get<std::string>();
    const auto& variables = one["variables"];
    const bool reads =
        source.find("tools") != source.npos && source.find("tool_calls") != source.npos;
    if (!reads || !variables.contains("tools") || variables.contains("enable_thinking")) continue;
    const auto name = one["name"].get<std::string>();
    SCOPED_TRACE(name);
    auto prompt = rendered(source, variables);
    ASSERT_EQ(prompt.is_ok(), one.contains("text")) << prompt.status().message();
    if (!prompt.is_ok()) continue;
    EXPECT_EQ(prompt->text, one["text"].get<std::string>());
    if (prompt->text.find("Wien") != std::string::npos) {
      with_calls.insert(name.substr(0, name.find(':')));
    }
  }
  EXPECT_EQ(with_calls,
            (std::set<std::string>{"hermes", "llama3", "mistral_tools", "qwen2", "qwen3"}));
}

// ChatML has no place for them; with it they stand as in Qwen's template, which is ChatML's with
// one.
TEST(ChatTools, WithoutAPlaceTheyAreText) {
  const auto chatml = golden("chatml: user")["source"].get<std::string>();
  for (const char* const name :
       {"qwen2: system tools", "qwen2: tool tools", "qwen2: tool", "qwen2: tools in a row"}) {
    SCOPED_TRACE(name);
    const Ordered& wanted = golden(name);
    Ordered variables = wanted["variables"];
    if (variables["messages"][0]["role"] != "system") {  // Qwen adds one of its own
      const Ordered own = {
          {"role", "system"},
          {"content", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."}};
      variables["messages"].insert(variables["messages"].begin(), own);
    }
    auto prompt = rendered(chatml, variables);
    ASSERT_TRUE(prompt.is_ok()) << prompt.status().message();
    EXPECT_EQ(prompt->text, wanted["text"].get<std::string>());
  }
  // Without a system message there is one for them alone.
  Ordered variables = golden("qwen2: system tools")["variables"];
  variables["messages"].erase(0);
  auto prompt = rendered(chatml, variables);
  ASSERT_TRUE(prompt.is_ok()) << prompt.status().message();
  EXPECT_TRUE(prompt->text.starts_with("<|im_start|>system\n# Tools\n\n")) << prompt->text;
  EXPECT_NE(prompt->text.find("\"weather\""), std::string::npos);
  // They are the same in every prompt.
  EXPECT_TRUE(prompt->stable_head);
}

size_t n_bos(const text::Prompt& prompt, int32_t bos) {
  size_t n = 0;
  for (const text::Segment& s : prompt.segments) {
    n += static_cast<size_t>(std::count(s.tokens.begin(), s.tokens.end(), bos));
  }
  return n;
}

TEST(ChatTools, AreNeverControlTokens) {
  const auto t = tokenizer();
  const std::string tools = R"([{"function": {"name": "f", "description": "<s></s>"}}])";
  const std::string members =
      R"({"tool_calls": [{"function": {"name": "<s>", "arguments": "{\"a\": \"<s>\"}"}}]})";
  for (const char* const name : {"chatml: user", "qwen2: user", "llama3: user"}) {
    SCOPED_TRACE(name);
    const auto source = golden(name)["source"].get<std::string>();
    PromptOptions options;
    options.tools = tools;
    auto prompt = make_prompt(
        source, *t, {{"user", "u"}, {"assistant", "", members}, {"tool", "<s>"}}, {}, options);
    ASSERT_TRUE(prompt.is_ok()) << prompt.status().message();
    const size_t own = std::string_view(name).starts_with("llama3") ? 1 : 0;
    EXPECT_EQ(n_bos(*prompt, t->bos()), own) << prompt->text;
    EXPECT_NE(prompt->text.find("<s></s>"), std::string::npos) << prompt->text;
  }
}

TEST(ChatTools, AreNeverDroppedInSilence) {
  const auto t = tokenizer();
  PromptOptions options;
  options.tools = R"([{"function": {"name": "f"}}])";
  auto prompt = make_prompt("{{ messages[-1].content }}", *t, {{"user", "u"}}, {}, options);
  ASSERT_EQ(prompt.status().code(), BLEND_E_UNSUPPORTED);
  EXPECT_NE(prompt.status().message().find("no place for tools"), std::string::npos);
}

TEST(ChatTools, WrongOnesAreNamed) {
  const auto t = tokenizer();
  const auto said = [&](std::string_view tools, std::string_view members,
                        std::string_view variables = {}) {
    PromptOptions options;
    options.tools = tools;
    options.variables = variables;
    auto prompt = make_prompt("{{ tools }}", *t, {{"user", "u", members}}, {}, options);
    EXPECT_EQ(prompt.is_ok() ? 0 : prompt.status().code(), BLEND_E_INVALID_ARGUMENT);
    return prompt.is_ok() ? "" : prompt.status().message();
  };
  EXPECT_NE(said("{", "").find("the tools are not a JSON list"), std::string::npos);
  EXPECT_NE(said("{}", "").find("the tools are not a JSON list"), std::string::npos);
  EXPECT_NE(said("[1]", "").find("the tools are not a JSON list"), std::string::npos);
  EXPECT_NE(said("", "[]").find("message 0"), std::string::npos);
  EXPECT_NE(said("", R"({"role": "system"})").find("'role'"), std::string::npos);
  EXPECT_NE(said("", R"({"tool_calls": [{}]})").find("no function with a name"), std::string::npos);
  EXPECT_NE(said("", R"({"tool_calls": {"name": "f"}})").find("not a JSON list"),
            std::string::npos);
  EXPECT_NE(said("[{}]", "", R"({"tools": []})").find("twice"), std::string::npos);
  PromptOptions none;
  none.tools = "[]";
  EXPECT_TRUE(make_prompt("{{ messages }}", *t, {{"user", "u"}}, {}, none).is_ok());
}

}  // namespace
}  // namespace blend::chat

// Calls in what a model writes, in the forms of three families, however the text is cut into
// pieces.
#include "serve/tool_calls.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <string>

#include "serve/tools.h"

namespace blend_cli::serve {
namespace {

const std::vector<std::string> kNames = {"weather", "time"};

// The forms that blend_model_get_template_info tells.
ToolForm form(const char* open, const char* close) {
  ToolForm out;
  out.info.call_open = open;
  out.info.call_close = close;
  return out;
}
const ToolForm kHermes = form("<tool_call>", "</tool_call>");
const ToolForm kLlama = form("", "");
const ToolForm kMistral = form("[TOOL_CALLS]", "");

// What became of a text: "text|name(arguments)|...".
std::string read(const ToolForm& form, const std::string& text, size_t cut, size_t step,
                 bool is_cut = false, bool is_call = false) {
  ToolCallReader reader(form, kNames, is_call);
  std::string shown = reader.take(-1, text.substr(0, cut));
  for (size_t at = cut; at < text.size(); at += step)
    shown += reader.take(-1, text.substr(at, step));
  shown += reader.end(is_cut);
  for (const ToolCall& call : reader.calls()) shown += '|' + call.name + '(' + call.arguments + ')';
  return shown;
}

// The same in whatever pieces it comes.
void expect_read(const ToolForm& form, const std::string& text, const std::string& wanted,
                 bool is_cut = false, bool is_call = false) {
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    for (const size_t step : {size_t{1}, size_t{3}, SIZE_MAX / 2}) {
      ASSERT_EQ(read(form, text, cut, step, is_cut, is_call), wanted) << cut << ' ' << step;
    }
  }
}

TEST(ToolCalls, InTheFormOfHermes) {
  expect_read(kHermes, "Hello < there.\n", "Hello < there.\n");
  expect_read(kHermes, R"(<tool_call>
{"name": "weather", "arguments": {"town": "Wien", "a": [1, {}]}}
</tool_call>)",
              R"(|weather({"town": "Wien", "a": [1, {}]}))");
  expect_read(kHermes, R"(I look. <tool_call>{"name": "time"}</tool_call>
<tool_call>{"arguments": {"z": 1, "a": 2}, "name": "weather"}</tool_call>
)",
              R"(I look.|time({})|weather({"z": 1, "a": 2}))");
  // Arguments as a text of JSON.
  expect_read(kHermes, R"(<tool_call>{"name": "time", "arguments": "{\"a\": 1}"}</tool_call>)",
              R"(|time({"a": 1}))");
  // A mark in a string ends nothing, and an open string ends with its line.
  expect_read(kHermes,
              R"(<tool_call>{"name": "time", "arguments": {"a": "\"</tool_call> "}}</tool_call>)",
              R"(|time({"a": "\"</tool_call> "}))");
  expect_read(kHermes,
              "<tool_call>{\"name\": \"ti\n</tool_call><tool_call>{\"name\": \"time\"}</tool_call>",
              "<tool_call>{\"name\": \"ti\n</tool_call>|time({})");
  // The end mark may be missing: some models end with the call.
  expect_read(kHermes, R"(<tool_call>{"name": "time", "arguments": {}})", "|time({})");
}

TEST(ToolCalls, WhatIsNoCallStaysText) {
  for (const char* const text :
       {R"(<tool_call>{"name": "delete_all", "arguments": {}}</tool_call>)",
        R"(<tool_call>{"name": "time", "arguments": 3}</tool_call> x)",
        R"(<tool_call>{"name": "time", "arguments": {}</tool_call>)",
        R"(a <tool_call>no JSON</tool_call> b)", "<tool_call>", "a <tool_ b",
        R"(<tool_call>["name"]</tool_call>)", R"({"name": "time", "arguments": {}})"}) {
    expect_read(kHermes, text, text);
  }
  expect_read(kLlama, R"({"name": "delete_all", "parameters": {}})",
              R"({"name": "delete_all", "parameters": {}})");
  expect_read(kLlama, "{not JSON}", "{not JSON}");
  expect_read(kLlama, R"(See {"name": "time", "parameters": {}})",
              R"(See {"name": "time", "parameters": {}})");
  expect_read(kMistral, "[TOOL_CALLS] [{", "[TOOL_CALLS] [{");
  expect_read(kMistral, R"([TOOL_CALLS] [{"name": "time"}, {"name": "x"}])",
              R"([TOOL_CALLS] [{"name": "time"}, {"name": "x"}])");
}

TEST(ToolCalls, InTheFormOfLlama) {
  expect_read(kLlama, R"({"name": "weather", "parameters": {"town": "Wien"}})",
              R"(|weather({"town": "Wien"}))");
  expect_read(kLlama, "\n {\"name\": \"time\", \"parameters\": {}} ", "|time({})");
  expect_read(kLlama, "No call.", "No call.");
}

TEST(ToolCalls, InTheFormOfMistral) {
  expect_read(kMistral,
              R"([TOOL_CALLS] [{"name": "weather", "arguments": {"a": "]"}}, {"name": "time"}])",
              R"(|weather({"a": "]"})|time({}))");
  expect_read(kMistral, R"(Wait.[TOOL_CALLS]{"name": "time", "arguments": {}})", "Wait.|time({})");
}

// A control token has no text: its number tells where a call begins.
TEST(ToolCalls, AControlTokenBeforeThem) {
  ToolForm with = kMistral;
  with.open_token = 7;
  ToolCallReader reader(with, kNames, false);
  EXPECT_EQ(reader.take(5, "Wait."), "Wait.");
  EXPECT_EQ(reader.take(7, ""), "");
  EXPECT_EQ(reader.take(5, R"([{"name": "time"}])"), "");
  EXPECT_EQ(reader.end(false), "");
  ASSERT_EQ(reader.calls().size(), 1u);
  EXPECT_EQ(reader.calls()[0].name, "time");
}

// What max_tokens cut, as OpenAI gives it: the name, and as much of the arguments as there is.
TEST(ToolCalls, ACutCallHasItsArgumentsSoFar) {
  expect_read(kHermes, R"(<tool_call>{"name": "time", "arguments": {"a": "b)", R"(|time({"a": "b))",
              true);
  expect_read(kHermes, R"(<tool_call>{"name": "time", "argu)", "|time()", true);
  expect_read(kHermes, R"(<tool_call>{"name": "ti)", R"(<tool_call>{"name": "ti)", true);
  expect_read(kHermes, R"(<tool_call>{"name": "time", "arguments": {"a": "b)",
              R"(<tool_call>{"name": "time", "arguments": {"a": "b)");
}

// By a grammar: marks in its texts mean nothing.
TEST(ToolCalls, ATextThatIsACall) {
  const std::string arguments = R"({"a": "</tool_call><tool_call>"})";
  for (const ToolForm& form : {kHermes, kLlama, kMistral}) {
    expect_read(form, R"({"name": "time", "arguments": )" + arguments + "}",
                "|time(" + arguments + ")", false, true);
  }
}

// Whatever a model writes: the same in one piece and byte by byte, and nothing is lost where there
// is no call.
TEST(ToolCalls, WhateverAModelWrites) {
  static constexpr const char* kParts[] = {"<tool_call>",
                                           "</tool_call>",
                                           "[TOOL_CALLS]",
                                           "{\"name\": \"time\"}",
                                           "{",
                                           "}",
                                           "[",
                                           "]",
                                           "\"name\"",
                                           ": ",
                                           "\"time\"",
                                           "\"arguments\"",
                                           ",",
                                           " ",
                                           "\n",
                                           "\"",
                                           "\\",
                                           "<tool_",
                                           "x",
                                           "null"};
  std::mt19937 random(7);
  size_t n_calls = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (size_t n = random() % 12; n > 0; --n) text += kParts[random() % std::size(kParts)];
    for (const ToolForm& form : {kHermes, kLlama, kMistral}) {
      const bool is_cut = random() % 2 == 0;
      const std::string whole = read(form, text, text.size(), 1, is_cut);
      ASSERT_EQ(read(form, text, 0, 1, is_cut), whole) << text;
      const bool calls = whole.find("|time(") != whole.npos;
      n_calls += calls ? 1 : 0;
      if (!calls) {
        ASSERT_EQ(whole, text);
      }
    }
  }
  EXPECT_GT(n_calls, 100u);
}

// A search in all calls would take hours.
TEST(ToolCalls, ManyResultsFindTheirFunctions) {
  constexpr size_t kMany = 300000;
  std::map<std::string, std::string> calls;
  const auto id = [](size_t i) { return "call_" + std::to_string(i); };
  const auto called = [&](size_t i, const char* name) {
    const Json call = {{"id", id(i)}, {"function", {{"name", name}}}};
    tool_members({{"role", "assistant"}, {"tool_calls", Json::array({call})}}, "m", calls);
  };
  for (size_t i = 0; i < kMany; ++i) called(i, "time");
  called(0, "weather");  // the last call of an id counts
  for (size_t i = 0; i < kMany; ++i) {
    const Json result = {{"role", "tool"}, {"tool_call_id", id(i)}};
    const std::string name = i == 0 ? "weather" : "time";
    ASSERT_EQ(Json::parse(tool_members(result, "m", calls))["name"], name) << i;
  }
}

}  // namespace
}  // namespace blend_cli::serve

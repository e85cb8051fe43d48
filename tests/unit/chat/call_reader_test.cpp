// Calls in what a model writes, in the forms of three families, however the text is cut into
// pieces.
#include "chat/call_reader.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace blend::chat {
namespace {

const std::vector<std::string> kNames = {"weather", "time"};

const CallForm kHermes = {"<tool_call>", "</tool_call>"};
const CallForm kLlama = {"", ""};
const CallForm kMistral = {"[TOOL_CALLS]", ""};

// What became of a text: "text|name(arguments)|...".
std::string read(const CallForm& form, const std::string& text, size_t cut, size_t step,
                 bool is_cut = false, bool is_call = false) {
  CallReader reader({form, -1, kNames, is_call});
  std::string shown(reader.add(-1, text.substr(0, cut)));
  for (size_t at = cut; at < text.size(); at += step)
    shown += reader.add(-1, text.substr(at, step));
  shown += reader.end(is_cut);
  for (const Call& call : reader.calls()) shown += '|' + call.name + '(' + call.arguments + ')';
  return shown;
}

// The same in whatever pieces it comes.
void expect_read(const CallForm& form, const std::string& text, const std::string& wanted,
                 bool is_cut = false, bool is_call = false) {
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    for (const size_t step : {size_t{1}, size_t{3}, SIZE_MAX / 2}) {
      ASSERT_EQ(read(form, text, cut, step, is_cut, is_call), wanted) << cut << ' ' << step;
    }
  }
}

TEST(CallReader, InTheFormOfHermes) {
  expect_read(kHermes, "Hello < there.\n", "Hello < there.\n");
  expect_read(kHermes, R"(<tool_call>
{"name": "weather", "arguments": {"town": "Wien", "a": [1, {}]}}
</tool_call>)",
              R"(|weather({"town": "Wien", "a": [1, {}]}))");
  expect_read(kHermes, R"(I look. <tool_call>{"name": "time"}</tool_call>
<tool_call>{"arguments": {"z": 1, "a": 2}, "name": "weather"}</tool_call>
)",
              R"(I look.|time({})|weather({"z": 1, "a": 2}))");
  expect_read(kHermes, R"(<tool_call>{"name": "time"}</tool_call> and )", " and |time({})");
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

TEST(CallReader, WhatIsNoCallStaysText) {
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

TEST(CallReader, InTheFormOfLlama) {
  expect_read(kLlama, R"({"name": "weather", "parameters": {"town": "Wien"}})",
              R"(|weather({"town": "Wien"}))");
  expect_read(kLlama, "\n {\"name\": \"time\", \"parameters\": {}} ", "|time({})");
  expect_read(kLlama, "No call.", "No call.");
}

TEST(CallReader, InTheFormOfMistral) {
  expect_read(kMistral,
              R"([TOOL_CALLS] [{"name": "weather", "arguments": {"a": "]"}}, {"name": "time"}])",
              R"(|weather({"a": "]"})|time({}))");
  expect_read(kMistral, R"(Wait.[TOOL_CALLS]{"name": "time", "arguments": {}})", "Wait.|time({})");
}

// A control token has no text: its number tells where a call begins.
TEST(CallReader, AControlTokenBeforeThem) {
  CallReader reader({kMistral, 7, kNames, false});
  EXPECT_EQ(reader.add(5, "Wait."), "Wait.");
  EXPECT_EQ(reader.add(7, ""), "");
  EXPECT_EQ(reader.add(5, R"([{"name": "time"}])"), "");
  EXPECT_EQ(reader.end(false), "");
  ASSERT_EQ(reader.calls().size(), 1u);
  EXPECT_EQ(reader.calls()[0].name, "time");
}

// What max_tokens cut, as OpenAI gives it: the name, and as much of the arguments as there is.
TEST(CallReader, ACutCallHasItsArgumentsSoFar) {
  expect_read(kHermes, R"(<tool_call>{"name": "time", "arguments": {"a": "b)", R"(|time({"a": "b))",
              true);
  expect_read(kHermes, R"(<tool_call>{"name": "time", "argu)", "|time()", true);
  // In the mark after a call, which may be several tokens.
  expect_read(kHermes, R"(<tool_call>{"name": "time"}</tool_c)", "|time({})", true);
  // Arguments that cannot become an object.
  for (const char* const text : {R"(<tool_call>{"name": "time", "arguments": 5, "x)",
                                 R"(<tool_call>{"name": "time", "arguments": [1, 2], "b)"}) {
    expect_read(kHermes, text, text, true);
  }
  expect_read(kHermes, R"(<tool_call>{"name": "ti)", R"(<tool_call>{"name": "ti)", true);
  expect_read(kHermes, R"(<tool_call>{"name": "time", "arguments": {"a": "b)",
              R"(<tool_call>{"name": "time", "arguments": {"a": "b)");
}

// What JSON has no place for is no call, nor is what parsers read in two ways.
TEST(CallReader, OfJsonAlone) {
  const std::string deep = std::string(70, '[') + std::string(70, ']');
  for (const std::string& json : {
           std::string(R"({"name": "time", "name": "weather"})"),
           R"({"name": "time", "arguments": {"a": )" + deep + "}}",
           std::string(R"({"name": "time", "arguments": {"a": NaN}})"),
           std::string(R"({"name": "time", "arguments": {"a": 01}})"),
           std::string(R"({"name": "time", "arguments": {"a": 1e400}})"),
           std::string("{\"name\": \"time\", \"arguments\": {\"a\": \"\0\"}}", 41),
           std::string(R"({"name": "time"} {})"),
           std::string(R"({"name": ["time"]})"),
       }) {
    const std::string text = "<tool_call>" + json + "</tool_call>";
    expect_read(kHermes, text, text);
  }
  // Cut, a raw NUL shows that it goes on as no JSON does.
  const std::string cut("{\"name\": \"time\", \"arguments\": {\"a\": \"\0", 38);
  expect_read(kLlama, cut, cut, true);
}

// Without a list of functions: whatever has a name.
TEST(CallReader, OfAnyFunction) {
  CallReader reader({kHermes, -1, std::nullopt, false});
  EXPECT_EQ(reader.add(-1, "<tool_call>{\"name\": \"f\\u00e9\"}</tool_call>"), "");
  EXPECT_EQ(reader.add(-1, "<tool_call>{\"name\": \"\"}</tool_call>"),
            "<tool_call>{\"name\": \"\"}</tool_call>");
  EXPECT_EQ(reader.add(-1, "<tool_call>{\"name\": \"a\\u0000b\"}</tool_call>"),
            "<tool_call>{\"name\": \"a\\u0000b\"}</tool_call>");
  ASSERT_EQ(reader.calls().size(), 1u);
  EXPECT_EQ(reader.calls()[0].name, "f\u00e9");
}

// Work that were quadratic in these answers would take minutes.
TEST(CallReader, LongAnswers) {
  constexpr size_t kMany = 400000;
  const auto in_bytes = [](const CallForm& form, const std::string& text) {
    CallReader reader({form, -1, kNames, false});
    size_t shown = 0;
    for (const char c : text) shown += reader.add(-1, {&c, 1}).size();
    shown += reader.end(true).size();
    return std::pair(shown, reader.calls().size());
  };
  const std::string blank(kMany, ' ');
  EXPECT_EQ(in_bytes(kHermes, blank), std::pair(kMany, size_t{0}));
  EXPECT_EQ(in_bytes(kLlama, blank), std::pair(kMany, size_t{0}));
  EXPECT_EQ(in_bytes(kHermes, blank + "x").first, kMany + 1);
  // A call that holds the mark in a string, again and again.
  std::string call = R"(<tool_call>{"name": "time", "arguments": {"a": ")";
  for (size_t i = 0; i < kMany / 12; ++i) call += "</tool_call>";
  EXPECT_EQ(in_bytes(kHermes, call), std::pair(size_t{0}, size_t{1}));
  // Many marks in one piece.
  std::string marks;
  for (size_t i = 0; i < kMany / 25; ++i) marks += "<tool_call>x</tool_call>";
  CallReader reader({kHermes, -1, kNames, false});
  EXPECT_EQ(reader.add(-1, marks), marks);
  std::string calls;
  for (size_t i = 0; i < kMany / 40; ++i) calls += R"(<tool_call>{"name": "time"}</tool_call>)";
  EXPECT_EQ(reader.add(-1, calls), "");
  EXPECT_EQ(reader.calls().size(), kMany / 40);
}

// By a grammar: marks in its texts mean nothing.
TEST(CallReader, ATextThatIsACall) {
  const std::string arguments = R"({"a": "</tool_call><tool_call>"})";
  for (const CallForm& form : {kHermes, kLlama, kMistral}) {
    expect_read(form, R"({"name": "time", "arguments": )" + arguments + "}",
                "|time(" + arguments + ")", false, true);
  }
}

// Whatever a model writes: the same in one piece and byte by byte, and nothing is lost where there
// is no call.
TEST(CallReader, WhateverAModelWrites) {
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
    for (const CallForm& form : {kHermes, kLlama, kMistral}) {
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

}  // namespace
}  // namespace blend::chat

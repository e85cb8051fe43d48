// Templates against what jinja2 makes of them, and what is refused.
#include "chat/template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace blend::chat {
namespace {

Result<Text> render(std::string_view source, const std::string& variables = "{}",
                    size_t fuel = Template::kFuel, int64_t now = 0) {
  auto parsed = Template::parse(source);
  if (!parsed.is_ok()) return parsed.status();
  auto json = Json::parse(variables);
  if (!json.is_ok()) return json.status();
  Variables all;
  for (const auto& [name, member] : *json->object()) {
    auto value = Value::from_json(member, kMessage);
    if (!value.is_ok()) return value.status();
    all.emplace(name, *value);
  }
  return parsed->render(all, now, fuel);
}

std::string text_of(std::string_view source, const std::string& variables = "{}") {
  auto text = render(source, variables);
  return text.is_ok() ? text->bytes() : "error: " + text.status().message();
}

TEST(ChatTemplate, MakesOfEveryGoldenWhatJinjaMakes) {
  std::ifstream file(BLEND_TEST_SOURCE_DIR "/unit/chat/golden/goldens.json");
  const auto goldens = nlohmann::ordered_json::parse(file);
  size_t n = 0;
  for (const auto& golden : goldens["cases"]) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    auto text = render(golden["source"].get<std::string>(), golden["variables"].dump(),
                       Template::kFuel, goldens["now"].get<int64_t>());
    ++n;
    if (golden.contains("error")) {
      EXPECT_FALSE(text.is_ok()) << golden["error"];
      continue;
    }
    ASSERT_TRUE(text.is_ok()) << text.status().message();
    EXPECT_EQ(text->bytes(), golden["text"].get<std::string>());
  }
  EXPECT_GT(n, 200u);
}

TEST(ChatTemplate, KeepsWhereEveryByteCameFrom) {
  auto text = render(
      "{% for m in messages %}<{{ (m | trim).split('-')[1].replace('b', 'x')[::-1] ~ '|' }}>"
      "{{ m | tojson }}{% endfor %}",
      R"({"messages": [" a-bcd "]})");
  ASSERT_TRUE(text.is_ok()) << text.status().message();
  EXPECT_EQ(text->bytes(), R"(<dcx|>" a-bcd ")");
  const std::vector<Text::Run> wanted = {
      {1, kTemplate}, {3, kMessage}, {7, kTemplate}, {14, kMessage}, {15, kTemplate}};
  EXPECT_EQ(text->runs(), wanted);
}

// A format that comes from the host keeps the host's origin in the formatted text.
TEST(ChatTemplate, FormatsFromTheHostAreNotTheTemplates) {
  for (const char* const use :
       {"{{ strftime_now(x) }}", "{{ [1, 2] | tojson(separators=(x, ':')) }}",
        "{{ {'a': 1} | tojson(separators=(',', x)) }}", "{{ [1] | tojson(indent=x) }}"}) {
    SCOPED_TRACE(use);
    auto text = render(use, R"({"x": "<s>"})");
    ASSERT_TRUE(text.is_ok()) << text.status().message();
    const size_t at = text->bytes().find("<s>");
    ASSERT_NE(at, std::string::npos);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(text->origin(at + i), kMessage);
  }
}

TEST(ChatTemplate, TheLastYearThereIsIsWritten) {
  auto text = render("{{ strftime_now('%Y') }}", "{}", Template::kFuel, 67768036191590399);
  ASSERT_TRUE(text.is_ok()) << text.status().message();
  EXPECT_EQ(text->bytes(), "2147485547");
}

TEST(ChatTemplate, WhatATemplateRaisesIsASentenceOfItsOwn) {
  auto text = render("\n{{ raise_exception('Roles must alternate') }}");
  ASSERT_FALSE(text.is_ok());
  EXPECT_EQ(text.status().code(), BLEND_E_INVALID_ARGUMENT);
  EXPECT_EQ(text.status().message(),
            "line 2 of the chat template: the model's chat template refuses: Roles must alternate");
}

TEST(ChatTemplate, RefusesByNameWhatItDoesNotKnow) {
  const std::pair<const char*, const char*> kCases[] = {
      {"{% include 'x' %}", "{% include %}"},
      {"{% extends 'x' %}", "{% extends %}"},
      {"{% for x in [1] recursive %}{% endfor %}", "recursive"},
      {"{{ 'x' | wordwrap }}", "wordwrap"},
      {"{{ 1 is escaped }}", "escaped"},
      {"{{ 'x'.encode() }}", "encode"},
      {"{{ lipsum() }}", "lipsum"},
      {"{{ 'é' | upper }}", "upper"},
      {"{{ '%s' % 1 }}", "%"},
      {"{{ strftime_now('%c') }}", "%c"},
      {"{{ ''.__class__.__mro__ }}", "__class__"},
      {"{% for x in [1] %}{{ loop.changed(x) }}{% endfor %}", "loop.changed"},
      // Left out in silence, each would give another text than Jinja's.
      {"{{ 'abc'.startswith('b', 1) }}", "startswith with 2 arguments"},
      {"{{ 'abc'.find('b', 2) }}", "find with 2 arguments"},
      {"{{ 'ff' | int(base=16) }}", "int(base=...)"},
      {"{{ 'a' | trim(side='left') }}", "trim(side=...)"},
      {"{{ [1] | first(2) }}", "first with 1 arguments"},
      {"{{ ['a'] | unique(true) }}", "unique with arguments"},
      {"{{ {} | tojson(sort_keys=true) }}", "sort_keys"},
      {"{{ {} | tojson(true) }}", "tojson with arguments without names"},
      {"{% macro m(a) %}{{ varargs }}{% endmacro %}{{ m(1) }}", "varargs"},
      {"{% macro m(a) %}{{ kwargs }}{% endmacro %}{{ m(1) }}", "kwargs"},
      {"{% for i in [1] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "macro 'm'"},
      {"{% generation %}{% macro m() %}{% endmacro %}{% endgeneration %}", "macro 'm'"},
      {"{{ 10000000000000000000 }}", "64 bits"},
      {"{{ 0xffffffffffffffff }}", "64 bits"},
      {"{{ '99999999999999999999' | int }}", "64 bits"},
      {"{{ 1e30 | int }}", "64 bits"},
      {"{{ (-9223372036854775807 - 1) | abs }}", "64 bits"},
      {"{{ 9007199254740993 / 3 }}", "53 bits"},
      {"{{ '٣' | int }}", "not ASCII"},
      {"{{ ['É', 'è'] | sort }}", "capital letters"},
      {"{{ ['É', 'é'] | unique | list }}", "capital letters"},
      {"{{ {'É': 1} | dictsort }}", "capital letters"},
      {"{{ größe }}", "a name of other letters"},
      {"{{ '\\é' }}", "a backslash"},
      {"{{ '\\N{BULLET}' }}", "\\N{...}"},
      {"{{ '\\ud800' }}", "surrogate"},
      {"{{ {'pop': 1}.pop }}", "pop"},
      {"{{ 'x'.format is defined }}", "format"},
      {"{{ [1].append }}", "append"},
      {"{{ 1.real }}", "real"},
      {"{{ {}.__len__ is defined }}", "__len__"},
      {"{{ {}['__class__'] }}", "__class__"},
      {"{{ ['x'] | map(attribute='upper') | list }}", "upper"},
      {"{{ [1] | map(attribute=1.5) | list }}", "attribute of a number"},
      {"{{ [{}] | map(attribute='a', other=1) | list }}", "map(other=...)"},
      {"{{ ('<b>' | safe) + '<' }}", "'safe'"},
      {"{{ ('a' | safe | trim).replace('a', '<') }}", "'safe'"},
      {"{{ ','.join(['<']) ~ ('x' if true else ('y' | safe)).join(['<']) }}", "'safe'"},
      {"{% set x = 'a' | safe %}{{ x + '<' }}", "'safe'"},
      {"{% for (a, b), c in [((1, 2), 3)] %}{% endfor %}", "names in brackets"},
      {"{% set a, (b, c) = 1, (2, 3) %}", "names in brackets"},
      {"{% set n = namespace() %}{% set n.a, b = 1, 2 %}", "a namespace's member"},
      {"{{ dict(a=1, a=2) }}", "'a' twice"},
      {"{% macro m(a, a) %}{% endmacro %}", "'a' twice"},
      {"{{ strftime_now('%Y\\x00') }}", "a character 0"},
  };
  for (const auto& [source, named] : kCases) {
    SCOPED_TRACE(source);
    auto text = render(source);
    ASSERT_FALSE(text.is_ok()) << text->bytes();
    EXPECT_NE(text.status().message().find(named), std::string::npos) << text.status().message();
  }
}

TEST(ChatTemplate, WholeNumbersThatNoIntegerHoldsAreRefused) {
  for (const char* const number : {"9223372036854775808", "12345678901234567890123", "-1e3"}) {
    auto json = Json::parse(number);
    ASSERT_TRUE(json.is_ok());
    auto value = Value::from_json(*json, kMessage);
    EXPECT_EQ(value.is_ok(), std::string_view(number) == "-1e3") << number;
    if (!value.is_ok()) {
      EXPECT_EQ(value.status().code(), BLEND_E_UNSUPPORTED);
    }
  }
}

TEST(ChatTemplate, NamesTheLineOfWhatIsNoJinja) {
  for (const char* const source : {"{% if %}",
                                   "{{ 1 + }}",
                                   "{{ (1 }}",
                                   "{% for in x %}{% endfor %}",
                                   "{% endif %}",
                                   "{% if 1 %}",
                                   "{{ 'x }}",
                                   "{{ 1",
                                   "{# x",
                                   "{% raw %}x",
                                   "{{ [1, 2 }}",
                                   "{{ ) }}",
                                   "{% %}",
                                   "{{ $ }}",
                                   "{{ 99999999999999999999 }}",
                                   "{{ '\\ud800' }}",
                                   "{% break %}",
                                   "{% set 1 = 2 %}",
                                   "{% nonsense %}",
                                   "{{ a b }}"}) {
    SCOPED_TRACE(source);
    auto text = render(std::string("\n\n") + source);
    ASSERT_FALSE(text.is_ok());
    EXPECT_NE(text.status().message().find("line 3 of the chat template"), std::string::npos)
        << text.status().message();
  }
}

// A template is a stranger's: it may not take the process's memory, stack or time.
TEST(ChatTemplate, IsBounded) {
  const std::string deep_brackets =
      "{{ " + std::string(100000, '(') + "1" + std::string(100000, ')') + " }}";
  std::string chain = "{{ 1";
  for (int i = 0; i < 100000; ++i) chain += "+1";
  std::string members = "{{ a";
  for (int i = 0; i < 100000; ++i) members += ".b";
  std::string blocks;
  for (int i = 0; i < 100000; ++i) blocks += "{% if 1 %}";
  std::string nots = "{{ ";
  for (int i = 0; i < 100000; ++i) nots += "not ";
  std::string signs = "{{ " + std::string(100000, '-') + "1 }}";
  const std::string kCases[] = {
      deep_brackets,
      chain + " }}",
      members + " }}",
      blocks,
      nots + "1 }}",
      signs,
      "{% for a in range(1000000000) %}{% endfor %}",
      "{% for a in range(10000) %}{% for b in range(10000) %}{% for c in range(10000) %}x{% endfor "
      "%}{% endfor %}{% endfor %}",
      "{{ 'x' * 9999999999 }}",
      "{% set n = namespace(s='xxxxxxxx') %}{% for i in range(100) %}{% set n.s = n.s ~ n.s %}{% "
      "endfor %}",
      "{% set n = namespace(l=[]) %}{% for i in range(1000) %}{% set n.l = [n.l] %}{% endfor %}",
      "{% set n = namespace(l=[1]) %}{% for i in range(40) %}{% set n.l = [n.l, n.l] %}{% endfor "
      "%}{{ n.l }}",
      "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}",
      "{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = n.l + n.l %}{% endfor %}",
  };
  for (const std::string& source : kCases) {
    SCOPED_TRACE(source.substr(0, 100));
    auto text = render(source);
    ASSERT_FALSE(text.is_ok());
    EXPECT_EQ(text.status().code(), BLEND_E_UNSUPPORTED) << text.status().message();
  }
  // A namespace that holds itself does not leak, and a loop may outlive its iteration.
  EXPECT_EQ(text_of("{% set n = namespace() %}{% set n.n = n %}{{ n.n.n is defined }}"), "True");
  EXPECT_EQ(text_of("{% set n = namespace() %}{% for x in [7] %}{% set n.l = loop %}{% endfor %}"
                    "{{ n.l.index }}"),
            "1");
}

TEST(ChatTemplate, WorkIsInProportionToWhatTheHostGives) {
  const std::string content(1 << 20, 'x');
  auto text = render("{% for m in messages %}{{ m | trim }}{% endfor %}",
                     nlohmann::json{{"messages", {content, content}}}.dump(), 1 << 12);
  ASSERT_TRUE(text.is_ok()) << text.status().message();
  EXPECT_EQ(text->size(), 2u << 20);
}

}  // namespace
}  // namespace blend::chat

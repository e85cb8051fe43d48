// What a call must be, by the functions of a list.
#include "chat/call_schema.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace blend::chat {
namespace {

using Ordered = nlohmann::ordered_json;

Ordered schema_of(const std::string& tools, const std::string& function = {},
                  const std::string& arguments = "arguments") {
  auto made = call_schema(tools, function, arguments);
  EXPECT_TRUE(made.is_ok()) << made.status().message();
  return made.is_ok() ? Ordered::parse(*made) : Ordered();
}

constexpr const char* kTime = R"({"type": "function", "function": {"name": "time"}})";
constexpr const char* kWeather =
    R"({"type": "function", "function": {"name": "weather", "parameters":
    {"type": "object", "properties": {"town": {"type": "string"}, "days": {"maximum": 5e-1}},
     "required": ["town"]}}})";

std::string list_of(const std::string& one, const std::string& two) {
  return "[" + one + ", " + two + "]";
}

TEST(CallSchema, IsOfOneOfTheFunctions) {
  const Ordered wanted = Ordered::parse(R"({"anyOf": [
    {"type": "object", "properties": {"name": {"const": "time"}, "parameters": {"$ref": "#/$defs/f0"}},
     "required": ["name", "parameters"], "additionalProperties": false},
    {"type": "object", "properties": {"name": {"const": "weather"}, "parameters": {"$ref": "#/$defs/f1"}},
     "required": ["name", "parameters"], "additionalProperties": false}],
    "$defs": {"f0": {"type": "object", "additionalProperties": false},
              "f1": {"type": "object", "properties": {"town": {"type": "string"}, "days": {"maximum": 0.5}},
                     "required": ["town"]}}})");
  // Members keep their order, in which the model writes them.
  EXPECT_EQ(schema_of(list_of(kTime, kWeather), "", "parameters").dump(), wanted.dump());
  // Functions may stand alone, and say that they have no parameters.
  EXPECT_EQ(schema_of(R"([{"name": "time", "parameters": null}])"),
            schema_of(std::string("[") + kTime + "]"));
}

TEST(CallSchema, MayBeOfOneFunctionAlone) {
  const Ordered schema = schema_of(list_of(kTime, kWeather), "weather");
  ASSERT_EQ(schema["anyOf"].size(), 1u);
  EXPECT_EQ(schema["anyOf"][0]["properties"]["name"], Ordered({{"const", "weather"}}));
  EXPECT_EQ(schema["$defs"].size(), 1u);
}

TEST(CallSchema, ReferencesNameTheSamePartsAsBefore) {
  // Names of parameters may be words of JSON Schema; data is no schema.
  const Ordered schema = schema_of(list_of(kTime, R"({"name": "tree", "parameters": {
    "$defs": {"node": {"properties": {"$defs": {"$ref": "#/$defs/node"}, "const": {"$ref": "#/definitions/n"}}}},
    "definitions": {"n": {"const": {"$ref": "#/$defs/x"}}},
    "properties": {"root": {"$ref": "#/$defs/node"}, "all": {"items": [{"$ref": "#"}]},
                   "definitions": {"enum": [{"$ref": "#"}]}}}})"));
  const Ordered& defs = schema["$defs"];
  EXPECT_EQ(defs["f1"], Ordered::parse(R"({"properties": {"root": {"$ref": "#/$defs/f1.node"},
    "all": {"items": [{"$ref": "#/$defs/f1"}]}, "definitions": {"enum": [{"$ref": "#"}]}},
    "type": "object"})"));
  EXPECT_EQ(defs["f1.node"]["properties"],
            Ordered::parse(
                R"({"$defs": {"$ref": "#/$defs/f1.node"}, "const": {"$ref": "#/$defs/f1:n"}})"));
  EXPECT_EQ(defs["f1:n"], Ordered::parse(R"({"const": {"$ref": "#/$defs/x"}})"));
}

TEST(CallSchema, ArgumentsAreAnObject) {
  const auto typed = [](const std::string& parameters) {
    return schema_of(R"([{"name": "f", "parameters": )" + parameters + "}]")["$defs"]["f0"].dump();
  };
  EXPECT_EQ(typed("{}"), R"({"type":"object"})");
  EXPECT_EQ(typed(R"({"required": ["a"]})"), R"({"required":["a"],"type":"object"})");
  EXPECT_EQ(typed(R"({"enum": ["a", {}]})"), R"({"enum":["a",{}],"type":"object"})");
  EXPECT_EQ(typed(R"({"const": {"a": 1}})"), R"({"const":{"a":1},"type":"object"})");
  EXPECT_EQ(typed(R"({"type": ["null", "object"]})"), R"({"type":"object"})");
  // A type beside alternatives or a reference would not be kept: what they lead to has it.
  EXPECT_EQ(typed(R"({"anyOf": [{"type": "object"}, true, {"allOf": [{"required": ["a"]}]}]})"),
            R"({"anyOf":[{"type":"object"},{"type":"object"},)"
            R"({"allOf":[{"required":["a"],"type":"object"}]}]})");
}

TEST(CallSchema, WhatArgumentsReferToIsAnObjectToo) {
  const Ordered defs = schema_of(R"([{"name": "f", "parameters": {"$ref": "#/$defs/a",
    "$defs": {"a": {"oneOf": [{"$ref": "#/definitions/b"}, {"$ref": "#"}]}, "c": {}},
    "definitions": {"b": {"properties": {"x": {"$ref": "#/$defs/c"}, "y": {"enum": ["s"]}}}}}}])")
      ["$defs"];
  EXPECT_EQ(defs["f0"].dump(), R"({"$ref":"#/$defs/f0.a"})");
  EXPECT_EQ(defs["f0:b"], Ordered::parse(R"({"properties": {"x": {"$ref": "#/$defs/f0.c"},
    "y": {"enum": ["s"]}}, "type": "object"})"));
  EXPECT_EQ(defs["f0.c"].dump(), "{}");  // of a member alone
}

TEST(CallSchema, NumbersBeyond64BitsStay) {
  const std::string made = *call_schema(
      R"([{"name": "f", "parameters": {"properties": {"n": {"type": "integer", "default":
      18446744073709551616, "x-a": [-1e30, 1.5, -3, 9223372036854775807]}}}}])",
      "", "arguments");
  EXPECT_NE(made.find(R"({"type":"integer","default":18446744073709551616,)"
                      R"("x-a":[-1e+30,1.5,-3,9223372036854775807]})"),
            std::string::npos)
      << made;
}

TEST(CallSchema, PartsStandWhereTheListHasThem) {
  const std::string tools = list_of(kTime, R"({"name": "tree"})");
  const auto place = [&](const char* definition) {
    const ParametersPlace found = place_of_definition(tools, definition);
    return found.of + " at " + found.path;
  };
  EXPECT_EQ(place("f0"), "the parameters of the function 'time' at #");
  EXPECT_EQ(place("f1.a:b"), "the parameters of the function 'tree' at #/$defs/a:b");
  EXPECT_EQ(place("f1:n"), "the parameters of the function 'tree' at #/definitions/n");
  EXPECT_EQ(place("f2"), "the functions' parameters at #");
  EXPECT_EQ(place(""), "the functions' parameters at #");
}

std::string refused(const std::string& tools, const std::string& function = {}) {
  auto made = call_schema(tools, function, "arguments");
  return made.is_ok() ? "made: " + *made : made.status().message();
}

TEST(CallSchema, WhatIsWrongIsNamed) {
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(refused(""), "not a JSON list");
  has(refused("{}"), "not a JSON list");
  has(refused("[]"), "no function");
  has(refused(R"([{"name": "f"}, {"type": "function"}])"), "tool 1");
  has(refused(R"([{"name": "f"}])", "g"), "'g'");
  has(refused(R"([{"name": "f", "parameters": true}])"), "'f': they must be an object");
  has(refused(R"([{"name": "f", "parameters": {"type": "string"}}])"),
      "'f': they must be a schema");
  has(refused(R"([{"name": "f"}, {"name": ""}])"), "tool 1: its name is empty");
  has(refused(R"([{"name": "f\u0000g"}])"), "tool 0: its name has a NUL");
  for (const char* const parameters :
       {R"({"anyOf": [{"type": "object"}, {"type": "null"}]})", R"({"type": ["string", "null"]})",
        R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}})"}) {
    has(refused(std::string(R"([{"name": "f", "parameters": )") + parameters + "}]"),
        "'f': they must be a schema");
  }
}

// Names were cut inside a character.
TEST(CallSchema, AnErrorsNamesEndWithACharacter) {
  const std::string long_name = std::string(63, 'x') + "\u00e9";
  for (const std::string& said :
       {refused("[{\"name\": \"" + long_name + "\", \"parameters\": 1}]"),
        refused(R"([{"name": "f"}])", std::string(63, 'x') + "\xC3\xA9")}) {
    EXPECT_NE(said.find(std::string(63, 'x') + "'"), std::string::npos) << said;
  }
}

// Overflows the stack if broken.
TEST(CallSchema, LongChainsOfReferencesAreFollowed) {
  std::string parameters = R"({"$ref": "#/$defs/0", "$defs": {)";
  const int n = 100000;
  for (int i = 0; i < n; ++i) {
    parameters +=
        '"' + std::to_string(i) + R"(": {"$ref": "#/$defs/)" + std::to_string(i + 1) + "\"},";
  }
  parameters += '"' + std::to_string(n) + "\": {}}}";
  const std::string made =
      *call_schema(R"([{"name": "f", "parameters": )" + parameters + "}]", "", "arguments");
  EXPECT_NE(made.find(R"("f0.100000":{"type":"object"})"), std::string::npos);
}

// Hangs if broken: searches in all names for each name.
TEST(CallSchema, ManyMembersTakeLinearTime) {
  std::string parameters = R"({"properties": {)";
  for (int i = 0; i < 300000; ++i) {
    parameters += (i > 0 ? ",\"" : "\"") + std::to_string(i) + R"(":{"$ref":"#"})";
  }
  const std::string made =
      *call_schema(R"([{"name": "f", "parameters": )" + parameters + "}}}]", "", "arguments");
  EXPECT_NE(made.find(R"("299999":{"$ref":"#/$defs/f0"})"), std::string::npos);
}

}  // namespace
}  // namespace blend::chat

#include "grammar/json_schema.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace blend::test {
namespace {

using grammar::kept_json_schema;

std::string kept(std::string_view schema) {
  // As the compiler judges it, simply.
  auto found = kept_json_schema(
      schema, [](const std::string& pattern) { return pattern.find('"') == pattern.npos; });
  return found.is_ok() ? *found : "refused: " + found.status().message();
}

TEST(JsonSchema, KeepsWhatItKnowsAndIsClosedByDefault) {
  EXPECT_EQ(kept("{}"), "{}");
  EXPECT_EQ(kept("true"), "{}");
  EXPECT_EQ(kept(R"({"title":"T","description":"d","x-order":1})"), "{}");
  EXPECT_EQ(kept(R"({"type":"object"})"), R"({"type":"object","additionalProperties":true})");
  EXPECT_EQ(kept(R"({"type":"array"})"), R"({"type":"array","items":true})");
  EXPECT_EQ(
      kept(R"({"type":"object","properties":{"b":{"type":"null"},"a":{}}})"),
      R"({"type":"object","properties":{"b":{"type":"null"},"a":{}},"additionalProperties":false})");
  EXPECT_EQ(kept(R"({"prefixItems":[{}]})"),
            R"({"type":"array","prefixItems":[{}],"items":false})");
  EXPECT_EQ(kept(R"({"minimum":0.5})"), R"({"type":"number","minimum":0.5})");
  EXPECT_EQ(kept(R"({"type":"string","minimum":5,"maxLength":3.0})"),
            R"({"type":"string","maxLength":3})");
  EXPECT_EQ(kept(R"({"const":"a\"\n"})"), R"({"enum":["a\"\u000a"]})");
}

TEST(JsonSchema, PatternsAreAscii) {
  EXPECT_EQ(kept(R"({"pattern":"^[é-ü]日😀\\d$"})"),
            R"({"type":"string","pattern":"^[\\u{e9}-\\u{fc}]\\u{65e5}\\u{1f600}\\d$"})");
  EXPECT_EQ(
      kept(R"({"type":"object","patternProperties":{"^é$":{}}})"),
      R"({"type":"object","patternProperties":{"^\\u{e9}$":{}},"additionalProperties":false})");
  EXPECT_NE(kept(R"({"pattern":"a\"b"})").find("'pattern'"), std::string::npos);
}

TEST(JsonSchema, FiltersValuesByType) {
  EXPECT_EQ(kept(R"({"type":["string","integer"],"enum":["a",1,1.5,null,2.0]})"),
            R"({"enum":["a",1,2]})");
  EXPECT_NE(kept(R"({"type":"string","const":1})").find("no value"), std::string::npos);
}

TEST(JsonSchema, GivesRequiredMembersASchema) {
  EXPECT_EQ(
      kept(R"({"type":"object","required":["a"]})"),
      R"({"type":"object","required":["a"],"properties":{"a":{}},"additionalProperties":false})");
  EXPECT_EQ(
      kept(R"({"required":["a"],"additionalProperties":{"type":"null"}})"),
      R"({"type":"object","required":["a"],"properties":{"a":{"type":"null"}},"additionalProperties":{"type":"null"}})");
}

TEST(JsonSchema, WhatIsKeptIsKeptAgain) {
  for (const char* const schema :
       {R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"array","items":{"$ref":"#"}}}})",
        R"({"anyOf":[{"type":"string","pattern":"^a$"},{"oneOf":[{"const":1}]}]})",
        R"({"type":"object","patternProperties":{"^a$":{"type":"boolean"}}})"}) {
    const std::string once = kept(schema);
    EXPECT_TRUE(Json::parse(once).is_ok()) << once;
    EXPECT_EQ(kept(once), once);
  }
}

TEST(JsonSchema, RefusesByNameWhatCannotBeKept) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"({"not":{}})", "'not'"},
      {R"({"if":{},"then":{}})", "'if'"},
      {R"({"type":"array","uniqueItems":true})", "'uniqueItems'"},
      {R"({"type":"array","contains":{}})", "'contains'"},
      {R"({"type":"array","items":[{}]})", "prefixItems"},
      {R"({"type":"object","properties":{"a":{"foo":1}}})", "#/properties/a: 'foo'"},
      {R"({"$ref":"#","type":"object"})", "beside '$ref'"},
      {R"({"$ref":"http://example.org/x"})", "'$ref'"},
      {R"({"$ref":"#/$defs/a"})", "not there"},
      {R"({"anyOf":[{}],"properties":{}})", "beside 'anyOf'"},
      {R"({"anyOf":[{}],"oneOf":[{}]})", "beside"},
      {R"({"allOf":[{},{}]})", "'allOf'"},
      {R"({"minLength":1,"minimum":1})", "give a 'type'"},
      {R"({"properties":{"a":false}})", "'false'"},
      {R"({"type":"object","minProperties":2})", "'minProperties'"},
      {R"({"type":"object","patternProperties":{"a":{},"b":{}}})", "one pattern"},
      {R"({"type":"object","patternProperties":{"a":{}},"properties":{"b":{}}})", "beside"},
      {R"({"type":"object","required":["b"],"additionalProperties":false})", "'b' is required"},
      {R"({"type":"string","pattern":"a","format":"date"})", "'format'"},
      {R"({"const":123456789012345678901234567890})", "64 bits"},
      {R"({"type":"array","minItems":-1})", "'minItems'"},
      {R"({"type":"string","maxLength":1.5})", "'maxLength'"},
      {R"({"enum":[]})", "no value"},
      {R"({"type":[]})", "'type' is empty"},
      {R"([])", "must be an object"},
      {R"({"a":1,"a":2})", "twice"},
      {R"(5)", "must be an object"},
  };
  for (const auto& [schema, word] : cases) {
    const std::string said = kept(schema);
    EXPECT_TRUE(said.starts_with("refused: ")) << schema << " -> " << said;
    EXPECT_NE(said.find(word), std::string::npos) << schema << " -> " << said;
  }
}

}  // namespace
}  // namespace blend::test

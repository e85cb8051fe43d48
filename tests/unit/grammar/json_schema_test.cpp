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
      {R"({"$ref":"#"})", "at #: nothing satisfies it"},
      {R"({"properties":{"x":{"$ref":"#/$defs/a"}},"$defs":{"a":{"$ref":"#/definitions/b"}},)"
       R"("definitions":{"b":{"$ref":"#/$defs/a"}}})",
       "nothing satisfies it"},
  };
  for (const auto& [schema, word] : cases) {
    const std::string said = kept(schema);
    EXPECT_TRUE(said.starts_with("refused: ")) << schema << " -> " << said;
    EXPECT_NE(said.find(word), std::string::npos) << schema << " -> " << said;
  }
}

TEST(JsonSchema, ValuesThatNeverEndAreRefusedWhereTheyBegin) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"properties":{"a":{"$ref":"#"}},"required":["a"]})", "at #: nothing"},
      {R"({"type":"array","items":{"$ref":"#"},"minItems":1})", "at #: nothing"},
      {R"({"type":"array","prefixItems":[{},{"$ref":"#"}]})", "at #: nothing"},
      {R"({"anyOf":[{"$ref":"#"},{"minItems":3,"items":{"$ref":"#"}}]})", "at #: nothing"},
      {R"({"type":["object","array"],"required":["a"],"additionalProperties":{"$ref":"#"},)"
       R"("minItems":1,"items":{"$ref":"#"}})",
       "at #: nothing"},
      {R"({"minProperties":1,"properties":{"a":{"$ref":"#"}}})", "at #: nothing"},
      {R"({"minProperties":2,"properties":{"a":{},"b":{"$ref":"#"}}})", "at #: nothing"},
      {R"({"minProperties":2,"required":["a"],"properties":{"a":{},"b":{"$ref":"#"}}})",
       "at #: nothing"},
      {R"({"properties":{"p":{"$ref":"#/$defs/list"}},"$defs":{"list":{"allOf":[{"$ref":)"
       R"("#/$defs/link"}]},"link":{"properties":{"next":{"$ref":"#/$defs/list"}},)"
       R"("required":["next"]}}})",
       "at #/$defs/list: nothing"},
  };
  for (const auto& [schema, word] : cases) {
    const std::string said = kept(schema);
    EXPECT_TRUE(said.starts_with("refused: ")) << schema << " -> " << said;
    EXPECT_NE(said.find(word), std::string::npos) << schema << " -> " << said;
  }
}

TEST(JsonSchema, ReferencesMayLeadBackWhereValuesCanEnd) {
  for (
      const char* const schema :
      {R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},)"
       R"("b":{"type":"array","items":{"$ref":"#/$defs/a"}}}})",
       R"({"properties":{"a":{"$ref":"#"}}})",
       R"({"properties":{"a":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["a"]})",
       R"({"type":["object","string"],"properties":{"a":{"$ref":"#"}},"required":["a"]})",
       R"({"type":"array","prefixItems":[{}],"items":{"$ref":"#"},"minItems":1})",
       R"({"minProperties":1,"properties":{"a":{"$ref":"#"},"b":{}}})",
       R"({"minProperties":2,"required":["a"],"properties":{"a":{},"b":{},"c":{"$ref":"#"}}})",
       R"({"type":"string","$defs":{"x":{"required":["y"],"properties":{"y":{"$ref":"#/$defs/x"}}}}})",
       R"({"properties":{"a":{"type":"object","properties":{"b":{"$ref":"#"}},"required":["b"]}}})"}) {
    EXPECT_EQ(kept(schema).find("refused"), std::string::npos) << schema << " -> " << kept(schema);
  }
}

// A chain of definitions, each of which needs the next one.
TEST(JsonSchema, LongChainsTakeNoStack) {
  constexpr int kLinks = 20000;
  const auto chain = [](const std::string& last) {
    std::string schema = R"({"$ref":"#/$defs/0","$defs":{)";
    for (int i = 0; i < kLinks; ++i) {
      const std::string next = i + 1 < kLinks ? "#/$defs/" + std::to_string(i + 1) : last;
      schema += (i == 0 ? "\"" : ",\"") + std::to_string(i) +
                R"(":{"type":"array","minItems":1,"items":{"$ref":")" + next + "\"}}";
    }
    return schema + R"(,"end":{}}})";
  };
  EXPECT_EQ(kept(chain("#/$defs/end")).find("refused"), std::string::npos);
  EXPECT_NE(kept(chain("#/$defs/0")).find("nothing satisfies it"), std::string::npos);
}

TEST(JsonSchema, ErrorsSayWhoseADefinitionIs) {
  const auto said = [](std::string_view schema) {
    return kept_json_schema(
               schema, [](const std::string&) { return true; },
               [](const std::string& name) {
                 return grammar::SchemaPlace{"the schema of " + name, "#/of/" + name};
               })
        .status()
        .message();
  };
  EXPECT_EQ(said(R"({"$defs":{"a":{"properties":{"x":{"uniqueItems":true,"not":{}}}}}})")
                .rfind("the schema of a at #/of/a/properties/x: 'not' cannot be kept", 0),
            0u);
  EXPECT_EQ(said(R"({"$defs":{"a":{"$ref":"#/$defs/b"}}})"),
            "the schema of a at #/of/a: '$ref' names #/of/b, which is not there");
  EXPECT_EQ(said(R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}})"),
            "the schema of a at #/of/a: nothing satisfies it: by its references it needs itself, "
            "without end");
  EXPECT_EQ(said(R"({"not":{}})").rfind("the JSON schema at #: ", 0), 0u);
}

// Names were cut inside a character.
TEST(JsonSchema, AnErrorsNamesEndWithACharacter) {
  const std::string before(79, 'x');
  const std::string said =
      kept("{\"properties\":{\"" + before + "\xC3\xA9\":{\"" + before + "\xC3\xA9\":1}}}");
  EXPECT_NE(said.find("/" + before + ":"), std::string::npos) << said;
  EXPECT_NE(said.find("'" + before + "'"), std::string::npos) << said;
}

}  // namespace
}  // namespace blend::test

// Grammars of strangers: bounded, refused with a sentence, and nothing is left behind.
#include <gtest/gtest.h>
#include <pthread.h>

#include <functional>

#include "byte_tokenizer.h"

namespace blend::test {
namespace {

std::string repeated(std::string_view text, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += text;
  return out;
}

std::string nested_objects(size_t n) {
  return repeated(R"({"type":"object","required":["a"],"properties":{"a":)", n) + "{}" +
         repeated("}}", n);
}

// The schema of a required member is written once for it and once for further ones, at each level.
std::string required_in_each_other(int depth) {
  const std::string level = R"({"type":"object","required":["a"],"additionalProperties":)";
  return repeated(level, depth) + R"({"type":"string"})" + repeated("}", depth);
}
std::string many_required(int n) {
  std::string names = "\"0\"";
  for (int i = 1; i < n; ++i) names += ",\"" + std::to_string(i) + '"';
  return R"({"type":"object","required":[)" + names + R"(],"additionalProperties":{"enum":[)" +
         names + "]}}";
}
std::string many_properties(size_t n, const std::string& more) {
  std::string out = R"({"type":"object","properties":{)";
  for (size_t i = 0; i < n; ++i) {
    if (i > 0) out += ',';
    out += "\"p" + std::to_string(i) + R"(":{"type":"integer"})";
  }
  return out + "}" + more + "}";
}

// Doubles at every level.
std::string alternatives(size_t depth) {
  if (depth == 0) return R"({"type":"null"})";
  const std::string below = alternatives(depth - 1);
  return R"({"anyOf":[)" + below + R"(,{"type":"array","items":)" + below + "}]}";
}

std::string rule_chain(size_t n) {
  std::string out = "root ::= r0\n";
  for (size_t i = 0; i < n; ++i) {
    out += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " | \"" +
           std::to_string(i) + "\"\n";
  }
  return out + "r" + std::to_string(n) + " ::= \"a\"\n";
}

struct Case {
  GrammarKind kind;
  std::string text;
};

std::vector<Case> cases() {
  using enum GrammarKind;
  return {
      {json_schema, repeated("[", 100000)},
      {json_schema, nested_objects(20)},
      {json_schema, nested_objects(2000)},
      {json_schema, R"({"type":"string","minLength":2147483647})"},
      {json_schema, R"({"type":"string","maxLength":2147483647})"},
      {json_schema, R"({"type":"string","maxLength":99999999999999})"},
      {json_schema,
       R"({"type":"array","items":{"type":"array","minItems":1000000},"minItems":1000000})"},
      {json_schema, many_properties(4000, "")},
      {json_schema, required_in_each_other(60)},
      {json_schema, many_required(20000)},
      {json_schema, many_properties(200, R"(,"minProperties":100,"maxProperties":150)")},
      {json_schema, alternatives(7)},
      {json_schema,
       R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})"},
      {json_schema, R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})"},
      {json_schema,
       R"({"type":"integer","minimum":-9223372036854775808,"maximum":9223372036854775807})"},
      {json_schema, R"({"type":"number","minimum":-1e308,"maximum":1e308})"},
      {json_schema, R"({"type":"integer","multipleOf":1024})"},
      {json_schema,
       R"({"type":"string","pattern":"((((a{1,100}){1,100}){1,100}){1,100}){1,100}"})"},
      {regex, "a{1,1000000}"},
      {regex, "a{1,99999999999999999999}"},
      {regex, "((((a{1,100}){1,100}){1,100}){1,100}){1,100}"},
      {regex, "(a*)*(a*)*(a*)*b"},
      {regex, repeated("(", 100000)},
      {regex, repeated("(", 400) + "a" + repeated(")", 400)},
      {regex, repeated(".", 20000)},
      {regex, "[^a]{0,100000}"},
      {regex, "[ab]*a[ab]{60}"},
      {ebnf, "root ::= root root root | \"a\" | \"\""},
      {ebnf, "root ::= s\ns ::= s s | \"a\" s \"a\" | \"a\" | \"\""},
      {ebnf, "root ::= " + repeated("(", 20000) + "\"a\"" + repeated(")", 20000)},
      {ebnf, rule_chain(40)},
      {ebnf, rule_chain(3000)},
      {ebnf, std::string("root ::= \"a\" \0 \"b\"", 18)},
      {ebnf, std::string(size_t{300} << 10, ' ')},
  };
}

class HostileTest : public testing::Test {
 protected:
  ByteTokenizer tokenizer_{{"ab", "aa", "\", \"", "12", ".", "{\""}};
  std::shared_ptr<const GrammarVocabulary> vocabulary_ = vocabulary_of(tokenizer_);
};

void all_are_bounded(const Tokenizer& tokenizer,
                     const std::shared_ptr<const GrammarVocabulary>& vocabulary) {
  SplitMix random(5);
  for (const Case& c : cases()) {
    GrammarOptions options;
    options.kind = c.kind;
    options.text = c.text;
    options.cpu_ns = 300'000'000u;
    auto made = Grammar::compile(vocabulary, options, nullptr);
    const std::string what = c.text.substr(0, 80);
    if (!made.is_ok()) {
      EXPECT_TRUE(made.status().code() == BLEND_E_UNSUPPORTED ||
                  made.status().code() == BLEND_E_INVALID_ARGUMENT)
          << what << ": " << made.status().code() << " " << made.status().message();
      EXPECT_GT(made.status().message().size(), 20u) << what;
      EXPECT_LT(made.status().message().size(), 700u) << what;
      continue;
    }
    for (int i = 0; i < 3; ++i) (void)drawn(*made, tokenizer, random, 60);
  }
}

TEST_F(HostileTest, AllAreBounded) { all_are_bounded(tokenizer_, vocabulary_); }

// Recursion is bounded by what is nested, and the stack with it.
TEST_F(HostileTest, ASmallStackIsEnough) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's frames are many times as large";
#else
  std::function<void()> work = [&] { all_are_bounded(tokenizer_, vocabulary_); };
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, size_t{512} << 10), 0);
  pthread_t thread{};
  const auto call = [](void* f) -> void* {
    (*static_cast<std::function<void()>*>(f))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, call, &work), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
#endif
}

TEST_F(HostileTest, TheBoundsAreNamed) {
  GrammarOptions options;
  options.kind = GrammarKind::regex;
  const std::string text = repeated(".", 20000);
  options.text = text;
  options.cpu_ns = 100'000'000u;
  auto made = Grammar::compile(vocabulary_, options, nullptr);
  EXPECT_EQ(made.status().code(), BLEND_E_UNSUPPORTED);
  EXPECT_NE(made.status().message().find("0.1 s of computing"), std::string::npos)
      << made.status().message();
  options.cpu_ns = 100'000'000'000u;
  options.n_bytes = size_t{1} << 20;
  made = Grammar::compile(vocabulary_, options, nullptr);
  EXPECT_EQ(made.status().code(), BLEND_E_UNSUPPORTED);
  EXPECT_NE(made.status().message().find("1 MiB"), std::string::npos) << made.status().message();
}

TEST_F(HostileTest, CompilingIsCancelled) {
  GrammarOptions options;
  options.kind = GrammarKind::regex;
  const std::string text = repeated(".", 20000);
  options.text = text;
  options.cpu_ns = 100'000'000'000u;  // Hangs if broken
  CancelToken cancel;
  cancel.request();
  EXPECT_EQ(Grammar::compile(vocabulary_, options, &cancel).status().code(), BLEND_E_CANCELLED);
}

}  // namespace
}  // namespace blend::test

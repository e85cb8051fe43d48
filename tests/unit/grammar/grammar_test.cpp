#include "grammar/grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "base/json.h"
#include "base/utf8_stream.h"
#include "byte_tokenizer.h"

namespace blend::test {
namespace {

const std::vector<std::string> kLonger = {
    "ab",   "abc",  "ba",      "aab",     "{\"",          "\": ", "\"}",      "\", \"",
    "12",   "true", "null",    "é",       "日",           "本",   "\xe6\x97", "\xa5",
    "\\\"", "\\u",  "\\ud83d", "\\\\ud8", "\xed\xa0\x80", "a\n",  "]}",       "[["};

class GrammarTest : public testing::Test {
 protected:
  std::shared_ptr<const Grammar> make(GrammarKind kind, std::string_view text) {
    GrammarOptions options;
    options.kind = kind;
    options.text = text;
    auto made = Grammar::compile(vocabulary_, options, nullptr);
    EXPECT_TRUE(made.is_ok()) << text << ": " << made.status().message();
    return made.is_ok() ? *made : nullptr;
  }
  // Feeds bytes one by one; false: one of them is not allowed.
  bool takes(GrammarRun& run, std::string_view bytes) {
    for (const char c : bytes) {
      const int32_t token = ByteTokenizer::kFirstByte + static_cast<uint8_t>(c);
      const auto next = allowed(run, *vocabulary_);
      if (std::find(next.begin(), next.end(), token) == next.end()) return false;
      EXPECT_TRUE(run.accept(token, nullptr).is_ok());
    }
    return true;
  }
  bool takes(const std::shared_ptr<const Grammar>& grammar, std::string_view bytes) {
    auto run = Grammar::start(grammar);
    return takes(**run, bytes);
  }
  // Whether a text may end after `bytes`.
  bool may_end(const std::shared_ptr<const Grammar>& grammar, std::string_view bytes) {
    auto run = Grammar::start(grammar);
    if (!takes(**run, bytes)) return false;
    Result<bool> complete = (*run)->prepare(nullptr);
    if (!complete.is_ok() || *complete) return complete.is_ok();
    const auto next = allowed(**run, *vocabulary_);
    const bool eos = std::find(next.begin(), next.end(), ByteTokenizer::kEos) != next.end();
    EXPECT_EQ(eos, std::find(next.begin(), next.end(), ByteTokenizer::kEot) != next.end());
    return eos;
  }

  ByteTokenizer tokenizer_{kLonger};
  std::shared_ptr<const GrammarVocabulary> vocabulary_ = vocabulary_of(tokenizer_);
};

// A token of several bytes is allowed exactly where its bytes are, one after the other.
TEST_F(GrammarTest, AllowsATokenWhereItsBytesAreAllowed) {
  const std::pair<GrammarKind, std::string_view> grammars[] = {
      {GrammarKind::json, ""},
      {GrammarKind::json_schema,
       R"({"type":"object","properties":{"a":{"type":"string","minLength":1,"maxLength":4},
           "ab":{"type":"array","items":{"enum":["abc",12,true,"é日"]}}},"required":["ab"]})"},
      {GrammarKind::json_schema, R"({"type":"string","pattern":"^(ab|ba|日本)*$"})"},
      {GrammarKind::regex, "(ab|ba|[é日]|a{2}b)*x?"},
      {GrammarKind::regex, ".{0,6}"},
      {GrammarKind::ebnf,
       "root ::= \"[\" (item (\", \" item)*)? \"]\"\nitem ::= \"12\" | \"ab\" | root"},
  };
  SplitMix random(7);
  for (const auto& [kind, text] : grammars) {
    const auto grammar = make(kind, text);
    ASSERT_NE(grammar, nullptr);
    for (int round = 0; round < 6; ++round) {
      auto run = Grammar::start(grammar);
      std::string before;
      for (int step = 0; step < 12; ++step) {
        const auto next = allowed(**run, *vocabulary_);
        if (next.empty()) break;
        for (size_t i = 0; i < kLonger.size(); ++i) {
          const auto token = static_cast<int32_t>(ByteTokenizer::kFirstByte + 256 + i);
          const bool by_mask = std::find(next.begin(), next.end(), token) != next.end();
          EXPECT_EQ(by_mask, takes(grammar, before + kLonger[i]))
              << text << ": '" << kLonger[i] << "' after '" << before << "'";
        }
        const int32_t token = next[random.below(next.size())];
        if (tokenizer_.is_stop(token)) break;
        before += tokenizer_.piece(token, 0);
        ASSERT_TRUE((*run)->accept(token, nullptr).is_ok());
      }
    }
  }
}

TEST_F(GrammarTest, EndsWhereTheGrammarMayAndMust) {
  const auto number = make(GrammarKind::regex, "-?[0-9]{1,3}");
  EXPECT_FALSE(may_end(number, ""));
  EXPECT_FALSE(may_end(number, "-"));
  EXPECT_TRUE(may_end(number, "-4"));
  EXPECT_FALSE(takes(number, "1234"));
  auto run = Grammar::start(number);
  ASSERT_TRUE(takes(**run, "12"));
  EXPECT_FALSE(*(*run)->prepare(nullptr));  // a digit may follow
  ASSERT_TRUE(takes(**run, "3"));
  EXPECT_TRUE(*(*run)->prepare(nullptr));

  const auto object = make(GrammarKind::json, "");
  EXPECT_FALSE(takes(object, "["));
  EXPECT_FALSE(takes(object, " "));
  EXPECT_TRUE(may_end(object, R"({"a": [1, null, {}], "b": "\u00e9\n"})"));
  EXPECT_FALSE(may_end(object, R"({"a": 1)"));
}

TEST_F(GrammarTest, NeverAllowsControlTokens) {
  const auto any = make(GrammarKind::regex, ".*");
  auto run = Grammar::start(any);
  const auto next = allowed(**run, *vocabulary_);
  EXPECT_EQ(std::count(next.begin(), next.end(), ByteTokenizer::kControl), 0);
  EXPECT_EQ(std::count(next.begin(), next.end(), ByteTokenizer::kEos), 1);
  // Logits past the tokenizer's tokens: rows that pad a model's matrix.
  std::vector<float> logits(vocabulary_->n_tokens() + 40, 1.0f);
  (*run)->apply(logits);
  EXPECT_TRUE(std::isinf(logits.back()));
}

// xgrammar's classes have bytes that are no UTF-8, its strings control characters and lone halves
// of surrogate pairs.
TEST_F(GrammarTest, TextsAreUtf8AndJsonIsStrict) {
  SplitMix random(3);
  const auto any = make(GrammarKind::regex, "[^a]{12}");
  size_t n = 0;
  for (int i = 0; i < 400; ++i) {
    const auto text = drawn(any, tokenizer_, random, 60);
    if (!text) continue;
    ++n;
    EXPECT_EQ(valid_utf8(*text), *text);
  }
  EXPECT_GT(n, 300u);
  const auto strings =
      make(GrammarKind::json_schema,
           R"({"type":"array","items":{"type":"string","minLength":8,"maxLength":9},
                                "minItems":3,"maxItems":3})");
  n = 0;
  for (int i = 0; i < 400; ++i) {
    const auto text = drawn(strings, tokenizer_, random, 200);
    if (!text) continue;
    ++n;
    auto parsed = Json::parse(*text);
    ASSERT_TRUE(parsed.is_ok()) << *text << ": " << parsed.status().message();
    for (const Json& item : *parsed->array()) {
      // Characters as JSON Schema counts them: code points.
      const size_t length = static_cast<size_t>(
          std::count_if(item.string()->begin(), item.string()->end(),
                        [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
      EXPECT_TRUE(length == 8 || length == 9) << *text;
    }
  }
  EXPECT_GT(n, 300u);
}

TEST_F(GrammarTest, SaysWhatIsWrong) {
  const std::tuple<GrammarKind, std::string_view, int32_t, std::string_view> cases[] = {
      {GrammarKind::regex, "(a", BLEND_E_INVALID_ARGUMENT, "regular expression"},
      {GrammarKind::regex, "(?=a)b", BLEND_E_INVALID_ARGUMENT, "ookahead"},
      {GrammarKind::ebnf, "x ::= \"a\"", BLEND_E_INVALID_ARGUMENT, "root"},
      {GrammarKind::ebnf, "root ::= root", BLEND_E_INVALID_ARGUMENT, "nothing"},
      {GrammarKind::ebnf, "root ::= Token(99999)", BLEND_E_INVALID_ARGUMENT, "99999"},
      {GrammarKind::json_schema, "{", BLEND_E_INVALID_ARGUMENT, "JSON"},
      {GrammarKind::json_schema, R"({"type":"objekt"})", BLEND_E_INVALID_ARGUMENT, "'type'"},
      {GrammarKind::json_schema, R"({"$ref":"#"})", BLEND_E_INVALID_ARGUMENT, "nothing"},
      {GrammarKind::json_schema, R"({"type":"number","multipleOf":0.5})", BLEND_E_UNSUPPORTED,
       "multipleOf"},
      {GrammarKind::json_schema, R"({"oneOf":[{"type":"integer"},{"type":"number"}]})",
       BLEND_E_UNSUPPORTED, "oneOf"},
  };
  for (const auto& [kind, text, code, word] : cases) {
    GrammarOptions options;
    options.kind = kind;
    options.text = text;
    auto made = Grammar::compile(vocabulary_, options, nullptr);
    EXPECT_EQ(made.status().code(), code) << text << ": " << made.status().message();
    EXPECT_NE(made.status().message().find(word), std::string::npos) << made.status().message();
  }
}

TEST_F(GrammarTest, OneGrammarServesManyThreads) {
  const auto grammar = make(GrammarKind::json, "");
  const auto first = [&](uint64_t seed) {
    SplitMix random(seed);
    std::string all;
    for (int i = 0; i < 20; ++i) all += drawn(grammar, tokenizer_, random, 100).value_or("cut");
    return all;
  };
  std::vector<std::string> expected, got(4);
  for (uint64_t i = 0; i < got.size(); ++i) expected.push_back(first(i));
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < got.size(); ++i) threads.emplace_back([&, i] { got[i] = first(i); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(got, expected);
}

TEST_F(GrammarTest, AVocabularyThatCannotWriteItIsRefused) {
  class Letters final : public Tokenizer {
   public:
    uint32_t n_vocab() const override { return 3; }
    int32_t bos() const override { return -1; }
    int32_t eos() const override { return 0; }
    bool add_bos() const override { return false; }
    std::span<const int32_t> closing() const override { return {}; }
    bool is_stop(int32_t token) const override { return token == 0; }
    Result<std::vector<int32_t>> encode_marked(std::string_view, uint32_t,
                                               const TextMarks&) const override {
      return std::vector<int32_t>();
    }
    std::string piece(int32_t token, uint32_t) const override {
      return token == 0 ? "" : token == 1 ? "a" : "b";
    }
    Result<std::string> decode(std::span<const int32_t>, uint32_t) const override {
      return std::string();
    }
    void hash(Sha256Hasher& hasher) const override { hasher.field("letters"); }
  } letters;
  const auto vocabulary = vocabulary_of(letters);
  GrammarOptions options;
  EXPECT_EQ(Grammar::compile(vocabulary, options, nullptr).status().code(),
            BLEND_E_INVALID_ARGUMENT);
  // It begins, and cannot go on.
  options.kind = GrammarKind::regex;
  options.text = "ac";
  auto made = Grammar::compile(vocabulary, options, nullptr);
  ASSERT_TRUE(made.is_ok());
  auto run = Grammar::start(*made);
  EXPECT_EQ(allowed(**run, *vocabulary), std::vector<int32_t>{1});
  ASSERT_TRUE((*run)->accept(1, nullptr).is_ok());
  EXPECT_EQ((*run)->prepare(nullptr).status().code(), BLEND_E_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace blend::test

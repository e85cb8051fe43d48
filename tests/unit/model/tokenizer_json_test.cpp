// tokenizer.json: ids of Hugging Face `tokenizers` for every kind, decoding, and files that ask for
// what is not there.
#include "model/tokenizer/tokenizer_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/special_texts.h"
#include "support/golden_tokens.h"
#include "support/random_model.h"

namespace blend {
namespace {

using nlohmann::json;
using test::golden_tokenizer;
using Ids = std::vector<int32_t>;

constexpr uint32_t kSpecial = BLEND_TOKENIZE_SPECIAL;

Result<std::unique_ptr<BpeTokenizer>> open(const std::string& text) {
  BLEND_ASSIGN(BpeTokenizerSpec spec, parse_tokenizer_json(text));
  return BpeTokenizer::create(std::move(spec));
}

std::unique_ptr<BpeTokenizer> must_open(const std::string& text) {
  auto t = open(text);
  EXPECT_TRUE(t.is_ok()) << t.status().message();
  return t.is_ok() ? std::move(*t) : nullptr;
}

Ids ids_of(const Tokenizer& t, std::string_view text, uint32_t flags) {
  const auto ids = t.encode(text, flags);
  EXPECT_TRUE(ids.is_ok()) << ids.status().message();
  return ids.is_ok() ? ids.value() : Ids();
}

void expect_error(const json& file, int32_t code, const std::string& part) {
  const auto t = open(file.dump());
  ASSERT_FALSE(t.is_ok()) << part;
  EXPECT_EQ(t.status().code(), code) << t.status().message();
  EXPECT_NE(t.status().message().find(part), std::string::npos) << t.status().message();
}

json file_of(const std::string& kind) { return json::parse(golden_tokenizer(kind).json); }

class TokenizerJson : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerJson, IdsAreThoseOfTokenizers) {
  const test::GoldenTokenizer golden = golden_tokenizer(GetParam());
  const auto t = must_open(golden.json);
  ASSERT_NE(t, nullptr);
  for (const test::GoldenCase& c : golden.cases) {
    EXPECT_EQ(ids_of(*t, c.text, kSpecial), c.special) << c.text;
    EXPECT_EQ(ids_of(*t, c.text, 0), c.plain) << c.text;
    // Neither library gives back text that is in no normal form, or that it has no tokens for. For
    // a token that is normalized itself, `tokenizers` gives the normal form, and libblend the
    // token.
    if (c.text.starts_with("ﬁ") && std::string(GetParam()) == "behaviours") continue;
    EXPECT_EQ(t->decode(c.special, kSpecial).value(), c.decoded) << c.text;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerJson,
                         testing::Values("gpt2", "llama3", "qwen2", "qwen35", "smollm", "tekken",
                                         "gpt4o", "seed", "deepseek3", "deepseek2", "kimi",
                                         "llama2", "mistral", "gemma", "phi3", "behaviours",
                                         "unknown"),
                         [](const testing::TestParamInfo<const char*>& kind) {
                           return std::string(kind.param);
                         });

class TokenizerBytes : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerBytes, DecodingGivesTheBytesBack) {
  const auto t = must_open(golden_tokenizer(GetParam()).json);
  ASSERT_NE(t, nullptr);
  test::SplitMix rng(9);
  for (int i = 0; i < 200; ++i) {
    std::string text;
    for (uint64_t n = rng.below(40); n > 0; --n) {
      static const char* const kParts[] = {" ", "the", "\n", "\xe2\x82", "\xf0\x9f\x98\x80", "é"};
      const uint64_t k = rng.below(8);
      text += k < 6 ? kParts[k] : std::string(1, static_cast<char>(rng.below(256)));
    }
    for (const uint32_t flags : {0u, BLEND_TOKENIZE_RAW}) {
      const Ids ids = ids_of(*t, text, flags);
      EXPECT_EQ(t->decode(ids, flags).value(), text) << flags;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerBytes,
                         testing::Values("gpt2", "llama3", "smollm", "tekken", "gpt4o", "llama2",
                                         "gemma", "phi3"),
                         [](const testing::TestParamInfo<const char*>& kind) {
                           return std::string(kind.param);
                         });

TEST(TokenizerJsonFile, BosIsTheTemplates) {
  const auto llama = must_open(golden_tokenizer("llama3").json);
  EXPECT_TRUE(llama->add_bos());
  EXPECT_EQ(llama->piece(llama->bos(), kSpecial), "<|begin_of_text|>");
  EXPECT_EQ(ids_of(*llama, "", BLEND_TOKENIZE_BOS), Ids{llama->bos()});
  const auto qwen = must_open(golden_tokenizer("qwen2").json);
  EXPECT_FALSE(qwen->add_bos());
  EXPECT_EQ(qwen->bos(), -1);
}

TEST(TokenizerJsonFile, RawPutsNothingInFront) {
  for (const char* kind : {"llama2", "mistral", "unknown"}) {
    const auto t = must_open(golden_tokenizer(kind).json);
    const Ids with = ids_of(*t, "the", 0);
    EXPECT_EQ(t->piece(with[0], 0)[0], ' ') << kind;
    EXPECT_NE(t->piece(ids_of(*t, "the", BLEND_TOKENIZE_RAW)[0], 0)[0], ' ') << kind;
    EXPECT_EQ(t->decode(with, 0).value(), "the");
    EXPECT_EQ(t->decode(with, BLEND_TOKENIZE_RAW).value(), " the");
  }
}

TEST(TokenizerJsonFile, MergesAsOneText) {
  json file = file_of("llama2");
  const auto expected = ids_of(*must_open(file.dump()), "the values of the chunk", 0);
  for (json& m : file["model"]["merges"]) {
    m = m[0].get<std::string>() + " " + m[1].get<std::string>();
  }
  EXPECT_EQ(ids_of(*must_open(file.dump()), "the values of the chunk", 0), expected);
}

TEST(TokenizerJsonFile, LongRunsOfOneCharacter) {
  for (const char* kind : {"llama2", "mistral", "gemma", "qwen2"}) {
    const auto t = must_open(golden_tokenizer(kind).json);
    for (const char* unit : {" ", "a", "日", "\xff", "\xcc\x81\xcc\xa3", "<|endoftext|>"}) {
      std::string text;
      while (text.size() < 1 << 16) text += unit;
      EXPECT_FALSE(ids_of(*t, text, kSpecial).empty()) << kind;
    }
  }
}

TEST(TokenizerJsonFile, PatternsThatTakeTooLongEnd) {
  json file = file_of("llama3");
  json& split = file["pre_tokenizer"]["pretokenizers"][0];
  split["pattern"]["Regex"] = "(a|aa)+$|(a+)+b";
  const auto t = must_open(file.dump());
  ASSERT_NE(t, nullptr);
  const auto ids = t->encode(std::string(2000, 'a') + "c", 0);
  ASSERT_FALSE(ids.is_ok());
  EXPECT_EQ(ids.status().code(), BLEND_E_UNSUPPORTED);
  EXPECT_NE(ids.status().message().find("takes too long"), std::string::npos);
}

TEST(TokenizerJsonFile, UnsupportedStepsAreNamed) {
  const json llama = file_of("llama2");
  const json qwen = file_of("qwen2");
  const auto with = [](json file, const char* pointer, const json& value) {
    file[json::json_pointer(pointer)] = value;
    return file;
  };
  const int32_t kCode = BLEND_E_UNSUPPORTED;
  expect_error(with(llama, "/model/type", "Unigram"), kCode, "'Unigram'");
  expect_error(with(llama, "/model/end_of_word_suffix", "</w>"), kCode, "end_of_word_suffix");
  expect_error(with(llama, "/model/dropout", 0.1), kCode, "model.dropout");
  expect_error(with(llama, "/normalizer", {{"type", "Lowercase"}}), kCode, "'Lowercase'");
  expect_error(with(llama, "/normalizer/normalizers/0", {{"type", "Nmt"}}), kCode,
               "normalizer.normalizers[0]");
  expect_error(with(llama, "/pre_tokenizer", {{"type", "BertPreTokenizer"}}), kCode,
               "'BertPreTokenizer'");
  expect_error(with(llama, "/pre_tokenizer", {{"type", "ByteLevel"}}), kCode, "'ByteLevel'");
  expect_error(with(qwen, "/decoder", nullptr), kCode, "decoder");
  expect_error(with(qwen, "/decoder", {{"type", "WordPiece"}}), kCode, "'WordPiece'");
  expect_error(with(qwen, "/post_processor", {{"type", "BertProcessing"}}), kCode,
               "'BertProcessing'");
  json twice = qwen;
  twice["pre_tokenizer"]["pretokenizers"].push_back({{"type", "Digits"}});
  expect_error(twice, kCode, "after 'ByteLevel'");
  for (const char* pattern : {"\\w+", "[a[b]]", "[a&&b]", "(?m).", "a{2}+", "(*ACCEPT)", "\\h"}) {
    expect_error(with(qwen, "/pre_tokenizer/pretokenizers/0/pattern/Regex", pattern), kCode,
                 "pattern.Regex");
  }
}

TEST(TokenizerJsonFile, BrokenFilesAreNamed) {
  const json llama = file_of("llama2");
  const auto with = [&](const char* pointer, const json& value) {
    json file = llama;
    file[json::json_pointer(pointer)] = value;
    return file;
  };
  const int32_t kCode = BLEND_E_FORMAT;
  expect_error(json::array(), kCode, "an object");
  expect_error(with("/model", nullptr), kCode, "'model' is missing");
  expect_error(with("/model/vocab", {1}), kCode, "model.vocab");
  expect_error(with("/model/vocab", json::object()), kCode, "is not a token of the vocabulary");
  expect_error(with("/model/vocab/<s>", -1), kCode, "model.vocab['<s>']");
  expect_error(with("/model/vocab/<s>", 1 << 30), kCode, "model.vocab['<s>']");
  expect_error(with("/model/vocab/<s>", 2), kCode, "'</s>'");
  expect_error(with("/model/unk_token", "<none>"), kCode, "'<none>'");
  expect_error(with("/model/merges/3", {"zzz", "t"}), kCode, "model.merges[3]");
  expect_error(with("/model/merges/3", {"t"}), kCode, "model.merges[3]");
  expect_error(with("/model/merges/3", "t"), kCode, "model.merges[3]");
  expect_error(with("/added_tokens/1/id", 7), kCode, "added_tokens[1]");
  expect_error(with("/added_tokens/1/special", 1), kCode, "added_tokens[1].special");
  expect_error(with("/post_processor/single/0/SpecialToken/id", "<x>"), kCode,
               "post_processor.single[0]");
  EXPECT_EQ(open("{\"model\": {\"vocab\": {\"a\": 0, \"a\": 1}}}").status().code(), kCode);
  EXPECT_EQ(open("{\"model\"").status().code(), kCode);
  EXPECT_EQ(open(std::string(100000, '[')).status().code(), kCode);
}

// In some files the bytes are special too. The ids are tokenizers' 0.23, which looks for bytes in
// the whole of the model's vocabulary.
TEST(TokenizerJsonFile, BytesThatAreSpecialAreFound) {
  for (const char* kind : {"llama2", "gemma", "gpt2"}) {
    json file = file_of(kind);
    const std::string text = std::string("a\xe6\x97\xa5\n\xf0\x9f\x98\x80 b\t\xff") + "!";
    const Ids expected = ids_of(*must_open(file.dump()), text, 0);
    const bool byte_level = std::string(kind) == "gpt2";
    for (const bool special : {true, false}) {
      json marked = file;
      for (const auto& [token, id] : file["model"]["vocab"].items()) {
        const bool is_byte =
            byte_level ? bytes_of_characters(token).value_or("").size() == 1 && token.size() > 1
                       : byte_of(token) >= 0;
        if (!is_byte) continue;
        marked["added_tokens"].push_back(
            {{"id", id}, {"content", token}, {"special", special}, {"normalized", false}});
      }
      const auto t = must_open(marked.dump());
      ASSERT_NE(t, nullptr);
      EXPECT_EQ(ids_of(*t, text, 0), expected) << kind << special;
      EXPECT_EQ(ids_of(*t, text, kSpecial), expected) << kind << special;
      EXPECT_EQ(t->decode(expected, 0).value(), text) << kind << special;
      EXPECT_EQ(t->decode(expected, kSpecial).value(), text) << kind << special;
    }
  }
}

TEST(TokenizerJsonFile, OneSpecialByteTakesNothingElseAlong) {
  json file = file_of("llama2");
  file["added_tokens"].push_back({{"id", file["model"]["vocab"]["<0x07>"]},
                                  {"content", "<0x07>"},
                                  {"special", true},
                                  {"normalized", false}});
  const auto t = must_open(file.dump());
  const int32_t bell = file["model"]["vocab"]["<0x07>"];
  const Ids ids = ids_of(*t, "a\ab", BLEND_TOKENIZE_RAW);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), bell), 1);
  EXPECT_EQ(t->decode(ids, BLEND_TOKENIZE_RAW).value(), "a\ab");
  // Its text in a text is the token only where control tokens are asked for.
  const Ids plain = ids_of(*t, "<0x07>", BLEND_TOKENIZE_RAW);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), bell), 0);
  EXPECT_EQ(ids_of(*t, "<0x07>", BLEND_TOKENIZE_RAW | kSpecial), Ids{bell});
}

// Added tokens are not in the model's vocabulary: tokenizers does not find them there either.
TEST(TokenizerJsonFile, BytesOutsideOfTheVocabularyAreNone) {
  json file = file_of("llama2");
  const int32_t id = file["model"]["vocab"]["<0x07>"];
  const int32_t unknown = file["model"]["vocab"]["<unk>"];
  file["model"]["vocab"].erase("<0x07>");
  file["added_tokens"].push_back(
      {{"id", id}, {"content", "<0x07>"}, {"special", true}, {"normalized", false}});
  const auto t = must_open(file.dump());
  const Ids ids = ids_of(*t, "\a", BLEND_TOKENIZE_RAW);
  EXPECT_EQ(ids, Ids{unknown});
}

}  // namespace
}  // namespace blend

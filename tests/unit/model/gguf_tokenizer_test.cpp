// Byte-level BPE of GGUF files (`tokenizer.ggml.model` = "gpt2"): ids of Hugging Face `tokenizers`
// for every family's pre-tokenizer, bytes back from any input, and what is refused.
#include "model/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/tokenizer/byte_level.h"
#include "support/gguf_writer.h"
#include "support/golden_tokens.h"
#include "support/random_model.h"

namespace blend {
namespace {

using test::GgufWriter;
using test::golden_tokenizer;
using Ids = std::vector<int32_t>;

constexpr uint32_t kSpecial = BLEND_TOKENIZE_SPECIAL;

GgufWriter vocabulary_file(const std::string& kind, const std::string& pre) {
  const test::GgufVocabulary v = gguf_vocabulary(golden_tokenizer(kind));
  GgufWriter w;
  w.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", pre);
  w.strings("tokenizer.ggml.tokens", v.tokens).i32s("tokenizer.ggml.token_type", v.types);
  w.strings("tokenizer.ggml.merges", v.merges);
  return w;
}

Result<std::unique_ptr<Tokenizer>> open(const GgufWriter& w) {
  const std::string bytes = w.bytes();
  BLEND_ASSIGN(const GgufReader gguf, GgufReader::parse(std::as_bytes(std::span(bytes))));
  return read_gguf_tokenizer(gguf);
}

std::unique_ptr<Tokenizer> must_open(const GgufWriter& w) {
  auto t = open(w);
  EXPECT_TRUE(t.is_ok()) << t.status().message();
  return t.is_ok() ? std::move(*t) : nullptr;
}

Ids ids_of(const Tokenizer& t, std::string_view text, uint32_t flags) {
  const auto ids = t.encode(text, flags);
  EXPECT_TRUE(ids.is_ok()) << ids.status().message();
  return ids.is_ok() ? ids.value() : Ids();
}

void expect_error(const GgufWriter& w, int32_t code, const std::string& part) {
  const auto t = open(w);
  ASSERT_FALSE(t.is_ok()) << part;
  EXPECT_EQ(t.status().code(), code) << t.status().message();
  EXPECT_NE(t.status().message().find(part), std::string::npos) << t.status().message();
}

// Gemma 4's vocabulary is of characters, with spaces as "▁" and tokens of bytes.
TEST(GgufCharacters, IdsAreThoseOfTokenizers) {
  const test::GoldenTokenizer golden = golden_tokenizer("gemma");
  test::GgufVocabulary v = gguf_vocabulary(golden);
  int32_t unknown = -1, bos = -1;
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    if (v.tokens[i].starts_with("<0x")) v.types[i] = 6;
    if (v.tokens[i] == "<unk>") unknown = static_cast<int32_t>(i);
    if (v.tokens[i] == "<s>") bos = static_cast<int32_t>(i);
  }
  GgufWriter w;
  w.string("tokenizer.ggml.model", "gemma4").strings("tokenizer.ggml.tokens", v.tokens);
  w.i32s("tokenizer.ggml.token_type", v.types).strings("tokenizer.ggml.merges", v.merges);
  w.i32("tokenizer.ggml.unknown_token_id", unknown).i32("tokenizer.ggml.bos_token_id", bos);
  const auto t = must_open(w);
  ASSERT_NE(t, nullptr);
  EXPECT_TRUE(t->add_bos());
  size_t n = 0;
  for (const test::GoldenCase& c : golden.cases) {
    // This vocabulary has tokens with more than one line; Gemma 4's has not, and no merge crosses
    // one.
    if (c.text.find('\n') != std::string::npos) continue;
    EXPECT_EQ(ids_of(*t, c.text, 0), c.plain) << c.text;
    EXPECT_EQ(ids_of(*t, c.text, kSpecial), c.special) << c.text;
    EXPECT_EQ(t->decode(c.special, kSpecial).value(), c.decoded);
    ++n;
  }
  EXPECT_GT(n, 20u);
  Ids parts;
  for (const char* const part : {"if x:", "\n", "\treturn"}) {
    const Ids ids = ids_of(*t, part, 0);
    parts.insert(parts.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(ids_of(*t, "if x:\n\treturn", 0), parts);
  expect_error(w.erase_key("tokenizer.ggml.merges"), BLEND_E_FORMAT, "tokenizer.ggml.merges");
}

struct Family {
  const char* kind;
  const char* pre;
  bool add_bos;
};

void PrintTo(const Family& f, std::ostream* out) { *out << f.kind; }

class GgufBpe : public testing::TestWithParam<Family> {};

TEST_P(GgufBpe, IdsAreThoseOfTokenizers) {
  const test::GoldenTokenizer golden = golden_tokenizer(GetParam().kind);
  const auto t = must_open(vocabulary_file(GetParam().kind, GetParam().pre));
  ASSERT_NE(t, nullptr);
  for (const test::GoldenCase& c : golden.cases) {
    EXPECT_EQ(ids_of(*t, c.text, kSpecial), c.special) << c.text;
    EXPECT_EQ(ids_of(*t, c.text, 0), c.plain) << c.text;
    EXPECT_EQ(t->decode(c.special, kSpecial).value(), c.decoded);
  }
}

// Whatever the bytes are (none of these texts is changed by Qwen2's normal form).
TEST_P(GgufBpe, DecodingGivesTheBytesBack) {
  const auto t = must_open(vocabulary_file(GetParam().kind, GetParam().pre));
  test::SplitMix rng(7);
  for (int i = 0; i < 500; ++i) {
    std::string text;
    for (uint64_t n = rng.below(40); n > 0; --n) {
      static const char* const kParts[] = {" ", "the", "\n", "\xe2\x82", "\xf0\x9f\x98\x80", "é"};
      const uint64_t k = rng.below(8);
      text += k < 6 ? kParts[k] : std::string(1, static_cast<char>(rng.below(256)));
    }
    const Ids ids = ids_of(*t, text, 0);
    EXPECT_EQ(t->decode(ids, 0).value(), text);
    std::string pieces;
    for (const int32_t id : ids) pieces += t->piece(id, 0);
    EXPECT_EQ(pieces, text);
  }
}

TEST_P(GgufBpe, BosWhereTheFileDoesNotSay) {
  GgufWriter w = vocabulary_file(GetParam().kind, GetParam().pre);
  w.u32("tokenizer.ggml.bos_token_id", 3);
  EXPECT_EQ(must_open(w)->add_bos(), GetParam().add_bos);
  const auto begin = [](bool add_bos) { return add_bos ? Ids{3} : Ids{}; };
  EXPECT_EQ(ids_of(*must_open(w), "", BLEND_TOKENIZE_BOS), begin(GetParam().add_bos));
  w.boolean("tokenizer.ggml.add_bos_token", !GetParam().add_bos);
  EXPECT_EQ(must_open(w)->add_bos(), !GetParam().add_bos);
  EXPECT_EQ(ids_of(*must_open(w), "", BLEND_TOKENIZE_BOS), begin(!GetParam().add_bos));
}

INSTANTIATE_TEST_SUITE_P(
    Families, GgufBpe,
    testing::Values(Family{"gpt2", "gpt-2", false}, Family{"llama3", "llama-bpe", true},
                    Family{"qwen2", "qwen2", false}, Family{"qwen35", "qwen35", false},
                    Family{"smollm", "smollm", false}, Family{"tekken", "tekken", true},
                    Family{"gpt4o", "gpt-4o", false}, Family{"gpt2", "exaone4", false},
                    Family{"gpt2", "granite-docling", false}, Family{"seed", "seed-coder", false},
                    Family{"deepseek3", "deepseek-v3", false},
                    Family{"deepseek3", "hunyuan-dense", false},
                    Family{"deepseek2", "deepseek-llm", false}, Family{"kimi", "kimi-k2", false}),
    [](const testing::TestParamInfo<Family>& family) {
      std::string name = family.param.pre;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST(GgufBpeFile, ControlTokensStayOutOfText) {
  const auto t = must_open(vocabulary_file("qwen2", "qwen2"));
  const Ids marked = ids_of(*t, "a<|im_end|>", kSpecial);
  const Ids plain = ids_of(*t, "a<|im_end|>", 0);
  ASSERT_EQ(marked.size(), 2u);
  EXPECT_GT(plain.size(), 2u);
  EXPECT_TRUE(t->is_stop(marked[1])) << "its text says that a turn ends";
  EXPECT_FALSE(t->is_stop(marked[0]));
  EXPECT_EQ(t->piece(marked[1], 0), "");
  EXPECT_EQ(t->piece(marked[1], kSpecial), "<|im_end|>");
  EXPECT_EQ(t->decode(marked, 0).value(), "a");
  const Ids call = ids_of(*t, "<tool_call>", 0);
  ASSERT_EQ(call.size(), 1u) << "user-defined tokens are always found";
  EXPECT_EQ(t->piece(call[0], 0), "<tool_call>");
}

// Much of anything that repeats: time and stack in proportion.
TEST(GgufBpeFile, LongRunsOfOneCharacter) {
  for (const char* kind : {"llama3", "tekken", "gpt2"}) {
    const char* pre = std::string(kind) == "gpt2" ? "gpt-2"
                      : kind[0] == 't'            ? "tekken"
                                                  : "llama-bpe";
    const auto t = must_open(vocabulary_file(kind, pre));
    for (const char* unit : {" ", "a", "A", "\n", "1", "=", "'", "\xcc\x81", "\xff", " \n", "a "}) {
      std::string text;
      while (text.size() < 1 << 16) text += unit;
      EXPECT_EQ(t->decode(ids_of(*t, text, 0), 0).value(), text) << kind << " '" << unit << "'";
    }
  }
}

TEST(GgufBpeFile, MissingPreIsTheDefault) {
  GgufWriter w = vocabulary_file("gpt2", "default");
  const Ids named = ids_of(*must_open(w), "It's 12345 of  them!", 0);
  w.erase_key("tokenizer.ggml.pre");
  EXPECT_EQ(ids_of(*must_open(w), "It's 12345 of  them!", 0), named);
}

TEST(GgufBpeFile, WhatIsRefused) {
  expect_error(vocabulary_file("gpt2", "viking"), BLEND_E_UNSUPPORTED, "'viking'");
  GgufWriter w = vocabulary_file("gpt2", "gpt-2");
  expect_error(GgufWriter(w).string("tokenizer.ggml.model", "bert"), BLEND_E_UNSUPPORTED, "'bert'");
  expect_error(GgufWriter(w).erase_key("tokenizer.ggml.merges"), BLEND_E_FORMAT,
               "'tokenizer.ggml.merges'");
  expect_error(GgufWriter(w).strings("tokenizer.ggml.merges", {"a b", "ab"}), BLEND_E_FORMAT,
               "entry 1");
  expect_error(GgufWriter(w).i32s("tokenizer.ggml.token_type", {1, 1}), BLEND_E_FORMAT,
               "2 token types");
  expect_error(GgufWriter(w).u32("tokenizer.ggml.eos_token_id", 99999), BLEND_E_FORMAT, "99999");
}

TEST(GgufBpeFile, FingerprintCoversMergesAndPre) {
  const auto hash = [](const GgufWriter& w) {
    Sha256Hasher h;
    must_open(w)->hash(h);
    return to_hex(h.finish());
  };
  const GgufWriter w = vocabulary_file("gpt2", "gpt-2");
  test::GgufVocabulary v = gguf_vocabulary(golden_tokenizer("gpt2"));
  std::swap(v.merges[0], v.merges[1]);
  EXPECT_EQ(hash(w), hash(w));
  EXPECT_NE(hash(w), hash(GgufWriter(w).strings("tokenizer.ggml.merges", v.merges)));
  EXPECT_NE(hash(w), hash(GgufWriter(w).string("tokenizer.ggml.pre", "smollm")));
}

// The end of a call of a tool has no key; in other models its text is nothing special.
TEST(GgufBpeFile, ACallOfAToolEndsTheAnswerOfAGptOss) {
  test::GgufVocabulary v = gguf_vocabulary(golden_tokenizer("gpt2"));
  const auto call = static_cast<int32_t>(v.tokens.size());
  v.tokens.push_back("<|call|>");
  v.types.push_back(3);
  for (const char* architecture : {"gpt-oss", "qwen2"}) {
    GgufWriter w = vocabulary_file("gpt2", "gpt-2");
    w.strings("tokenizer.ggml.tokens", v.tokens).i32s("tokenizer.ggml.token_type", v.types);
    w.string("general.architecture", architecture);
    const auto t = must_open(w);
    ASSERT_NE(t, nullptr);
    EXPECT_EQ(t->is_stop(call), std::string(architecture) == "gpt-oss") << architecture;
  }
}

// Converters give tokens of one byte the type that the original's added tokens had.
TEST(GgufBpeFile, BytesOfAnyTypeAreFound) {
  const test::GgufVocabulary v = gguf_vocabulary(golden_tokenizer("gpt2"));
  const std::string text = "a\xe6\x97\xa5\n\xff!";
  const Ids expected = ids_of(*must_open(vocabulary_file("gpt2", "gpt-2")), text, 0);
  for (const int32_t type : {2, 3, 4}) {
    std::vector<int32_t> types = v.types;
    for (size_t i = 0; i < types.size(); ++i) {
      const std::string bytes = bytes_of_characters(v.tokens[i]).value_or("");
      if (bytes.size() == 1 && v.tokens[i].size() > 1) types[i] = type;
    }
    GgufWriter w = vocabulary_file("gpt2", "gpt-2");
    w.i32s("tokenizer.ggml.token_type", types);
    const auto t = must_open(w);
    ASSERT_NE(t, nullptr);
    EXPECT_EQ(ids_of(*t, text, 0), expected) << type;
    EXPECT_EQ(t->decode(expected, 0).value(), text) << type;
    EXPECT_EQ(t->decode(expected, kSpecial).value(), text) << type;
  }
}

}  // namespace
}  // namespace blend

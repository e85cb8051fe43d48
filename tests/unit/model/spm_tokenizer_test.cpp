// The SentencePiece-style tokenizer against a naive reference, against recorded tokens of the
// sentencepiece library, and with vocabularies that nobody would make in good faith.
#include "model/spm_tokenizer.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "model/llama_source.h"
#include "support/outside_data.h"
#include "support/random_model.h"

namespace blend {
namespace {

using test::SplitMix;

constexpr uint32_t kBos = BLEND_TOKENIZE_BOS;
constexpr uint32_t kSpecial = BLEND_TOKENIZE_SPECIAL;
constexpr uint32_t kRaw = BLEND_TOKENIZE_RAW;
const std::string kSpace = "\xe2\x96\x81";

SpmVocab vocab_of(uint32_t n_vocab) {
  test::RandomVocab v = test::random_vocab(n_vocab);
  SpmVocab vocab;
  vocab.tokens = v.tokens;
  vocab.scores = v.scores;
  vocab.types = v.types;
  vocab.unk = 0;
  vocab.bos = 1;
  vocab.eos = 2;
  return vocab;
}

void add(SpmVocab& v, const std::string& text, float score, TokenType type) {
  v.tokens.push_back(text);
  v.scores.push_back(score);
  v.types.push_back(static_cast<int32_t>(type));
}

std::unique_ptr<SpmTokenizer> make(SpmVocab vocab) {
  auto t = SpmTokenizer::create(std::move(vocab));
  EXPECT_TRUE(t.is_ok()) << t.status().message();
  return t.is_ok() ? std::move(t.value()) : nullptr;
}

std::vector<int32_t> ids_of(const Tokenizer& t, std::string_view text, uint32_t flags) {
  const auto ids = t.encode(text, flags);
  EXPECT_TRUE(ids.is_ok()) << ids.status().message();
  return ids.is_ok() ? ids.value() : std::vector<int32_t>();
}

std::string random_utf8(SplitMix& rng) {
  for (;;) {
    const uint64_t kind = rng.below(4);
    const auto c = static_cast<uint32_t>(kind == 0   ? rng.below(0x80)
                                         : kind == 1 ? rng.below(0x800)
                                         : kind == 2 ? rng.below(0x10000)
                                                     : rng.below(0x110000));
    if ((c >= 0xd800 && c < 0xe000) || c == 0x2581) continue;  // U+2581 is a space to it
    const auto part = [&](uint32_t shift, uint32_t mark, uint32_t mask) {
      return static_cast<char>(mark | (c >> shift & mask));
    };
    if (c < 0x80) return {part(0, 0, 0x7f)};
    if (c < 0x800) return {part(6, 0xc0, 0x1f), part(0, 0x80, 0x3f)};
    if (c < 0x10000) return {part(12, 0xe0, 0xf), part(6, 0x80, 0x3f), part(0, 0x80, 0x3f)};
    return {part(18, 0xf0, 7), part(12, 0x80, 0x3f), part(6, 0x80, 0x3f), part(0, 0x80, 0x3f)};
  }
}

// Words of the vocabulary, runs of spaces, any Unicode, things that look special; `broken` adds
// stray bytes.
std::string random_text(SplitMix& rng, const SpmVocab& v, bool broken) {
  static const char* const kAwkward[] = {"<s>", "</s>",  "<unk>", "<0x41>", "<0x",
                                         "  ",  "    ",  "aaaa",  "thethe", "\n",
                                         "\t",  "hello", "and",   "ing"};
  std::string text;
  const uint64_t n = rng.below(30);
  for (uint64_t i = 0; i < n; ++i) {
    switch (rng.below(broken ? 7 : 6)) {
      case 0:
        text += kAwkward[rng.below(std::size(kAwkward))];
        break;
      case 1:
        text += ' ';
        break;
      case 2:
      case 3: {
        const std::string& token = v.tokens[259 + rng.below(v.tokens.size() - 259)];
        text += token.starts_with(kSpace) ? " " + token.substr(3) : token;
        break;
      }
      case 4:
        text += static_cast<char>('a' + rng.below(5));
        break;
      case 5:
        text += random_utf8(rng);
        break;
      default:
        text += static_cast<char>(rng.below(256));
        break;
    }
  }
  size_t at = 0;
  while ((at = text.find(kSpace, at)) != std::string::npos) text.erase(at, 3);
  return text;
}

// The length of a character by decoding it to a code point and encoding it again.
size_t character(const std::string& s, size_t at) {
  const auto byte = [&](size_t i) -> uint32_t {
    return at + i < s.size() ? static_cast<uint8_t>(s[at + i]) : 0;
  };
  for (size_t n = 2; n <= 4; ++n) {
    const uint32_t mark = n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0;
    const uint32_t keep = n == 2 ? 0x1f : n == 3 ? 0x0f : 0x07;
    if ((byte(0) & ~keep & 0xff) != mark) continue;
    uint32_t c = byte(0) & keep;
    for (size_t i = 1; i < n; ++i) {
      if (byte(i) < 0x80 || byte(i) > 0xbf) return 1;
      c = c << 6 | (byte(i) & 0x3f);
    }
    const size_t shortest = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    return n == shortest && c < 0x110000 && (c < 0xd800 || c > 0xdfff) ? n : 1;
  }
  return 1;
}

// Looks at every pair before every merge.
std::vector<int32_t> reference(const SpmVocab& v, const std::string& text) {
  std::map<std::string, int32_t> ids;
  std::map<int, int32_t> bytes;
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    const auto type = static_cast<TokenType>(v.types[i]);
    const auto id = static_cast<int32_t>(i);
    if (type == TokenType::normal && !v.tokens[i].empty()) ids[v.tokens[i]] = id;
    if (type == TokenType::byte) bytes[std::stoi(v.tokens[i].substr(3, 2), nullptr, 16)] = id;
  }
  std::string escaped;
  if (v.add_space_prefix && !text.empty()) escaped = kSpace;
  for (const char c : text) escaped += c == ' ' ? kSpace : std::string(1, c);
  std::vector<std::string> symbols;
  for (size_t at = 0; at < escaped.size();) {
    const size_t n = character(escaped, at);
    symbols.push_back(escaped.substr(at, n));
    at += n;
  }
  for (;;) {
    size_t best = symbols.size();
    float best_score = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto it = ids.find(symbols[i] + symbols[i + 1]);
      if (it == ids.end()) continue;
      const float score = v.scores[static_cast<size_t>(it->second)];
      if (best == symbols.size() || score > best_score) {
        best = i;
        best_score = score;
      }
    }
    if (best == symbols.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<int32_t> out;
  for (const std::string& s : symbols) {
    if (const auto it = ids.find(s); it != ids.end()) {
      out.push_back(it->second);
    } else {
      for (const char c : s) out.push_back(bytes.at(static_cast<uint8_t>(c)));
    }
  }
  return out;
}

TEST(SpmTokenizer, AgreesWithTheNaiveReference) {
#ifdef __SANITIZE_ADDRESS__
  constexpr int kTexts = 200;  // the reference is slow
#else
  constexpr int kTexts = 2000;
#endif
  SplitMix rng(11);
  for (const uint32_t n_vocab : {300u, 320u, 500u, 2000u}) {
    const SpmVocab v = vocab_of(n_vocab);
    const auto t = make(v);
    for (int i = 0; i < kTexts; ++i) {
      const std::string text = random_text(rng, v, true);
      ASSERT_EQ(ids_of(*t, text, 0), reference(v, text)) << text;
    }
  }
}

// Few letters, many overlapping pieces, few distinct scores: ties decide everywhere.
TEST(SpmTokenizer, AgreesWithTheReferenceOnTies) {
  SplitMix rng(12);
  for (int round = 0; round < 200; ++round) {
    SpmVocab v = vocab_of(300);
    v.tokens.resize(259);
    v.scores.resize(259);
    v.types.resize(259);
    for (int i = 0; i < 40; ++i) {
      std::string piece;
      for (uint64_t n = 1 + rng.below(5); n > 0; --n)
        piece += rng.below(4) == 0 ? kSpace : std::string(1, static_cast<char>('a' + rng.below(3)));
      add(v, piece, static_cast<float>(rng.below(3)), TokenType::normal);
    }
    const auto t = make(v);
    for (int i = 0; i < 20; ++i) {
      std::string text;
      for (uint64_t n = rng.below(60); n > 0; --n) text += "abc "[rng.below(4)];
      ASSERT_EQ(ids_of(*t, text, 0), reference(v, text)) << text;
    }
  }
}

TEST(SpmTokenizer, DecodesWhatItEncoded) {
  SplitMix rng(13);
  for (const uint32_t n_vocab : {320u, 2000u}) {
    const SpmVocab v = vocab_of(n_vocab);
    const auto t = make(v);
    for (int i = 0; i < 4000; ++i) {
      const std::string text = random_text(rng, v, i % 2 == 0);
      for (const uint32_t flags : {0u, kBos, kRaw, kRaw | kBos}) {
        const auto back = t->decode(ids_of(*t, text, flags), flags);
        ASSERT_TRUE(back.is_ok());
        ASSERT_EQ(back.value(), text) << flags;
      }
    }
  }
}

TEST(SpmTokenizer, LongTextsTakeNoMoreThanAMoment) {
  // 1 MiB that merges all the way up; quadratic work would take hours.
  const SpmVocab v = vocab_of(320);
  const auto t = make(v);
  std::string text;
  while (text.size() < (1u << 20)) text += "and the story ";
  const auto ids = ids_of(*t, text, 0);
  EXPECT_LT(ids.size(), text.size());
  EXPECT_EQ(t->decode(ids, 0).value(), text);
}

TEST(SpmTokenizer, SpacePrefixAndFlags) {
  SpmVocab v = vocab_of(320);
  auto t = make(v);
  const auto id = [&](const std::string& s) {
    for (size_t i = 0; i < v.tokens.size(); ++i) {
      if (v.tokens[i] == s) return static_cast<int32_t>(i);
    }
    return -1;
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(ids_of(*t, "", 0), Ids());
  EXPECT_EQ(ids_of(*t, "", kBos), Ids{1});
  EXPECT_EQ(ids_of(*t, "the", 0), Ids{id(kSpace + "the")});
  EXPECT_EQ(ids_of(*t, "the", kBos), (Ids{1, id(kSpace + "the")}));
  EXPECT_EQ(ids_of(*t, "the", kRaw), (Ids{id("t"), id("he")}));
  EXPECT_EQ(ids_of(*t, " the", kRaw), Ids{id(kSpace + "the")});
  EXPECT_EQ(ids_of(*t, " the", 0), (Ids{id(kSpace), id(kSpace + "the")}));
  v.add_space_prefix = false;
  t = make(v);
  EXPECT_EQ(ids_of(*t, "the", 0), (Ids{id("t"), id("he")}));
  EXPECT_EQ(t->decode(ids_of(*t, " the", 0), 0).value(), " the") << "no prefix, none to drop";
  v.add_bos = false;
  t = make(v);
  EXPECT_EQ(ids_of(*t, "", kBos), Ids()) << "the model has BOS and does not expect it";
  v.add_bos = true;
  v.bos = -1;
  t = make(v);
  EXPECT_EQ(ids_of(*t, "", kBos), Ids());
}

TEST(SpmTokenizer, SpecialTokensOnlyWhereAsked) {
  SpmVocab v = vocab_of(500);
  add(v, "<|user|>", 0, TokenType::user_defined);  // 500
  add(v, "<|user|>!", 0, TokenType::control);      // 501
  const auto t = make(v);
  using Ids = std::vector<int32_t>;
  const Ids the = ids_of(*t, "the", 0);
  ASSERT_EQ(the.size(), 1u);
  // Untrusted text: never a control token, whatever it says.
  for (const std::string text : {"<s>", "</s>the", "<unk>", "<0x41>", "a<s>b", "<|user|>!"}) {
    for (const int32_t token : ids_of(*t, text, 0)) {
      EXPECT_TRUE(token > 2 && token != 501) << text;
    }
  }
  EXPECT_EQ(t->decode(ids_of(*t, "<s>", 0), 0).value(), "<s>");
  EXPECT_EQ(ids_of(*t, "<s>", kSpecial), Ids{1});
  EXPECT_EQ(ids_of(*t, "<s>", kSpecial | kBos), (Ids{1, 1}));
  // The text after a special token begins with a space of its own.
  EXPECT_EQ(ids_of(*t, "<s>the</s>the", kSpecial), (Ids{1, the[0], 2, the[0]}));
  EXPECT_EQ(ids_of(*t, "<s>the</s>the", kSpecial | kRaw).size(), 6u);
  // User-defined tokens always count; the longer name wins where control tokens count too.
  EXPECT_EQ(ids_of(*t, "<|user|>the", 0), (Ids{500, the[0]}));
  EXPECT_EQ(ids_of(*t, "<|user|>!", kSpecial), Ids{501});
  EXPECT_EQ(ids_of(*t, "<|user|>!", 0)[0], 500);
}

// Phi-3: <|user|>\n is one token. BOS and its like leave the text alone.
TEST(SpmTokenizer, SpecialTokensThatTakeWhiteSpaceAlong) {
  SpmVocab v = vocab_of(500);
  add(v, "<|user|>", 0, TokenType::control);       // 500
  add(v, "<|endoftext|>", 0, TokenType::control);  // 501
  using Ids = std::vector<int32_t>;
  const auto before = make(v);
  v.strips_right = true;
  const auto t = make(v);
  const int32_t the = ids_of(*t, "the", 0).at(0);
  EXPECT_EQ(ids_of(*t, "<|user|>\nthe", kSpecial), (Ids{500, the}));
  EXPECT_EQ(ids_of(*t, "<|user|> \t\n\u00a0the", kSpecial), (Ids{500, the}));
  EXPECT_EQ(ids_of(*t, "<|user|>\n<|user|> ", kSpecial), (Ids{500, 500}));
  EXPECT_EQ(ids_of(*t, "the </s> the", kSpecial), (Ids{the, ids_of(*t, " ", kRaw).at(0), 2, the}));
  for (const std::string name : {"<s>", "<|endoftext|>", "<unk>"}) {
    const std::string text = name + " the";
    EXPECT_EQ(ids_of(*t, text, kSpecial), ids_of(*before, text, kSpecial)) << name;
  }
  EXPECT_EQ(ids_of(*t, "<|user|> the", 0), ids_of(*before, "<|user|> the", 0)) << "plain text";
  EXPECT_NE(ids_of(*t, "<|user|> the", kSpecial), ids_of(*before, "<|user|> the", kSpecial));
  const auto digest = [](const SpmTokenizer& tokenizer) {
    Sha256Hasher hasher;
    tokenizer.hash(hasher);
    return hasher.finish();
  };
  EXPECT_NE(digest(*t), digest(*before));
}

TEST(SpmTokenizer, ControlTokensCannotBeMergedTogether) {
  SpmVocab v = vocab_of(320);
  // Pieces on the way to control, unknown and byte tokens.
  for (const char* piece : {"<", ">", "0", "4", "1", "<s", "</", "</s", "un", "<un", "k>", "0x",
                            "<0x", "<0x4", "1>", "41>"}) {
    add(v, piece, 10, TokenType::normal);
  }
  const auto t = make(v);
  for (const std::string text : {"<s>", "</s>", "<unk>", "<0x41>", " <s> </s>"}) {
    const auto ids = ids_of(*t, text, 0);
    EXPECT_EQ(t->decode(ids, 0).value(), text);
    for (const int32_t id : ids) EXPECT_GE(id, 259) << text;
  }
}

TEST(SpmTokenizer, PiecesAndDecoding) {
  SpmVocab v = vocab_of(320);
  add(v, "a" + kSpace + kSpace + "b", 0, TokenType::normal);  // 320
  add(v, kSpace + "<|u|>", 0, TokenType::user_defined);       // 321
  const auto t = make(v);
  EXPECT_EQ(t->n_vocab(), 322u);
  EXPECT_EQ(t->piece(1, 0), "");
  EXPECT_EQ(t->piece(1, kSpecial), "<s>");
  EXPECT_EQ(t->piece(0, 0), "");
  EXPECT_EQ(t->piece(3 + 0xe9, 0), "\xe9");
  EXPECT_EQ(t->piece(3, 0), std::string(1, '\0'));
  EXPECT_EQ(t->piece(320, 0), "a  b");
  EXPECT_EQ(t->piece(321, 0), kSpace + "<|u|>") << "taken from the text as it stands";
  const std::vector<int32_t> ids = {1, 259, 259, 2};  // " t" twice between BOS and EOS
  EXPECT_EQ(t->decode(ids, 0).value(), "t t");
  EXPECT_EQ(t->decode(ids, kRaw).value(), " t t");
  EXPECT_EQ(t->decode(ids, kSpecial).value(), "<s>t t</s>");
  for (const int32_t bad : {-1, 322, std::numeric_limits<int32_t>::max()}) {
    const auto r = t->decode(std::vector<int32_t>{1, bad}, 0);
    EXPECT_EQ(r.status().code(), BLEND_E_INVALID_ARGUMENT);
    EXPECT_NE(r.status().message().find("index 1"), std::string::npos);
  }
}

TEST(SpmTokenizer, StopTokens) {
  SpmVocab v = vocab_of(320);
  add(v, "<|im_end|>", 0, TokenType::control);
  add(v, "<|end|>", 0, TokenType::normal);
  v.stop = {270};
  const auto t = make(v);
  std::vector<int32_t> stops;
  for (int32_t i = -2; i < 322; ++i) {
    if (t->is_stop(i)) stops.push_back(i);
  }
  EXPECT_EQ(stops, (std::vector<int32_t>{2, 270, 320}));
  v.eos = -1;
  EXPECT_FALSE(make(v)->is_stop(-1));
}

TEST(SpmTokenizer, UnknownWhereBytesAreMissing) {
  SpmVocab v;
  for (const std::string piece : {"<unk>", "a", kSpace.c_str()})
    add(v, piece, 0, TokenType::normal);
  v.types[0] = static_cast<int32_t>(TokenType::unknown);
  v.unk = 0;
  EXPECT_EQ(ids_of(*make(v), "a€b", 0), (std::vector<int32_t>{2, 1, 0, 0}));
  v.unk = -1;
  EXPECT_EQ(ids_of(*make(v), "a€b", 0), (std::vector<int32_t>{2, 1}));
}

// As in llama.cpp, which finds them by their texts. Converters give them the type that the
// original's added tokens had.
TEST(SpmTokenizer, BytesOfAnyTypeAreFound) {
  const SpmVocab plain = vocab_of(700);
  const std::string text = "hello \xc3\xa9\n\xff<0x0A>";
  const std::vector<int32_t> expected = ids_of(*make(plain), text, kRaw);
  for (const TokenType type : {TokenType::normal, TokenType::unknown, TokenType::control,
                               TokenType::user_defined, TokenType::unused}) {
    SpmVocab v = plain;
    int32_t newline = -1;
    for (size_t i = 0; i < v.tokens.size(); ++i) {
      if (v.types[i] == static_cast<int32_t>(TokenType::byte)) {
        v.types[i] = static_cast<int32_t>(type);
      }
      if (v.tokens[i] == "<0x0A>") newline = static_cast<int32_t>(i);
    }
    const auto t = make(v);
    ASSERT_NE(t, nullptr);
    std::vector<int32_t> ids = expected;
    // A user-defined token is found in every text.
    if (type == TokenType::user_defined) {
      ids = ids_of(*make(plain), "hello \xc3\xa9\n\xff", kRaw);
      ids.push_back(newline);
    }
    EXPECT_EQ(ids_of(*t, text, kRaw), ids) << static_cast<int>(type);
    const std::string decoded = type == TokenType::user_defined ? "hello \xc3\xa9\n\xff\n" : text;
    EXPECT_EQ(t->decode(ids, kRaw).value(), decoded) << static_cast<int>(type);
    EXPECT_EQ(t->decode(ids, kRaw | kSpecial).value(), decoded) << static_cast<int>(type);
  }
}

TEST(SpmTokenizer, TypesAreGuessedWhereTheFileHasNone) {
  SpmVocab v = vocab_of(320);
  v.types.clear();
  const auto t = make(v);
  EXPECT_EQ(t->piece(1, 0), "");
  EXPECT_EQ(ids_of(*t, "<s>", kSpecial), std::vector<int32_t>{1});
  EXPECT_EQ(t->decode(ids_of(*t, "€ <s>", 0), 0).value(), "€ <s>");
}

TEST(SpmTokenizer, RefusesWhatDoesNotFit) {
  const auto expect = [](SpmVocab v, const std::string& part) {
    const auto t = SpmTokenizer::create(std::move(v));
    ASSERT_FALSE(t.is_ok()) << part;
    EXPECT_EQ(t.status().code(), BLEND_E_FORMAT);
    EXPECT_NE(t.status().message().find(part), std::string::npos) << t.status().message();
  };
  expect({}, "empty");
  SpmVocab v = vocab_of(320);
  v.scores.pop_back();
  expect(v, "scores");
  v = vocab_of(320);
  v.types.push_back(1);
  expect(v, "types");
  for (const int32_t id : {320, -2}) {
    v = vocab_of(320);
    v.bos = id;
    expect(v, "BOS");
    v = vocab_of(320);
    v.eos = id;
    expect(v, "EOS");
    v = vocab_of(320);
    v.unk = id;
    expect(v, "unknown");
    v = vocab_of(320);
    v.stop = {3, id};
    expect(v, "end-of-turn");
  }
}

// Empty texts, duplicates, NaN and infinite scores, senseless types, broken byte tokens.
TEST(SpmTokenizer, HostileVocabulariesStayUsable) {
  SplitMix rng(14);
  const float odd[] = {std::numeric_limits<float>::quiet_NaN(),
                       -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::infinity(), 0, -0.0f};
  for (int round = 0; round < 300; ++round) {
    SpmVocab v;
    const uint64_t n = 1 + rng.below(80);
    for (uint64_t i = 0; i < n; ++i) {
      std::string piece;
      for (uint64_t k = rng.below(6); k > 0; --k) piece += "ab<\xe2\x96\x81\xff"[rng.below(7)];
      if (rng.below(5) == 0) piece = rng.below(2) == 0 ? "<0xZZ>" : "<0x61>";
      add(v, piece, odd[rng.below(5)], TokenType::normal);
      v.types.back() = static_cast<int32_t>(rng.below(12)) - 2;
    }
    v.bos = static_cast<int32_t>(rng.below(n));
    v.eos = static_cast<int32_t>(rng.below(n));
    v.unk = static_cast<int32_t>(rng.below(n + 1)) - 1;
    if (round % 5 == 0) v.types.clear();
    const auto t = make(v);
    for (int i = 0; i < 20; ++i) {
      std::string text;
      for (uint64_t k = rng.below(40); k > 0; --k) text += "ab< \xe2\x96\x81\xff"[rng.below(8)];
      const auto ids = ids_of(*t, text, static_cast<uint32_t>(rng.below(8)));
      for (const int32_t id : ids) ASSERT_TRUE(id >= 0 && static_cast<uint64_t>(id) < n);
      EXPECT_TRUE(t->decode(ids, static_cast<uint32_t>(rng.below(8))).is_ok());
    }
  }
}

// Ids that the sentencepiece library (0.2.3) gives for the same vocabulary.
TEST(SpmTokenizer, RealVocabulary) {
  const std::string path = test::outside_data("models/stories260K.gguf");
  if (path.empty()) GTEST_SKIP() << test::kNoOutsideData;
  const auto source = open_model_source(path);
  ASSERT_TRUE(source.is_ok()) << source.status().message();
  const Tokenizer& t = source.value()->tokenizer();
  struct Case {
    const char* text;
    std::vector<int32_t> ids;
  };
  const Case cases[] = {
      {"Once upon a time", {403, 407, 261, 378}},
      {" hello  world\n", {410, 281, 306, 414, 410, 263, 304, 341, 13}},
      {"<s>", {410, 504, 419, 505}},
      {"<0x41>\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
       {410, 504, 477, 444, 484, 475, 505, 485, 503, 243, 162, 155, 131}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(ids_of(t, c.text, 0), c.ids) << c.text;
    EXPECT_EQ(t.decode(c.ids, 0).value(), c.text);
  }
  EXPECT_EQ(t.bos(), 1);
  EXPECT_EQ(t.eos(), 2);
  EXPECT_TRUE(t.add_bos());
  EXPECT_TRUE(t.is_stop(2));
}

}  // namespace
}  // namespace blend

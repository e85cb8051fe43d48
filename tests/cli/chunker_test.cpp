// The chunker, with a tokenizer that makes a token of every word and of every newline.
#include "chunker.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace blend_cli {
namespace {

blendpp::Tokens words(std::string_view text) {
  blendpp::Tokens tokens;
  bool inside = false;
  for (const char c : text) {
    const bool blank = c == ' ' || c == '\n';
    if (c == '\n' || (!blank && !inside)) tokens.push_back(c);
    inside = !blank;
  }
  return tokens;
}

blendpp::Tokens bytes(std::string_view text) { return {text.begin(), text.end()}; }

std::vector<std::string> texts(const std::string& text, size_t max_tokens,
                               const TokenizeFn& tokenize = words) {
  std::vector<std::string> out;
  for (const Chunk& chunk : split_documents({{"a.txt", text}}, max_tokens, tokenize)) {
    EXPECT_LE(chunk.tokens.size(), max_tokens) << chunk.text;
    EXPECT_EQ(chunk.tokens, tokenize(chunk.text));
    out.push_back(chunk.text);
  }
  return out;
}

using Texts = std::vector<std::string>;

TEST(Chunker, PacksParagraphsUpToTheLimit) {
  EXPECT_EQ(texts("a b\n\nc d\n\n\ne f", 6), (Texts{"a b\nc d\n", "e f\n"}));
  EXPECT_EQ(texts("a b\n\nc d\n\n\ne f", 9), (Texts{"a b\nc d\ne f\n"}));
  EXPECT_EQ(texts("a b\n\nc d\n\n\ne f", 3), (Texts{"a b\n", "c d\n", "e f\n"}));
}

TEST(Chunker, KeepsTheLinesOfAParagraphTogether) {
  EXPECT_EQ(texts("a\nb\n\nc\nd\n", 4), (Texts{"a\nb\n", "c\nd\n"}));
}

TEST(Chunker, CutsALongParagraphAtSentences) {
  EXPECT_EQ(texts("One two. Three four? Five six.", 4),
            (Texts{"One two. Three four?", "Five six.\n"}));
}

TEST(Chunker, CutsALongSentenceAtSpacesAndALongWordBetweenCharacters) {
  EXPECT_EQ(texts("a b c d e", 2), (Texts{"a b", "c d", "e\n"}));
  EXPECT_EQ(texts("abcdefg", 3, bytes), (Texts{"abc", "def", "g\n"}));
}

TEST(Chunker, MakesNoChunkOfBlanks) { EXPECT_EQ(texts("abcdef", 3, bytes), (Texts{"abc", "def"})); }

TEST(Chunker, NeverCutsInsideAUtf8Sequence) {
  // Two bytes each: at three bytes a chunk, one fits.
  EXPECT_EQ(texts("\xC3\xA9\xC3\xA8\xC3\xAA", 3, bytes),
            (Texts{"\xC3\xA9", "\xC3\xA8", "\xC3\xAA\n"}));
}

TEST(Chunker, AnEmptyDocumentGivesNoChunk) {
  EXPECT_EQ(texts("", 4), Texts{});
  EXPECT_EQ(texts(" \n\t\n\n", 4), Texts{});
}

TEST(Chunker, LosesNothing) {
  std::string text;
  for (int i = 0; i < 500; ++i) {
    text += "word" + std::to_string(i) + (i % 7 == 6 ? ".\n" : i % 31 == 30 ? "\n\n" : " ");
  }
  std::string joined;
  for (const std::string& chunk : texts(text, 16)) joined += chunk + ' ';
  const auto without_blanks = [](std::string s) {
    std::erase_if(s, [](char c) { return c == ' ' || c == '\n'; });
    return s;
  };
  EXPECT_EQ(without_blanks(joined), without_blanks(text));
}

TEST(Chunker, AChunkDependsOnItsOwnDocumentOnly) {
  const Document a{"a", "one two\n\nthree"};
  const Document b{"b", "four five"};
  const std::vector<Chunk> both = split_documents({b, a}, 8, words);
  const std::vector<Chunk> alone = split_documents({a}, 8, words);
  ASSERT_EQ(both.size(), 2u);
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_EQ(both[1].tokens, alone[0].tokens);
  EXPECT_EQ(both[1].document, 1u);
}

}  // namespace
}  // namespace blend_cli

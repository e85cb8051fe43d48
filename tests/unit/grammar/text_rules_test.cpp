#include "grammar/text_rules.h"

#include <gtest/gtest.h>

#include "base/utf8_stream.h"

namespace blend::test {
namespace {

using grammar::TextRules;

// Every sequence of up to three bytes, and those of four at the edges, against the decoder.
TEST(TextRules, AgreesWithTheUtf8Decoder) {
  const TextRules rules(TextRules::Kind::text);
  const auto check = [&](const std::string& bytes) {
    const bool whole = rules.run(TextRules::kStart, bytes) == TextRules::kStart;
    ASSERT_EQ(whole, valid_utf8(bytes) == bytes) << testing::PrintToString(bytes);
  };
  const int edges[] = {0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0,
                       0xc2, 0xdf, 0xe0, 0xed, 0xef, 0xf0, 0xf4, 0xf5, 0xff};
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      check({static_cast<char>(a), static_cast<char>(b)});
      for (const int c : edges) {
        check({static_cast<char>(a), static_cast<char>(b), static_cast<char>(c)});
        if (a < 0xe0) continue;
        for (const int d : edges) {
          check({static_cast<char>(a), static_cast<char>(b), static_cast<char>(c),
                 static_cast<char>(d)});
        }
      }
    }
  }
}

TEST(TextRules, JsonHasNoControlCharactersAndNoHalvesOfPairs) {
  const TextRules rules(TextRules::Kind::json);
  const auto good = [&](std::string_view bytes) {
    return rules.run(TextRules::kStart, bytes) != TextRules::kForbidden;
  };
  EXPECT_TRUE(good(R"("\u00e9\\ud800\"\uD7FF\b\/\u0)"));
  EXPECT_FALSE(good(R"(\x)"));
  EXPECT_FALSE(good("\\\xc3\xa9"));
  EXPECT_FALSE(good(R"(\u00g)"));
  EXPECT_FALSE(good(R"(\u")"));
  EXPECT_FALSE(good(R"(\ud8)"));
  EXPECT_FALSE(good(R"(\uDC)"));
  EXPECT_TRUE(good(R"(\\ud8)"));
  EXPECT_FALSE(good("a\n"));
  EXPECT_TRUE(TextRules(TextRules::Kind::text).run(TextRules::kStart, "a\n\\ud8") ==
              TextRules::kStart);
}

}  // namespace
}  // namespace blend::test

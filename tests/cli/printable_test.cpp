// Text that cannot steer a terminal, whole and in pieces.
#include "printable.h"

#include <gtest/gtest.h>

#include <string>

namespace blend_cli {
namespace {

TEST(Printable, TextStaysAsItIs) {
  for (const char* text : {"", "a b", "caf\xC3\xA9", "\xE6\x97\xA5\xE6\x9C\xAC \xF0\x9F\x98\x80",
                           "C:\\dir", "\xD7\xA9\xD7\x9C"}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Printable, ControlCharactersAreEscaped) {
  EXPECT_EQ(printable("\x1b[31m\a\x7f"), "\\x1b[31m\\x07\\x7f");
  EXPECT_EQ(printable("a\nb\tc\r"), "a\\nb\\tc\\r");
  EXPECT_EQ(printable("a\nb\tc\r", Keep::lines), "a\nb\tc\\r");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xC2\x9B"
                      "2J\xC2\xA0"),
            "\\u009b2J\xC2\xA0");
  EXPECT_EQ(printable("\xE2\x80\xAE\xE2\x81\xA6\xE2\x80\xA8"), "\\u202e\\u2066\\u2028");
  EXPECT_EQ(printable("\xE2\x80\x8F"), "\xE2\x80\x8F") << "a mark that Hebrew and Arabic need";
}

TEST(Printable, BytesThatAreNoUtf8AreEscaped) {
  EXPECT_EQ(printable("\x9b"
                      "2J\xff"),
            "\\x9b2J\\xff");
  EXPECT_EQ(printable("\xC0\xAF \xED\xA0\x80"), "\\xc0\\xaf \\xed\\xa0\\x80");
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(printable("\xE6\x97"), "\\xe6\\x97") << "cut inside a character";
}

TEST(Printable, PiecesMayEndInsideACharacter) {
  const std::string text = "a\xE6\x97\xA5\xF0\x9F\x98\x80\x1b\xC2\x9B\xFF\xC3\xA9\xE6";
  for (size_t n = 1; n <= text.size(); ++n) {
    PrintableStream stream;
    std::string out;
    for (size_t at = 0; at < text.size(); at += n) out += stream.add(text.substr(at, n));
    out += stream.finish();
    EXPECT_EQ(out, "a\xE6\x97\xA5\xF0\x9F\x98\x80\\x1b\\u009b\\xff\xC3\xA9\\xe6") << n;
  }
}

TEST(Printable, AWholeCharacterIsShownAtOnce) {
  PrintableStream stream;
  EXPECT_EQ(stream.add("\xE6\x97"), "");
  EXPECT_EQ(stream.add("\xA5"), "\xE6\x97\xA5");
  EXPECT_EQ(stream.add("b"), "b");
  EXPECT_EQ(stream.finish(), "");
}

}  // namespace
}  // namespace blend_cli

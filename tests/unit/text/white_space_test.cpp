// What Python strips.
#include "text/white_space.h"

#include <gtest/gtest.h>

namespace blend::text {
namespace {

TEST(WhiteSpace, IsWhatPythonStrips) {
  EXPECT_EQ(stripped(" \t\r\n a b\n\x1C"), "a b");
  EXPECT_EQ(stripped_right(" a "), " a");
  EXPECT_EQ(stripped(""), "");
  EXPECT_EQ(stripped("\xC2\xA0\xE3\x80\x80"), "");
}

TEST(WhiteSpace, IsCountedInBytes) {
  EXPECT_EQ(space_at("\x1F."), 1u);
  EXPECT_EQ(space_at("\xC2\x85."), 2u);      // U+0085
  EXPECT_EQ(space_at("\xE2\x80\x8A."), 3u);  // U+200A
  EXPECT_EQ(space_at("\xE2\x80\x8B."), 0u);  // U+200B is none
  EXPECT_EQ(space_at("a"), 0u);
}

// A character is taken whole or left, whatever its last byte looks like.
TEST(WhiteSpace, LeavesOtherCharactersWhole) {
  EXPECT_EQ(stripped("\xC3\x85"), "\xC3\x85");                   // ends like U+0085
  EXPECT_EQ(stripped("\xF0\x9F\x98\x80 "), "\xF0\x9F\x98\x80");  // four bytes
  EXPECT_EQ(stripped("a\xA0"), "a\xA0");                         // a stray byte
}

}  // namespace
}  // namespace blend::text

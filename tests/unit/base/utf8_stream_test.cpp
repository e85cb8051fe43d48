#include "base/utf8_stream.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace blend {
namespace {

std::string stream(const std::vector<std::string>& parts) {
  Utf8Stream s;
  std::string out;
  for (const std::string& p : parts) out += s.push(p);
  return out + s.finish();
}

// The examples of Unicode 3.9, "U+FFFD substitution of maximal subparts".
TEST(Utf8Stream, ReplacesMaximalSubparts) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(stream({"\x41\xC0\xAF\x41\xF4\x80\x80\x41"}), "A" + r + r + "A" + r + "A");
  EXPECT_EQ(stream({"\x41\xE2\x98\xC3\x2E\xE2\x80\x41"}), "A" + r + r + "." + r + "A");
  EXPECT_EQ(stream({"\xED\xA0\x80"}), r + r + r);          // a surrogate
  EXPECT_EQ(stream({"\xE0\x80\x80"}), r + r + r);          // overlong
  EXPECT_EQ(stream({"\xF4\x90\x80\x80"}), r + r + r + r);  // past U+10FFFF
  EXPECT_EQ(stream({"\xF0\x9F\x98"}), r);                  // cut short by the end
}

TEST(Utf8Stream, GivesTheSameTextHoweverTheBytesAreCut) {
  const std::string text = "aß€\xF0\x9F\x98\x80z\xFFq\xE2\x82";
  const std::string whole = stream({text});
  for (size_t i = 0; i <= text.size(); ++i) {
    for (size_t j = i; j <= text.size(); ++j) {
      EXPECT_EQ(stream({text.substr(0, i), text.substr(i, j - i), text.substr(j)}), whole);
    }
  }
}

TEST(Utf8Stream, HoldsAnIncompleteSequenceBack) {
  Utf8Stream s;
  EXPECT_EQ(s.push("x\xE2\x82"), "x");
  EXPECT_EQ(s.push("\xAC"), "\xE2\x82\xAC");
  EXPECT_EQ(s.finish(), "");
}

}  // namespace
}  // namespace blend

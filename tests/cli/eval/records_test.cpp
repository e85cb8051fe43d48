// Kinds of record by their names, and which chunks are similar.
#include "eval/records.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "command.h"
#include "eval/similar.h"

namespace blend_cli {
namespace {

using Is = RecordKind::Is;

TEST(EvalRecords, AreAListInWhichATextMayHaveCommas) {
  EXPECT_EQ(split_record_kinds("alone,head,similar:4,predecessor,bos"),
            (std::vector<std::string>{"alone", "head", "similar:4", "predecessor", "bos"}));
  EXPECT_EQ(split_record_kinds("text:so, it was,head,text:,x"),
            (std::vector<std::string>{"text:so, it was", "head", "text:,x"}));
  for (const char* bad :
       {"", "head,", "none", "similar", "similar:", "similar:0", "similar:17", "similar:1x",
        "similar:-1", "joined:0", "preceding:", "head,eos", "profile"}) {
    EXPECT_THROW(split_record_kinds(bad), CommandError) << bad;
  }
}

TEST(EvalRecords, SaySomethingAboutTheirPassages) {
  EXPECT_EQ(parse_record_kind("similar:12").n_passages, 12u);
  EXPECT_EQ(parse_record_kind("similar:12").is, Is::similar);
  EXPECT_EQ(parse_record_kind("joined:3").is, Is::joined);
  EXPECT_EQ(parse_record_kind("preceding:2").is, Is::preceding);
  EXPECT_EQ(parse_record_kind("preceding:2").n_passages, 2u);
  EXPECT_FALSE(parse_record_kind("head").contextual());
  EXPECT_EQ(parse_record_kind("head").is, Is::head);
  EXPECT_EQ(parse_record_kind("text:head").is, Is::text);
  EXPECT_EQ(parse_record_kind(kProfileRecords).is, Is::profile);
}

// Eleven tokens or more, so that they may be a context: `own`, then tokens that no other chunk has.
blendpp::Tokens chunk(const blendpp::Tokens& own, int32_t filler) {
  blendpp::Tokens tokens = own;
  for (int32_t i = 0; tokens.size() < 12; ++i) tokens.push_back(filler + i);
  return tokens;
}

TEST(EvalSimilar, ByWeighedTokensAndNeitherItselfNorCopiesNorShortOnes) {
  const blendpp::Tokens a = chunk({1, 2, 3, 4}, 100);
  const blendpp::Tokens near = chunk({1, 2, 3}, 200);
  const blendpp::Tokens far = chunk({1}, 300);
  const blendpp::Tokens other = chunk({9}, 400);
  blendpp::Tokens copy = a;
  copy.push_back(a.back());
  const blendpp::Tokens brief = {2, 3, 4};
  const SimilarChunks similar({a, far, near, a, other, copy, brief});
  EXPECT_EQ(similar.chunks().size(), 6u) << "a stands twice and counts once";
  const auto found = similar.most_similar(a, 2);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(*found[0], near);
  EXPECT_EQ(*found[1], far);
  EXPECT_EQ(similar.most_similar(a, 9).size(), 3u);
  // A chunk that is not among them has similar ones too.
  EXPECT_EQ(*similar.most_similar(chunk({9, 1}, 500), 1)[0], other) << "9 is rarer than 1";
  EXPECT_TRUE(SimilarChunks().most_similar(a, 3).empty());
}

}  // namespace
}  // namespace blend_cli

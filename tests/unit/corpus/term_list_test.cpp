// The distinct tokens of a chunk, packed: against a map.
#include "corpus/term_list.h"

#include <gtest/gtest.h>

#include <climits>
#include <map>
#include <random>
#include <vector>

namespace blend {
namespace {

void expect_round_trip(const std::vector<int32_t>& tokens) {
  std::map<uint32_t, uint32_t> want;
  for (const int32_t t : tokens) ++want[static_cast<uint32_t>(t)];
  const TermList list(tokens);
  EXPECT_EQ(list.size(), want.size());
  auto at = want.begin();
  list.for_each([&](uint32_t token, uint32_t count) {
    ASSERT_NE(at, want.end());
    EXPECT_EQ(token, at->first);
    EXPECT_EQ(count, at->second);
    ++at;
  });
  EXPECT_EQ(at, want.end());
}

TEST(CorpusTermList, GivesTokensAndCounts) {
  expect_round_trip({});
  expect_round_trip({0});
  expect_round_trip({5, 5, 5, 1, 0, 9});
  expect_round_trip({INT_MIN, -1, INT_MAX, 0, -1});
  expect_round_trip(std::vector<int32_t>(100'000, 7));
  std::mt19937_64 rng(1);
  for (const int bits : {3, 8, 16, 32}) {
    std::vector<int32_t> tokens(700);
    for (int32_t& t : tokens) t = static_cast<int32_t>(rng() >> (64 - bits));
    expect_round_trip(tokens);
  }
}

TEST(CorpusTermList, TakesTwoBytesForATokenOfAUsualVocabulary) {
  std::mt19937_64 rng(2);
  std::vector<int32_t> tokens(256);
  for (int32_t& t : tokens) t = static_cast<int32_t>(rng() % 50'000);
  const TermList list(tokens);
  EXPECT_LE(list.bytes(), 2.2 * list.size());
}

}  // namespace
}  // namespace blend

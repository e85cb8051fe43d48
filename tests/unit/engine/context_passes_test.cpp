#include "engine/context_passes.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/precompute.h"
#include "store/chunk/chunk.h"
#include "support/engine_fixture.h"

namespace blend {
namespace {

using Passes = std::vector<std::vector<size_t>>;

TEST(DealPassages, ALongPassageHasAPrefillOfItsOwn) {
  EXPECT_EQ(deal_passages({}, 4), Passes{});
  const size_t one[] = {3};
  EXPECT_EQ(deal_passages(one, 4), Passes{{0}});
  const size_t four[] = {256, 200, 512, kContextTokens};
  EXPECT_EQ(deal_passages(four, 4), (Passes{{0}, {1}, {2}, {3}}));
}

TEST(DealPassages, ShortOnesShareOneUntilItIsLongEnough) {
  const size_t four[] = {50, 40, 60, 45};
  EXPECT_EQ(deal_passages(four, 4), (Passes{{0, 1, 2, 3}}));
  // The most similar are in different prefills.
  const std::vector<size_t> eight(8, kContextTokens / 4);
  EXPECT_EQ(deal_passages(eight, 4), (Passes{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  const size_t mixed[] = {kContextTokens, 40, 40, 40, 40};
  EXPECT_EQ(deal_passages(mixed, 4), (Passes{{0}, {1, 2, 3, 4}}));
  EXPECT_EQ(deal_passages(eight, 1), (Passes{{0, 1, 2, 3, 4, 5, 6, 7}}))
      << "no more than asked for";
}

// With a predecessor a prefill needs fewer tokens of passages.
TEST(DealPassages, APredecessorCounts) {
  const auto passes = [](size_t n_predecessor, const std::vector<size_t>& n_tokens) {
    return deal_passages(n_tokens, kPrecededPasses, passage_tokens(n_predecessor)).size();
  };
  EXPECT_EQ(passes(50, std::vector<size_t>(6, 50)), 2u);
  EXPECT_EQ(passes(130, {130, 130}), 2u);
  EXPECT_EQ(passes(180, {30, 30}), 2u);
  EXPECT_EQ(passes(50, {50, 50, 50}), 1u) << "too few for two";
  EXPECT_EQ(passes(20, {180, 180, 1000}), 2u) << "no more than two";
  EXPECT_EQ(passes(500, {50, 50}), 2u);
}

TEST(DealPassages, ShortPassagesAreTakenUntilTheyAreEnough) {
  EXPECT_FALSE(enough_passages(4, 4 * kContextTokens - 1, 4));
  EXPECT_TRUE(enough_passages(4, 4 * kContextTokens, 4));
  EXPECT_FALSE(enough_passages(3, 9 * kContextTokens, 4));
  EXPECT_TRUE(enough_passages(kMostContexts, 16, 4));
}

class ContextPassesTest : public test::EngineTest {
 protected:
  std::shared_ptr<const ChunkRecord> record(const std::vector<int32_t>& of) {
    auto made =
        precompute_chunk(*model_, head_, describe_chunk(*model_, DType::f32, head_, "", of), {});
    EXPECT_TRUE(made.is_ok()) << made.status().message();
    return *made;
  }
  const std::vector<int32_t> head_{1, 5, 9};
};

TEST_F(ContextPassesTest, TheMostSimilarStandsNextToTheChunk) {
  const std::vector<int32_t> a = tokens(20, 1), b = tokens(30, 2), c = tokens(25, 3);
  const ContextPasses::Part parts[] = {{a}, {b}, {c}};
  const ContextPasses passes = ContextPasses::of(parts, 1000, 3);
  ASSERT_EQ(passes.passages().size(), 1u);
  std::vector<int32_t> text = c;
  text.insert(text.end(), b.begin(), b.end());
  text.insert(text.end(), a.begin(), a.end());
  const auto is = passes.passages()[0].tokens;
  EXPECT_EQ(std::vector<int32_t>(is.begin(), is.end()), text);
  EXPECT_TRUE(passes.passages()[0].stored.empty());
}

TEST_F(ContextPassesTest, APredecessorEndsEveryPassage) {
  const std::vector<int32_t> a = tokens(200, 1), b = tokens(210, 2), end = tokens(9, 3);
  const auto of_a = record(a), of_b = record(b);
  const auto from_a = make_memory_source(of_a), from_b = make_memory_source(of_b);
  const ContextPasses::Part parts[] = {{a, from_a.get()}, {b, from_b.get()}};
  ContextPasses passes = ContextPasses::of(parts, 1000, 2);
  ASSERT_FALSE(passes.passages()[0].stored.empty());
  passes.end_with(end);
  ASSERT_EQ(passes.passages().size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    std::vector<int32_t> text = i == 0 ? a : b;
    text.insert(text.end(), end.begin(), end.end());
    const auto is = passes.passages()[i].tokens;
    EXPECT_EQ(std::vector<int32_t>(is.begin(), is.end()), text);
    EXPECT_TRUE(passes.passages()[i].stored.empty()) << "the store has no such rows";
  }
  ContextPasses none;
  none.end_with(end);
  ASSERT_EQ(none.passages().size(), 1u);
  EXPECT_EQ(none.passages()[0].tokens.size(), end.size());
}

TEST_F(ContextPassesTest, WhatDoesNotFitBesideTheOthersIsLeftOut) {
  const std::vector<int32_t> a = tokens(20, 1), b = tokens(30, 2), c = tokens(25, 3);
  const ContextPasses::Part parts[] = {{a}, {b}, {c}};
  EXPECT_EQ(ContextPasses::of(parts, 46, 3).passages()[0].tokens.size(), 20u + 25u);
  EXPECT_EQ(ContextPasses::of(parts, 20, 3).passages()[0].tokens.data(), a.data());
  EXPECT_TRUE(ContextPasses::of(parts, 19, 3).passages().empty());
}

// Of four long passages the second and the fourth are read as they are in context, if that is
// known.
TEST_F(ContextPassesTest, EverySecondPrefillReadsItsPassagesInContext) {
  std::vector<std::vector<int32_t>> texts;
  for (int i = 0; i < 4; ++i) texts.push_back(tokens(static_cast<int>(kContextTokens), 10 + i));
  std::vector<std::unique_ptr<ChunkSource>> plain, in_context;
  std::vector<ContextPasses::Part> parts;
  for (size_t i = 0; i < 4; ++i) {
    plain.push_back(make_memory_source(record(texts[i])));
    in_context.push_back(make_memory_source(record(texts[i])));
    parts.push_back({texts[i], plain[i].get(), i == 3 ? nullptr : in_context[i].get()});
  }
  const ContextPasses passes = ContextPasses::of(parts, 1000, 4);
  ASSERT_EQ(passes.passages().size(), 4u);
  ChunkSource* const wanted[] = {plain[0].get(), in_context[1].get(), plain[2].get(),
                                 plain[3].get()};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(passes.passages()[i].stored, std::vector<ChunkSource*>{wanted[i]}) << i;
  }
}

// Rows that are loaded are those that each part has after the head, one part after the other: near
// what the joined text has, and another result than without one of them.
TEST_F(ContextPassesTest, StoredPartsAreLoadedOneAfterTheOther) {
  const std::vector<int32_t> a = tokens(20, 1), b = tokens(30, 2), chunk = tokens(40, 4);
  const auto a_source = make_memory_source(record(a)), b_source = make_memory_source(record(b));
  const ContextPasses::Part parts[] = {{a, a_source.get()}, {b, b_source.get()}};
  const ContextPasses passes = ContextPasses::of(parts, 1000, 3);
  ASSERT_EQ(passes.passages().size(), 1u);
  ASSERT_EQ(passes.passages()[0].stored,
            (std::vector<ChunkSource*>{b_source.get(), a_source.get()}));
  const auto run = [&](std::span<const ContextPassage> after) {
    auto made = precompute_chunk(*model_, head_,
                                 describe_chunk(*model_, DType::f32, head_, "", chunk), {}, after);
    EXPECT_TRUE(made.is_ok()) << made.status().message();
    return *made;
  };
  std::vector<int32_t> text = b;
  text.insert(text.end(), a.begin(), a.end());
  const ContextPassage joined[] = {{text}}, last[] = {{a}},
                       swapped[] = {
                           {passes.passages()[0].tokens, {a_source.get(), b_source.get()}}};
  const auto loaded = run(passes.passages());
  // Squared differences of V of the last layer.
  const auto distance = [&](const ChunkRecord& x, const ChunkRecord& y) {
    const uint32_t layer = x.meta.shape.n_layers - 1;
    const auto* p = reinterpret_cast<const float*>(x.v(layer));
    const auto* q = reinterpret_cast<const float*>(y.v(layer));
    double sum = 0;
    for (size_t i = 0; i < chunk.size() * x.meta.shape.kv_dim; ++i) {
      sum += static_cast<double>((p[i] - q[i]) * (p[i] - q[i]));
    }
    return sum;
  };
  const double to_joined = distance(*loaded, *run(joined));
  EXPECT_GT(to_joined, 0);
  EXPECT_LT(to_joined * 2, distance(*loaded, *run(last)));
  EXPECT_LT(to_joined, distance(*loaded, *run({})));
  EXPECT_GT(distance(*loaded, *run(swapped)), 0) << "the order matters";
}

}  // namespace
}  // namespace blend

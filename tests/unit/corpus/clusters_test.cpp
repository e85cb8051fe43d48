#include "corpus/clusters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace blend {
namespace {

Sha256 text_id(size_t number) {
  Sha256 id{};
  for (size_t i = 0; i < 8; ++i) id[i] = static_cast<uint8_t>(number >> (8 * i));
  return id;
}

// Texts of some topics: half of each is words of its topic.
class ClustersTest : public ::testing::Test {
 protected:
  void make(size_t topics, size_t each, size_t n_tokens) {
    std::mt19937 rng(5);
    const size_t before = tokens_.size();
    for (size_t i = 0; i < topics * each; ++i) {
      std::vector<int32_t>& text = tokens_.emplace_back();
      for (size_t t = 0; t < n_tokens; ++t) {
        const auto word = static_cast<int32_t>(rng() % (40 + n_tokens));
        text.push_back(t % 2 == 0 ? 1000 * static_cast<int32_t>(1 + i % topics) + word : word);
      }
    }
    texts_.clear();  // their tokens may have moved
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (i >= before) {
        ASSERT_TRUE(index_.add(text_id(i), tokens_[i]).is_ok());
      }
      texts_.push_back({text_id(i), tokens_[i]});
    }
  }
  std::vector<Cluster> clusters(const ClusterLimits& limits = {0.0f, 8000}) {
    auto out = clusters_of(texts_, index_, limits, {});
    EXPECT_TRUE(out.is_ok()) << out.status().message();
    return *out;
  }
  size_t n_tokens(const std::vector<size_t>& chunks) const {
    size_t n = 0;
    for (const size_t i : chunks) n += texts_[i].tokens.size();
    return n;
  }

  std::vector<std::vector<int32_t>> tokens_;
  SimilarChunks index_;
  std::vector<ClusterText> texts_;
};

TEST_F(ClustersTest, SimilarChunksAreTogetherAndEachOnce) {
  make(6, 20, 50);
  const auto all = clusters();
  ASSERT_EQ(all.size(), 6u);
  std::set<size_t> seen;
  for (const Cluster& cluster : all) {
    EXPECT_TRUE(cluster.companions.empty());
    EXPECT_EQ(n_tokens(cluster.chunks), 1000u);
    for (const size_t i : cluster.chunks) {
      EXPECT_TRUE(seen.insert(i).second) << i;
      EXPECT_EQ(i % 6, cluster.chunks[0] % 6) << "of another topic";
    }
  }
  EXPECT_EQ(seen.size(), texts_.size());
  EXPECT_EQ(clusters()[3].chunks, all[3].chunks);
}

// What is left over comes together, and chunks of other clusters with it.
TEST_F(ClustersTest, TheLastHaveCompanions) {
  make(1, 26, 50);
  const auto all = clusters();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].chunks.size(), 20u);
  EXPECT_EQ(all[1].chunks.size(), 6u);
  EXPECT_EQ(all[1].companions.size(), 14u);
  const std::set<size_t> own(all[1].chunks.begin(), all[1].chunks.end());
  for (const size_t i : all[1].companions) EXPECT_FALSE(own.contains(i));
}

// As overlapping pieces of a document do.
TEST_F(ClustersTest, ChunksThatSayTheSameAreNotTogether) {
  make(1, 40, 50);
  for (size_t i = 0; i < 3; ++i) {
    std::vector<int32_t> copy = tokens_[i];
    std::swap(copy[3], copy[30]);
    tokens_.push_back(copy);
  }
  for (size_t i = 40; i < 43; ++i) {
    ASSERT_TRUE(index_.add(text_id(i), tokens_[i]).is_ok());
  }
  texts_.clear();
  for (size_t i = 0; i < 43; ++i) texts_.push_back({text_id(i), tokens_[i]});
  size_t seen = 0;
  for (const Cluster& cluster : clusters()) {
    std::set<size_t> in(cluster.chunks.begin(), cluster.chunks.end());
    seen += in.size();
    in.insert(cluster.companions.begin(), cluster.companions.end());
    for (size_t i = 0; i < 3; ++i) EXPECT_FALSE(in.contains(i) && in.contains(40 + i)) << i;
  }
  EXPECT_EQ(seen, 43u);
}

TEST_F(ClustersTest, HaveEightChunksAtLeast) {
  make(1, 24, 256);
  const auto all = clusters();
  ASSERT_EQ(all.size(), 3u);
  for (const Cluster& cluster : all) EXPECT_EQ(cluster.chunks.size(), 8u);
  EXPECT_EQ(clusters({0.0f, 2048})[0].chunks.size(), 8u);
  EXPECT_TRUE(clusters({0.0f, 2047}).empty());
}

// Prompts of short chunks are shorter.
TEST_F(ClustersTest, ShortOnesAreInShorterClustersThanLongOnes) {
  make(1, 40, kLongChunk - 1);
  make(1, 40, kLongChunk);
  size_t most_of_short = 0, most_of_long = 0;
  for (const Cluster& cluster : clusters()) {
    const bool is_long = cluster.chunks[0] >= 40;
    for (const size_t i : cluster.chunks) EXPECT_EQ(i >= 40, is_long);
    size_t& most = is_long ? most_of_long : most_of_short;
    most = std::max(most, n_tokens(cluster.chunks));
  }
  EXPECT_EQ(most_of_short, kShortClusterTokens / (kLongChunk - 1) * (kLongChunk - 1));
  EXPECT_EQ(most_of_long, kMostClusterTokens);
}

TEST_F(ClustersTest, NoneIsLongerThanTheModelTakes) {
  make(1, 24, 50);
  for (const Cluster& cluster : clusters({0.0f, 420})) {
    EXPECT_LE(n_tokens(cluster.chunks) + n_tokens(cluster.companions), 420u);
  }
  EXPECT_TRUE(clusters({0.0f, 390}).empty()) << "no eight fit";
}

TEST_F(ClustersTest, UnlikeChunksAreNotTogetherWhereThatIsAsked) {
  make(4, 10, 50);  // 500 tokens each
  for (const Cluster& cluster : clusters({0.3f, 8000})) {
    for (const size_t i : cluster.chunks) EXPECT_EQ(i % 4, cluster.chunks[0] % 4);
    for (const size_t i : cluster.companions) EXPECT_EQ(i % 4, cluster.chunks[0] % 4);
  }
  EXPECT_TRUE(clusters({0.95f, 8000}).empty());
}

TEST_F(ClustersTest, AFewNewTextsAreNoCluster) {
  make(1, 7, 50);
  EXPECT_TRUE(clusters().empty());
}

TEST_F(ClustersTest, WhatFitsIsOneCluster) {
  make(1, 9, 200);
  const auto all = clusters();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].chunks.size(), 9u);
}

TEST_F(ClustersTest, TheNearestAreFirst) {
  make(2, 20, 50);
  const Cluster cluster{{3, 4, 5, 7}, {9, 8}};
  auto nearest = nearest_in(cluster, 5, texts_, index_, 4);
  ASSERT_TRUE(nearest.is_ok());
  ASSERT_EQ(nearest->size(), 4u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ((*nearest)[i] % 2, 1u) << "of the other topic";
  EXPECT_EQ(std::count(nearest->begin(), nearest->end(), 5u), 0);
}

TEST_F(ClustersTest, PassesAreInOtherOrders) {
  const auto orders = orders_of(20, 4);
  ASSERT_EQ(orders.size(), 4u);
  for (const auto& order : orders) {
    EXPECT_EQ(std::set<size_t>(order.begin(), order.end()).size(), 20u);
    EXPECT_EQ(order.size(), 20u);
  }
  for (size_t i = 1; i < 4; ++i) EXPECT_NE(orders[i], orders[i - 1]);
  EXPECT_EQ(orders_of(20, 4), orders);
}

}  // namespace
}  // namespace blend

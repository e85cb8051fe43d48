#include "fusion/options.h"

#include <gtest/gtest.h>

namespace blend {
namespace {

// What BLEND_POLICY_AUTO becomes where `wanted` is what it should be.
class ResolvePolicyTest : public ::testing::Test {
 protected:
  FuseOptions resolved(Policy wanted) {
    FuseOptions options = options_;
    resolve_policy(segments_, n_layers_, steps_, wanted, options);
    return options;
  }
  std::vector<Segment> segments_ = {{SegmentKind::chunk, std::vector<int32_t>{1, 2}, {}},
                                    {SegmentKind::question, std::vector<int32_t>{3}, {}}};
  uint32_t n_layers_ = 2;
  bool steps_ = false;
  FuseOptions options_ = [] {
    FuseOptions options;
    options.policy = Policy::automatic;
    return options;
  }();
};

TEST_F(ResolvePolicyTest, TheWantedOneWhereItsQuestionCanBeAsked) {
  for (const Policy wanted : {Policy::attention, Policy::cascade, Policy::hkvd}) {
    EXPECT_EQ(resolved(wanted).policy, wanted);
  }
}

// A chunk without statistics forbids the cascade, and nothing else.
TEST_F(ResolvePolicyTest, OnlyTheCascadeMayStillFallBack) {
  EXPECT_TRUE(resolved(Policy::cascade).chosen_for_host);
  EXPECT_FALSE(resolved(Policy::attention).chosen_for_host);
  EXPECT_FALSE(resolved(Policy::hkvd).chosen_for_host);
}

TEST_F(ResolvePolicyTest, HkvdWhereNothingCanBeAsked) {
  for (const Policy wanted : {Policy::attention, Policy::cascade}) {
    steps_ = true;
    EXPECT_EQ(resolved(wanted).policy, Policy::hkvd);
    steps_ = false;
    n_layers_ = 1;
    EXPECT_EQ(resolved(wanted).policy, Policy::hkvd);
    n_layers_ = 2;
    options_.check_layers = {{1, 0.2}};
    EXPECT_EQ(resolved(wanted).policy, Policy::hkvd);
    options_.check_layers.clear();
    segments_.back().tokens->clear();
    EXPECT_EQ(resolved(wanted).policy, Policy::hkvd);
    segments_.back() = {SegmentKind::text, std::vector<int32_t>{3}, {}};
    EXPECT_EQ(resolved(wanted).policy, Policy::hkvd);
    segments_.back().kind = SegmentKind::question;
    EXPECT_EQ(resolved(wanted).policy, wanted);
  }
}

TEST_F(ResolvePolicyTest, WhatTheHostNamedStays) {
  options_.policy = Policy::first_k;
  EXPECT_EQ(resolved(Policy::attention).policy, Policy::first_k);
}

}  // namespace
}  // namespace blend

#include "fusion/resolve/resolve.h"

#include <gtest/gtest.h>

#include "fusion/prompt/prompt.h"

namespace blend {
namespace {

// BLEND_POLICY_AUTO must become `wanted`.
class ResolvePolicyTest : public ::testing::Test {
 protected:
  // `wanted`: of the profile.
  ResolvedFuse resolved(Policy wanted) {
    Profile profile;
    profile.prefixes = {{}};
    profile.policy = static_cast<uint32_t>(wanted);
    FuseRequest request{segments_, options_, {}};
    request.options.calibration.profile = &profile;
    auto fuse = resolve(request, {.n_layers = n_layers_, .steps = steps_});
    EXPECT_TRUE(fuse.is_ok()) << fuse.status().message();
    return *fuse;
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

TEST_F(ResolvePolicyTest, WithoutAProfileTheDefault) {
  auto fuse = resolve({segments_, options_, {}}, {.n_layers = n_layers_});
  EXPECT_EQ(fuse->policy, kDefaultPolicy);
  EXPECT_EQ(fuse->why, "the default");
}

// Three rows, as many as the device computes in the time of one.
TEST_F(ResolvePolicyTest, WhatCostsNothingIsComputedInFull) {
  const auto policy = [&](uint32_t free_rows) {
    auto fuse = resolve({segments_, options_, {}}, {.n_layers = n_layers_, .free_rows = free_rows});
    EXPECT_TRUE(fuse.is_ok()) << fuse.status().message();
    return fuse->policy;
  };
  options_.ratio = RatioRequest::fidelity(0.98);
  EXPECT_EQ(policy(3), Policy::full);
  EXPECT_EQ(policy(2), kDefaultPolicy);
  EXPECT_EQ(policy(0), kDefaultPolicy);
  options_.on_miss = OnMiss::fail;  // the host wants to know
  EXPECT_EQ(policy(3), kDefaultPolicy);
  options_.on_miss = OnMiss::precompute;
  segments_[0].tokens.reset();  // known by its id: of any length
  EXPECT_EQ(policy(300), kDefaultPolicy);
  segments_[0].tokens = std::vector<int32_t>{1, 2};
  for (const RatioRequest named : {RatioRequest::fixed(0.3), RatioRequest::automatic()}) {
    options_.ratio = named;
    EXPECT_EQ(policy(3), kDefaultPolicy);
  }
  options_.ratio = RatioRequest::fidelity(0.98);
  options_.policy = Policy::hkvd;
  EXPECT_EQ(policy(3), Policy::hkvd);
}

// A chunk without statistics forbids the cascade, and nothing else; what the host named stays.
TEST_F(ResolvePolicyTest, OnlyTheCascadeMayStillFallBack) {
  Prompt prompt;
  auto record = std::make_shared<ChunkRecord>();
  record->meta.shape.n_layers = n_layers_;
  PromptSegment& s = prompt.segments.emplace_back();
  s.kind = SegmentKind::chunk;
  s.chunk = make_memory_source(std::move(record));
  const FuseRequest request{segments_, options_, {}};
  EXPECT_TRUE(must_fall_back(resolved(Policy::cascade), request, prompt));
  EXPECT_FALSE(must_fall_back(resolved(Policy::attention), request, prompt));
  EXPECT_FALSE(must_fall_back(resolved(Policy::hkvd), request, prompt));
  const ResolvedFuse before = resolved(Policy::cascade);
  const ResolvedFuse after = *fall_back(before, request);
  EXPECT_EQ(after.policy, Policy::hkvd);
  EXPECT_EQ(before.policy, Policy::cascade) << "the request and what it was resolved to stay";
  EXPECT_EQ(before.schedule.size(), 2u);
  EXPECT_EQ(after.schedule.size(), 1u);
  prompt.segments[0].exact = true;
  EXPECT_FALSE(must_fall_back(before, request, prompt));
  prompt.segments[0].exact = false;
  FuseRequest named = request;
  named.options.policy = Policy::cascade;
  EXPECT_FALSE(must_fall_back(before, named, prompt));
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

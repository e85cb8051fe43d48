#include "fusion/trust.h"

#include "support/engine_fixture.h"

namespace blend {
namespace {

// Measured: weighed V deviations at layer 2 without chunk prefix, kept from 0.2 on, corrected from
// 0.05 on; after a chunk prefix never.
Profile example() {
  Profile p;
  p.prefixes = {{}, {260}};
  p.metric = BLEND_METRIC_V_WEIGHED;
  p.check_layer = 2;
  p.max_kl = 0.02;
  p.min_top1 = 0.95;
  const auto add = [&](uint32_t prefix, bool corrected, double ratio, double kl) {
    p.table.push_back({prefix, BLEND_METRIC_V_WEIGHED, corrected, ratio, kl, kl, 1.0, 10});
    p.table.back().check_layer = p.check_layer;
  };
  add(0, false, 0.1, 0.5);
  add(0, false, 0.2, 0.01);
  add(0, true, 0.05, 0.01);
  add(1, false, 0.3, 0.5);
  return p;
}

// The kind of fusing that it measured.
FuseOptions measured(double ratio) {
  FuseOptions o;
  o.check_layer = 2;
  o.ratio = RatioChoice::fixed(ratio);
  return o;
}

class TrustTest : public ::testing::Test {
 protected:
  Status apply(FuseOptions& options) {
    Calibration c;
    c.profile = &profile_;
    c.drift = drift_;
    c.correction = correction_;
    c.on_untrusted = on_untrusted_;
    return apply_calibration(c, options);
  }

  Profile profile_ = example();
  std::unique_ptr<ThreadPool> pool_ = std::move(*ThreadPool::create(1));
  std::unique_ptr<Backend> backend_ = std::move(*make_cpu_backend(*pool_));
  std::shared_ptr<const Drift> drift_;
  DriftUse correction_ = DriftUse::automatic;
  OnUntrusted on_untrusted_ = OnUntrusted::fuse;
};

TEST_F(TrustTest, AProfileVouchesForWhatItMeasuredFromTheRatioOnThatKeepsTheLimits) {
  EXPECT_EQ(trust_in(profile_, measured(0.2)), Trust::vouched);
  EXPECT_EQ(trust_in(profile_, measured(0.9)), Trust::vouched);
  EXPECT_EQ(trust_in(profile_, measured(0.19)), Trust::doubted);
}

TEST_F(TrustTest, AProfileDoubtsWhatItDidNotMeasure) {
  const auto doubts = [&](auto change) {
    FuseOptions o = measured(0.9);
    change(o);
    return trust_in(profile_, o) == Trust::doubted;
  };
  EXPECT_TRUE(doubts([](FuseOptions& o) { o.policy = Policy::random; }));
  EXPECT_TRUE(doubts([](FuseOptions& o) { o.policy = Policy::reuse; }));
  EXPECT_TRUE(doubts([](FuseOptions& o) { o.check_layer = 1; }));
  EXPECT_TRUE(doubts([](FuseOptions& o) { o.check_layers = {{2, 0.9}}; }));
  EXPECT_TRUE(doubts([](FuseOptions& o) { o.deviation.metric = DeviationMetric::k; }));
  EXPECT_TRUE(doubts([](FuseOptions& o) { o.weighed = false; }));
  EXPECT_TRUE(doubts([](FuseOptions& o) { o.deviation.norm = DeviationNorm::l1; }));
  EXPECT_TRUE(doubts([](FuseOptions& o) { o.deviation.relative = true; }));
  EXPECT_TRUE(doubts([](FuseOptions& o) { o.chunk_prefix = {261}; }));
  EXPECT_TRUE(doubts([](FuseOptions& o) { o.chunk_prefix = {260}; })) << "it kept no limits";
  EXPECT_FALSE(doubts([](FuseOptions&) {}));
  FuseOptions full = measured(0);
  full.policy = Policy::full;
  EXPECT_EQ(trust_in(profile_, full), Trust::unknown) << "nothing is approximated";
}

TEST_F(TrustTest, AnAutomaticRatioBeginsAtTheLeastThatKeepsTheLimits) {
  FuseOptions o = measured(0);
  o.ratio = RatioChoice::automatic(nullptr);
  ASSERT_TRUE(apply(o).is_ok());
  EXPECT_EQ(o.ratio.ratio(), 0.2);
  EXPECT_EQ(o.trust, Trust::vouched);
  // Measured, but no ratio kept them: all rows, and in doubt all the same.
  o = measured(0);
  o.ratio = RatioChoice::automatic(nullptr);
  o.chunk_prefix = {260};
  ASSERT_TRUE(apply(o).is_ok());
  EXPECT_EQ(o.ratio.ratio(), 1.0);
  EXPECT_EQ(o.trust, Trust::doubted);
  // Not measured: the default.
  o = measured(0);
  o.ratio = RatioChoice::automatic(nullptr);
  o.check_layer = 1;
  ASSERT_TRUE(apply(o).is_ok());
  EXPECT_EQ(o.ratio.ratio(), RatioChoice().ratio());
  FuseOptions fixed = measured(0.1);
  ASSERT_TRUE(apply(fixed).is_ok());
  EXPECT_EQ(fixed.ratio.ratio(), 0.1) << "the host's word stands";
}

TEST_F(TrustTest, DriftMapsAreUsedAsTheProfileSaysOrTheHost) {
  DriftMaps maps;
  maps.kv_dim = 4;
  maps.first_layer = 3;
  drift_ = *Drift::load(*backend_, maps);
  FuseOptions o = measured(0.1);
  ASSERT_TRUE(apply(o).is_ok());
  EXPECT_EQ(o.drift, nullptr) << "the profile did not choose them";
  profile_.corrected = true;
  ASSERT_TRUE(apply(o).is_ok());
  EXPECT_EQ(o.drift, drift_);
  EXPECT_FALSE(o.drift_required);
  EXPECT_EQ(o.trust, Trust::vouched) << "corrected, 0.05 is enough";
  o = measured(0.1);
  correction_ = DriftUse::off;
  ASSERT_TRUE(apply(o).is_ok());
  EXPECT_EQ(o.drift, nullptr);
  EXPECT_EQ(o.trust, Trust::doubted);
  profile_.corrected = false;
  correction_ = DriftUse::on;
  ASSERT_TRUE(apply(o).is_ok());
  EXPECT_EQ(o.drift, drift_);
  EXPECT_TRUE(o.drift_required);
  // They are of another check layer, and of another chunk prefix.
  o = measured(0.1);
  o.check_layer = 1;
  EXPECT_EQ(apply(o).code(), BLEND_E_INVALID_ARGUMENT);
  o = measured(0.1);
  o.chunk_prefix = {260};
  EXPECT_EQ(apply(o).code(), BLEND_E_INVALID_ARGUMENT);
  correction_ = DriftUse::automatic;
  profile_.corrected = true;
  ASSERT_TRUE(apply(o).is_ok());
  EXPECT_EQ(o.drift, nullptr);
  drift_ = nullptr;
  correction_ = DriftUse::on;
  o = measured(0.1);
  EXPECT_EQ(apply(o).code(), BLEND_E_INVALID_ARGUMENT) << "there are none";
  EXPECT_EQ(apply_calibration({.correction = DriftUse::on}, o).code(), BLEND_E_INVALID_ARGUMENT)
      << "nor a profile";
}

TEST_F(TrustTest, WhatIsInDoubtBecomesAFullPrefillWhereThatIsAskedFor) {
  on_untrusted_ = OnUntrusted::full;
  FuseOptions o = measured(0.1);
  o.check_layers = {{2, 0.1}};
  ASSERT_TRUE(apply(o).is_ok());
  EXPECT_EQ(o.policy, Policy::full);
  EXPECT_TRUE(o.check_layers.empty()) << "full prefill has none, and refuses them";
  EXPECT_EQ(o.trust, Trust::unknown);
  o = measured(0.1);
  o.policy = Policy::combined;
  o.terms = {{Policy::hkvd, 1}};
  ASSERT_TRUE(apply(o).is_ok());
  EXPECT_TRUE(o.terms.empty());
  o = measured(0.2);
  ASSERT_TRUE(apply(o).is_ok());
  EXPECT_EQ(o.policy, Policy::hkvd);
  // Without a profile there is no doubt, only nothing known.
  o = measured(0.1);
  ASSERT_TRUE(apply_calibration({.on_untrusted = OnUntrusted::full}, o).is_ok());
  EXPECT_EQ(o.policy, Policy::hkvd);
}

TEST_F(TrustTest, OrAnErrorThatNamesWhatIsNotKept) {
  on_untrusted_ = OnUntrusted::fail;
  const auto refusal = [&](FuseOptions o) {
    const Status status = apply(o);
    EXPECT_EQ(status.code(), BLEND_E_UNTRUSTED);
    return status.message();
  };
  const auto has = [](const std::string& message, const char* part) {
    return message.find(part) != std::string::npos;
  };
  const std::string low = refusal(measured(0.1));
  EXPECT_TRUE(has(low, "ratio 0.1 is below 0.2")) << low;
  EXPECT_TRUE(has(low, "KL 0.02") && has(low, "top-1 0.95")) << low;
  FuseOptions o = measured(0.9);
  o.chunk_prefix = {260};
  const std::string never = refusal(o);
  EXPECT_TRUE(has(never, "no measured ratio")) << never;
  o.check_layer = 1;
  const std::string other = refusal(o);
  EXPECT_TRUE(has(other, "did not measure")) << other;
  for (const std::string& message : {low, never, other}) {
    EXPECT_TRUE(has(message, "BLEND_ON_UNTRUSTED_FULL")) << message;
  }
  FuseOptions kept = measured(0.2);
  EXPECT_TRUE(apply(kept).is_ok());
}

TEST(TrustFlags, SayWhatTheAccountShows) {
  EXPECT_EQ(trust_flags(Trust::unknown, true), BLEND_FUSION_UNCALIBRATED);
  EXPECT_EQ(trust_flags(Trust::unknown, false), 0u);
  EXPECT_EQ(trust_flags(Trust::vouched, true), 0u);
  EXPECT_EQ(trust_flags(Trust::doubted, true), BLEND_FUSION_UNTRUSTED);
  EXPECT_EQ(trust_flags(Trust::doubted, false), BLEND_FUSION_UNTRUSTED) << "reuse";
}

class CheckProfileTest : public test::EngineTest {};

TEST_F(CheckProfileTest, AProfileIsOfOneModel) {
  Profile p = example();
  p.fingerprint = model_->fingerprint();
  p.n_layers = model_->config().n_layers;
  p.kv_dim = model_->config().kv_dim();
  EXPECT_TRUE(check_profile(p, *model_).is_ok());
  Profile other = p;
  other.fingerprint[0] ^= 1;
  EXPECT_EQ(check_profile(other, *model_).code(), BLEND_E_MISMATCH);
  other = p;
  ++other.n_layers;
  EXPECT_EQ(check_profile(other, *model_).code(), BLEND_E_MISMATCH);
  other = p;
  other.prefixes[0] = {-1};
  EXPECT_EQ(check_profile(other, *model_).code(), BLEND_E_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace blend

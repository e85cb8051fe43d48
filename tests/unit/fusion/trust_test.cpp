#include "fusion/resolve/trust.h"

#include "support/engine_fixture.h"
#include "support/resolved.h"

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
  o.ratio = RatioRequest::fixed(ratio);
  return o;
}

class TrustTest : public ::testing::Test {
 protected:
  Result<ResolvedFuse> apply(FuseOptions options) {
    options.calibration = {&profile_, drift_, {}, correction_, on_untrusted_};
    return resolve({{}, options, {}}, {.n_layers = 4});
  }
  // The trust of options that can be combined.
  Trust trust(const FuseOptions& options) {
    auto fuse = apply(options);
    EXPECT_TRUE(fuse.is_ok()) << fuse.status().message();
    return fuse->trust;
  }

  Profile profile_ = example();
  std::unique_ptr<ThreadPool> pool_ = std::move(*ThreadPool::create(1));
  std::unique_ptr<Backend> backend_ = std::move(*make_cpu_backend(*pool_));
  std::shared_ptr<const Drift> drift_;
  DriftUse correction_ = DriftUse::automatic;
  OnUntrusted on_untrusted_ = OnUntrusted::fuse;
};

TEST_F(TrustTest, AProfileVouchesForWhatItMeasuredFromTheRatioOnThatKeepsTheLimits) {
  EXPECT_EQ(trust(measured(0.2)), Trust::vouched);
  EXPECT_EQ(trust(measured(0.9)), Trust::vouched);
  EXPECT_EQ(trust(measured(0.19)), Trust::doubted);
}

TEST_F(TrustTest, AProfileDoubtsWhatItDidNotMeasure) {
  const auto doubts = [&](auto change) {
    FuseOptions o = measured(0.9);
    change(o);
    return trust(o) == Trust::doubted;
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
  EXPECT_EQ(trust(full), Trust::unknown) << "nothing is approximated";
}

TEST_F(TrustTest, AnAutomaticRatioBeginsAtTheLeastThatKeepsTheLimits) {
  FuseOptions o = measured(0);
  o.ratio = RatioRequest::automatic();
  const ResolvedFuse kept = *apply(o);
  EXPECT_EQ(kept.ratio, 0.2);
  EXPECT_EQ(kept.schedule.front().ratio, 0.2);
  EXPECT_EQ(kept.trust, Trust::vouched);
  EXPECT_EQ(at_ratio(kept, 0.1).ratio, 0.2) << "never less";
  EXPECT_EQ(at_ratio(kept, 0.6).schedule.front().ratio, 0.6);
  // Measured, but no ratio kept them: all rows, and in doubt all the same.
  o.chunk_prefix = {260};
  EXPECT_EQ(apply(o)->ratio, 1.0);
  EXPECT_EQ(apply(o)->trust, Trust::doubted);
  // Not measured: the default.
  o = measured(0);
  o.ratio = RatioRequest::automatic();
  o.check_layer = 1;
  EXPECT_EQ(apply(o)->ratio, kPaperRatio);
  EXPECT_EQ(apply(measured(0.1))->ratio, 0.1) << "the host's word stands";
}

TEST_F(TrustTest, DriftMapsAreUsedAsTheProfileSaysOrTheHost) {
  DriftMaps maps;
  maps.kv_dim = 4;
  maps.first_layer = 3;
  drift_ = *Drift::load(*backend_, maps);
  const FuseOptions o = measured(0.1);
  EXPECT_EQ(apply(o)->drift, nullptr) << "the profile did not choose them";
  profile_.corrected = true;
  EXPECT_EQ(apply(o)->drift, drift_);
  EXPECT_EQ(apply(o)->trust, Trust::vouched) << "corrected, 0.05 is enough";
  correction_ = DriftUse::off;
  EXPECT_EQ(apply(o)->drift, nullptr);
  EXPECT_EQ(apply(o)->trust, Trust::doubted);
  profile_.corrected = false;
  correction_ = DriftUse::on;
  EXPECT_EQ(apply(o)->drift, drift_);
  // They are of another check layer, and of another chunk prefix.
  FuseOptions other = o;
  other.check_layer = 1;
  EXPECT_EQ(apply(other).status().code(), BLEND_E_INVALID_ARGUMENT);
  other = o;
  other.chunk_prefix = {260};
  EXPECT_EQ(apply(other).status().code(), BLEND_E_INVALID_ARGUMENT);
  correction_ = DriftUse::automatic;
  profile_.corrected = true;
  EXPECT_EQ(apply(other)->drift, nullptr);
  drift_ = nullptr;
  correction_ = DriftUse::on;
  EXPECT_EQ(apply(o).status().code(), BLEND_E_INVALID_ARGUMENT) << "there are none";
  FuseOptions alone = o;
  alone.calibration.correction = DriftUse::on;
  EXPECT_EQ(resolve({{}, alone, {}}, {.n_layers = 4}).status().code(), BLEND_E_INVALID_ARGUMENT)
      << "nor a profile";
}

TEST_F(TrustTest, WhatIsInDoubtBecomesAFullPrefillWhereThatIsAskedFor) {
  on_untrusted_ = OnUntrusted::full;
  FuseOptions o = measured(0.1);
  o.check_layers = {{2, 0.1}};
  const ResolvedFuse full = *apply(o);
  EXPECT_EQ(full.policy, Policy::full);
  EXPECT_TRUE(full.schedule.empty()) << "full prefill has none, and refuses them";
  EXPECT_EQ(full.trust, Trust::unknown);
  o = measured(0.1);
  o.policy = Policy::combined;
  o.terms = {{Policy::hkvd, 1}};
  EXPECT_EQ(apply(o)->ranking, nullptr);
  EXPECT_EQ(apply(measured(0.2))->policy, Policy::hkvd);
  // Without a profile there is no doubt, only nothing known.
  o = measured(0.1);
  o.calibration.on_untrusted = OnUntrusted::full;
  EXPECT_EQ(test::resolved(o, 4).policy, Policy::hkvd);
}

TEST_F(TrustTest, OrAnErrorThatNamesWhatIsNotKept) {
  on_untrusted_ = OnUntrusted::fail;
  const auto refusal = [&](const FuseOptions& o) {
    const Status status = apply(o).status();
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
  EXPECT_TRUE(apply(measured(0.2)).is_ok());
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

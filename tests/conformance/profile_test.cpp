// What a profile vouches for in a fuse, and what becomes of what it does not.
#include <gtest/gtest.h>

#include <array>

#include "conformance/drifting.h"
#include "conformance/step_host.h"

namespace blend::test {
namespace {

// Two chunks and a question on one fixed model.
class WithProfile : public Drifting {
 protected:
  WithProfile() : Drifting(0) {
    random_.chunk_prefix = {5};
    random_.prompt.clear();
    for (const size_t n : {20u, 25u}) {
      random_.prompt.push_back({BLEND_SEGMENT_CHUNK, random_tokens(rng_, spec_.n_vocab, n)});
    }
    random_.prompt.push_back({BLEND_SEGMENT_QUESTION, random_tokens(rng_, spec_.n_vocab, 6)});
    store_ = open_store(ctx_, dir_.file("store"));
    profile_ = make_profile(1, 0, 0.5, drift_);
  }
  uint32_t flags(const FuseCase& how) {
    const Fusion fusion = fuse(model_, store_, random_.prompt, how);
    // The maps are drawn: that they hold is not to be expected.
    return fusion ? info(fusion).flags & ~BLEND_FUSION_DRIFT_DOUBTED : ~0u;
  }
  int32_t code(const FuseCase& how) {
    return try_fuse(model_, store_, random_.prompt, how).outcome.code;
  }
  Store store_;
  ReferenceDrift drift_;
  Profile profile_;
};

TEST_F(WithProfile, FlagsSayWhatItVouchesFor) {
  FuseCase how = hkvd(profile_, drift_, 0.1);
  EXPECT_EQ(flags(how), BLEND_FUSION_CORRECTED);
  how.ratio = 0.2;  // between measured ratios
  EXPECT_EQ(flags(how), BLEND_FUSION_CORRECTED);
  how.ratio = 0.05;
  EXPECT_EQ(flags(how), BLEND_FUSION_CORRECTED | BLEND_FUSION_UNTRUSTED);
  how.ratio = 0.1;
  how.correction = BLEND_CORRECTION_OFF;  // plain fusing was not measured
  EXPECT_EQ(flags(how), BLEND_FUSION_UNTRUSTED);
  how.correction = BLEND_CORRECTION_AUTO;
  how.metric = BLEND_METRIC_K;
  EXPECT_EQ(flags(how), BLEND_FUSION_CORRECTED | BLEND_FUSION_UNTRUSTED);
  how.metric = BLEND_METRIC_V;
  how.relative = 1;
  EXPECT_EQ(flags(how), BLEND_FUSION_CORRECTED | BLEND_FUSION_UNTRUSTED);
  how.relative = 0;
  how.profile = nullptr;
  EXPECT_EQ(flags(how), BLEND_FUSION_UNCALIBRATED);
  how.profile = profile_.get();
  how.policy = BLEND_POLICY_FULL;
  EXPECT_EQ(flags(how), 0u);
  how.policy = BLEND_POLICY_REUSE;
  EXPECT_EQ(flags(how), BLEND_FUSION_UNTRUSTED);
}

TEST_F(WithProfile, WhatItDoesNotVouchForIsPrefilledInFullWhereThatIsAskedFor) {
  FuseCase how = hkvd(profile_, drift_, 0.05);
  how.on_untrusted = BLEND_ON_UNTRUSTED_FULL;
  how.check_layers = {{1, 0.05}};
  FuseCase full{.policy = BLEND_POLICY_FULL};
  const Fusion expected = fuse(model_, store_, random_.prompt, full);
  const Fusion fusion = fuse(model_, store_, random_.prompt, how);
  ASSERT_TRUE(fusion && expected);
  EXPECT_EQ(logits(fusion), logits(expected));
  EXPECT_EQ(info(fusion).policy, BLEND_POLICY_FULL);
  EXPECT_EQ(info(fusion).flags, 0u) << "nothing is approximated";
  // A layerwise fuse leaves all rows to the host.
  const Layerwise layerwise = make_layerwise(model_, store_, random_.prompt, how);
  ASSERT_TRUE(layerwise);
  EXPECT_EQ(rows_of(layerwise).size(), info(layerwise).n_rows);
  EXPECT_EQ(info(layerwise).n_rows_reused, 0u);
  EXPECT_EQ(info(layerwise).policy, BLEND_POLICY_FULL);
  // The turns after a fused prompt, too.
  const Prompt more = {{BLEND_SEGMENT_CHUNK, random_tokens(rng_, spec_.n_vocab, 9)},
                       {BLEND_SEGMENT_QUESTION, random_tokens(rng_, spec_.n_vocab, 3)}};
  ASSERT_EQ(try_extend(fusion, store_, more, how).code, BLEND_OK);
  ASSERT_EQ(try_extend(expected, store_, more, full).code, BLEND_OK);
  EXPECT_EQ(logits(fusion), logits(expected));
  // A fuse that it trusts is not prefilled in full.
  how = hkvd(profile_, drift_, 0.1);
  how.on_untrusted = BLEND_ON_UNTRUSTED_FULL;
  how.correction = BLEND_CORRECTION_UNGUARDED;
  EXPECT_EQ(info(fuse(model_, store_, random_.prompt, how)).policy, BLEND_POLICY_HKVD);
  // Without a profile no fuse is in doubt.
  how.correction = BLEND_CORRECTION_AUTO;
  how.profile = nullptr;
  how.ratio = 0.01;
  EXPECT_EQ(flags(how), BLEND_FUSION_UNCALIBRATED);
}

TEST_F(WithProfile, OrRefusedBeforeAnyWork) {
  FuseCase how = hkvd(profile_, drift_, 0.05);
  how.on_untrusted = BLEND_ON_UNTRUSTED_FAIL;
  const Outcome refused = try_fuse(model_, store_, random_.prompt, how).outcome;
  EXPECT_EQ(refused.code, BLEND_E_UNTRUSTED);
  EXPECT_NE(refused.message.find("ratio 0.05 is below 0.1"), std::string::npos) << refused.message;
  EXPECT_EQ(try_layerwise(model_, store_, random_.prompt, how).outcome.code, BLEND_E_UNTRUSTED);
  blend_store_report stat = {};
  stat.struct_size = sizeof stat;
  ASSERT_EQ(blend_store_flush(store_.get(), nullptr), BLEND_OK);
  ASSERT_EQ(blend_store_get_report(store_.get(), &stat, nullptr), BLEND_OK);
  EXPECT_EQ(stat.n_chunks, 0u) << "no missing chunk was prefilled";
  const Fusion fusion = fuse(model_, store_, random_.prompt, hkvd(profile_, drift_, 0.1));
  const std::vector<float> before = logits(fusion);
  EXPECT_EQ(try_extend(fusion, store_, {{BLEND_SEGMENT_TEXT, {7, 8}}}, how).code,
            BLEND_E_UNTRUSTED);
  EXPECT_EQ(logits(fusion), before);
  how.ratio = 0.1;
  how.correction = BLEND_CORRECTION_UNGUARDED;
  EXPECT_EQ(code(how), BLEND_OK);
  how.on_untrusted = BLEND_ON_UNTRUSTED_FAIL + 1;
  EXPECT_EQ(code(how), BLEND_E_INVALID_ARGUMENT);
}

// In a batch each prompt is judged by itself.
TEST_F(WithProfile, APromptOfABatchThatIsNotVouchedForLeavesTheOthersAlone) {
  const std::vector<blend_segment> segments = segments_of(random_.prompt);
  const FuseCase kept = hkvd(profile_, drift_, 0.1);
  FuseCase failed = hkvd(profile_, drift_, 0.05), full = failed;
  failed.on_untrusted = BLEND_ON_UNTRUSTED_FAIL;
  full.on_untrusted = BLEND_ON_UNTRUSTED_FULL;
  const std::array<blend_fuse_options, 3> options = {options_of(kept), options_of(failed),
                                                     options_of(full)};
  std::array<blend_fuse_request, 3> requests = {};
  for (size_t i = 0; i < 3; ++i) {
    requests[i].struct_size = sizeof requests[i];
    requests[i].segments = segments.data();
    requests[i].n_segments = segments.size();
    requests[i].options = &options[i];
  }
  std::array<blend_fusion*, 3> out = {};
  std::array<blend_error*, 3> errors = {};
  EXPECT_EQ(blend_fuse_batch(out.data(), errors.data(), model_.get(), store_.get(), requests.data(),
                             3, nullptr),
            BLEND_PARTIAL);
  const Fusion first(out[0]), second(out[1]), third(out[2]);
  ASSERT_TRUE(first && third);
  EXPECT_FALSE(second);
  EXPECT_EQ(blend_error_code(errors[1]), BLEND_E_UNTRUSTED);
  for (blend_error* error : errors) blend_error_free(error);
  EXPECT_EQ(info(first).policy, BLEND_POLICY_HKVD);
  EXPECT_EQ(info(third).policy, BLEND_POLICY_FULL);
}

// Random maps predict nothing of this prompt: the recomputed rows show it.
TEST_F(WithProfile, MapsThatDoNotHoldForThePromptAreDoubted) {
  FuseCase how = hkvd(profile_, drift_, 0.1);
  const Fusion fused = fuse(model_, store_, random_.prompt, how);
  ASSERT_TRUE(fused);
  EXPECT_EQ(info(fused).flags, BLEND_FUSION_CORRECTED | BLEND_FUSION_DRIFT_DOUBTED);
  EXPECT_LT(info(fused).drift_share, 0.5);
  EXPECT_GT(info(fused).n_rows_judging, 0u);

  how.on_untrusted = BLEND_ON_UNTRUSTED_FAIL;
  const Outcome refused = try_fuse(model_, store_, random_.prompt, how).outcome;
  EXPECT_EQ(refused.code, BLEND_E_UNTRUSTED);
  EXPECT_NE(refused.message.find("drift maps do not fit"), std::string::npos) << refused.message;

  how.on_untrusted = BLEND_ON_UNTRUSTED_FULL;
  FuseCase full{.policy = BLEND_POLICY_FULL};
  const Fusion expected = fuse(model_, store_, random_.prompt, full);
  const Fusion instead = fuse(model_, store_, random_.prompt, how);
  ASSERT_TRUE(expected && instead);
  EXPECT_EQ(logits(instead), logits(expected));
  EXPECT_EQ(info(instead).policy, BLEND_POLICY_FULL);
  EXPECT_EQ(info(instead).flags, 0u);

  // After present rows; refused, they are unchanged.
  const Prompt more = {{BLEND_SEGMENT_CHUNK, random_tokens(rng_, spec_.n_vocab, 30)},
                       {BLEND_SEGMENT_QUESTION, random_tokens(rng_, spec_.n_vocab, 3)}};
  how.on_untrusted = BLEND_ON_UNTRUSTED_FAIL;
  const std::vector<float> before = logits(instead);
  EXPECT_EQ(try_extend(instead, store_, more, how).code, BLEND_E_UNTRUSTED);
  EXPECT_EQ(logits(instead), before);
  how.on_untrusted = BLEND_ON_UNTRUSTED_FULL;
  ASSERT_EQ(try_extend(instead, store_, more, how).code, BLEND_OK);
  ASSERT_EQ(try_extend(expected, store_, more, full).code, BLEND_OK);
  EXPECT_EQ(logits(instead), logits(expected));
}

TEST_F(WithProfile, AutomaticRatioIsTheLeastThatCalibrationAllows) {
  const auto ratio = [&](const FuseCase& how) {
    const double fused = info(fuse(model_, store_, random_.prompt, how)).ratio;
    EXPECT_EQ(info(make_layerwise(model_, store_, random_.prompt, how)).ratio, fused);
    return fused;
  };
  FuseCase how = hkvd(profile_, drift_, BLEND_RATIO_AUTO);
  EXPECT_EQ(ratio(how), 0.1);
  how.correction = BLEND_CORRECTION_OFF;  // plain fusing was not measured
  EXPECT_EQ(ratio(how), 0.15);
  how.correction = BLEND_CORRECTION_AUTO;
  how.metric = BLEND_METRIC_K;
  EXPECT_EQ(ratio(how), 0.15);
  how.metric = BLEND_METRIC_V;
  how.profile = nullptr;
  EXPECT_EQ(ratio(how), 0.15);
}

TEST_F(WithProfile, MapsOfAnotherPrefixOrLayerAreNotApplied) {
  FuseCase how = hkvd(profile_, drift_, 0.1);
  how.chunk_prefix = {};
  EXPECT_EQ(flags(how), BLEND_FUSION_UNTRUSTED);
  how.correction = BLEND_CORRECTION_ON;
  EXPECT_EQ(code(how), BLEND_E_INVALID_ARGUMENT);
  how = hkvd(profile_, drift_, 0.1);
  how.check_layer = 2;
  EXPECT_EQ(flags(how), BLEND_FUSION_UNTRUSTED);
  how.correction = BLEND_CORRECTION_ON;
  EXPECT_EQ(code(how), BLEND_E_INVALID_ARGUMENT);
  how.check_layer = 1;
  EXPECT_EQ(flags(how), BLEND_FUSION_CORRECTED);
  for (const uint32_t policy : {BLEND_POLICY_REUSE, BLEND_POLICY_FIRST_K}) {
    how.policy = policy;  // neither has a check layer
    EXPECT_EQ(code(how), BLEND_E_INVALID_ARGUMENT);
  }
  how.policy = BLEND_POLICY_HKVD;
  how.profile = nullptr;
  EXPECT_EQ(code(how), BLEND_E_INVALID_ARGUMENT);
  how.correction = BLEND_CORRECTION_SHIFT + 1;
  EXPECT_EQ(code(how), BLEND_E_INVALID_ARGUMENT);
}

TEST_F(WithProfile, BelongsToItsModelAndContext) {
  const Ctx other_ctx = make_ctx();
  const Model same = open_model(other_ctx, path_);
  const FuseCase how = hkvd(profile_, drift_, 0.1);
  const Store store = open_store(other_ctx, dir_.file("store2"));
  EXPECT_EQ(try_fuse(same, store, random_.prompt, how).outcome.code, BLEND_E_INVALID_ARGUMENT);

  RandomModelSpec spec = spec_;
  spec.seed += 1;
  const Model other = open_model(ctx_, write_random_model(spec, dir_.file("other.gguf")));
  EXPECT_EQ(try_fuse(other, store_, random_.prompt, how).outcome.code, BLEND_E_MISMATCH);
  blend_profile* opened = nullptr;
  blend_error* error = nullptr;
  const int32_t rc = blend_profile_open(&opened, other.get(), dir_.file("profile").c_str(), &error);
  EXPECT_EQ(outcome(rc, error).code, BLEND_E_MISMATCH);
  EXPECT_EQ(opened, nullptr);
}

TEST_F(WithProfile, OutlivesItsModelAndSetsOptions) {
  blend_fuse_options o;
  ASSERT_EQ(blend_fuse_options_init(&o, sizeof o), BLEND_OK);
  ASSERT_EQ(blend_profile_apply(profile_.get(), &o, nullptr), BLEND_OK);
  EXPECT_EQ(o.policy, BLEND_POLICY_AUTO) << "the profile's, where it can be";
  EXPECT_EQ(o.selection, nullptr) << "metric and check layer follow the profile";
  EXPECT_EQ(o.ratio, 0.1);
  EXPECT_EQ(o.profile, profile_.get());
  ASSERT_EQ(o.n_chunk_prefix, 1u);
  EXPECT_EQ(o.chunk_prefix[0], 5);
  o.struct_size = 8;
  EXPECT_EQ(blend_profile_apply(profile_.get(), &o, nullptr), BLEND_E_INVALID_STRUCT);

  blend_measurement line{};
  line.struct_size = sizeof line;
  ASSERT_EQ(blend_profile_get_measurement(profile_.get(), 1, &line, nullptr), BLEND_OK);
  EXPECT_EQ(line.ratio, 0.1);
  EXPECT_EQ(line.corrected, 1u);
  EXPECT_EQ(line.n_chunk_prefix, 1u);
  EXPECT_EQ(blend_profile_get_measurement(profile_.get(), 3, &line, nullptr),
            BLEND_E_INVALID_ARGUMENT);
  double k = 0, v = 0;
  EXPECT_EQ(blend_profile_get_drift(profile_.get(), 1, &k, &v, nullptr), BLEND_E_NOT_FOUND);
  EXPECT_EQ(blend_profile_get_drift(profile_.get(), 2, &k, &v, nullptr), BLEND_OK);
  EXPECT_EQ(k, 0.5);
  EXPECT_EQ(v, 0.25);
  model_.reset();
  ctx_.reset();
  blend_profile_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(blend_profile_get_info(profile_.get(), &info, nullptr), BLEND_OK);
  EXPECT_EQ(info.n_measurements, 3u);
  EXPECT_EQ(info.trusted, 1u);
}

}  // namespace
}  // namespace blend::test

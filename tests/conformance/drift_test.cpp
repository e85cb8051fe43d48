// The drift correction through the C ABI, against the float64 reference.
#include <gtest/gtest.h>

#include "conformance/drifting.h"
#include "conformance/step_host.h"

namespace blend::test {
namespace {

TEST_P(Drifting, CorrectedRowsAreTheReference) {
  const Store store = open_store(ctx_, dir_.file("store"));
  const auto check_layer = static_cast<uint32_t>(1 + rng_.below(spec_.n_layers - 2));
  for (const uint32_t rank : {0u, 5u}) {
    ReferenceDrift drift;
    const Profile profile = make_profile(check_layer, rank, 0.5, drift);
    ASSERT_TRUE(profile);
    for (const double ratio : {0.0, 0.2, 1.0}) {
      const FuseCase how = hkvd(profile, drift, ratio);
      SCOPED_TRACE(testing::Message() << how << ", rank " << rank);
      const Fusion fusion = fuse(model_, store, random_.prompt, how);
      const ReferenceFusion want = expect_like_reference(reference_, fusion, random_.prompt, how);
      for (uint32_t l = 0; l < spec_.n_layers; ++l) {
        EXPECT_NEAR(layer_info(fusion, l).drift_share_k, want.drift_share[l][0], 1e-3) << l;
        EXPECT_NEAR(layer_info(fusion, l).drift_share_v, want.drift_share[l][1], 1e-3) << l;
      }
      FuseCase unguarded = how;
      unguarded.correction = BLEND_CORRECTION_UNGUARDED;
      unguarded.drift->guarded = false;
      expect_like_reference(reference_, fuse(model_, store, random_.prompt, unguarded),
                            random_.prompt, unguarded);
    }
    // Rows that a later check leaves out are corrected from the first check's deviation, and rows
    // that a policy leaves out unmeasured are too.
    FuseCase gradual = hkvd(profile, drift, 0.15);
    if (check_layer + 1 < spec_.n_layers) {
      gradual.check_layers = {{check_layer, 0.5}, {check_layer + 1, 0.2}};
      expect_like_reference(reference_, fuse(model_, store, random_.prompt, gradual),
                            random_.prompt, gradual);
    }
    FuseCase random = hkvd(profile, drift, 0.3);
    random.policy = BLEND_POLICY_RANDOM;
    random.check_layers = {{check_layer, 0.3}};
    expect_like_reference(reference_, fuse(model_, store, random_.prompt, random), random_.prompt,
                          random);
  }
}

// A host that runs the model itself, layer by layer, gets the same rows corrected as blend_fuse
// does: what a layerwise fuse places is the same, so its answer is.
TEST_P(Drifting, ALayerwiseFuseCorrectsAsAFuseDoes) {
  const Store store = open_store(ctx_, dir_.file("store"));
  precompute_all(model_, store, random_.prompt, random_.chunk_prefix);
  const auto check_layer = static_cast<uint32_t>(1 + rng_.below(spec_.n_layers - 2));
  ReferenceDrift drift;
  const Profile profile = make_profile(check_layer, 0, 0.5, drift);
  std::vector<FuseCase> cases = {hkvd(profile, drift, 0.0), hkvd(profile, drift, 0.2),
                                 hkvd(profile, drift, 1.0), hkvd(profile, drift, 0.15),
                                 hkvd(profile, drift, 0.2)};
  cases[4].correction = BLEND_CORRECTION_UNGUARDED;
  if (check_layer + 1 < spec_.n_layers) {
    cases[3].check_layers = {{check_layer, 0.5}, {check_layer + 1, 0.2}};
  }
  cases.push_back(hkvd(profile, drift, 0.3));  // chosen without a measurement, corrected with one
  cases.back().policy = BLEND_POLICY_RANDOM;
  cases.back().check_layers = {{check_layer, 0.3}};
  for (const FuseCase& how : cases) {
    SCOPED_TRACE(testing::Message() << how);
    const Fusion fusion = fuse(model_, store, random_.prompt, how);
    for (const bool ahead : {false, true}) {
      const Layerwise layerwise = make_layerwise(model_, store, random_.prompt, how);
      ASSERT_TRUE(layerwise);
      StepHost host(reference_, {.fetch_ahead = ahead});
      const StepRun run = host.run(layerwise.get());
      ASSERT_EQ(run.outcome.code, BLEND_OK) << run.outcome.message;
      EXPECT_LE(max_difference(logits(fusion), run.logits), 1e-4);
      EXPECT_EQ(selected(layerwise), selected(fusion));
      EXPECT_EQ(info(layerwise).n_rows_corrected, info(fusion).n_rows_corrected);
      EXPECT_EQ(info(layerwise).flags, info(fusion).flags);
      EXPECT_EQ(info(layerwise).n_rows_judging, info(fusion).n_rows_judging);
      EXPECT_NEAR(info(layerwise).drift_share, info(fusion).drift_share, 1e-3);
      EXPECT_EQ(info(layerwise).flops, info(fusion).flops);
    }
  }
}

TEST_P(Drifting, SixteenBitStoreIsTheReferenceRounded) {
  const Store store = open_store(ctx_, dir_.file("store"), BLEND_DTYPE_F16);
  ReferenceDrift drift;
  const Profile profile = make_profile(1, 0, 0.5, drift);
  const FuseCase how = hkvd(profile, drift, 0.2);
  expect_like_reference(reference_, fuse(model_, store, random_.prompt, how), random_.prompt, how,
                        DType::f16, 4e-3);
}

TEST_P(Drifting, ZeroMapsAndRatioOneChangeNothing) {
  const Store store = open_store(ctx_, dir_.file("store"));
  ReferenceDrift drift;
  const Profile zero = make_profile(1, 0, 0, drift);
  FuseCase plain = hkvd(zero, drift, 0.2);
  plain.profile = nullptr;
  const Fusion corrected = fuse(model_, store, random_.prompt, hkvd(zero, drift, 0.2));
  EXPECT_EQ(logits(corrected), logits(fuse(model_, store, random_.prompt, plain)));

  const Profile large = make_profile(1, 0, 2, drift, "large");
  plain.ratio = 1;
  const Fusion all = fuse(model_, store, random_.prompt, hkvd(large, drift, 1));
  EXPECT_EQ(logits(all), logits(fuse(model_, store, random_.prompt, plain)));
  EXPECT_EQ(info(all).n_rows_corrected, 0u);
  EXPECT_EQ(info(all).flags & BLEND_FUSION_CORRECTED, 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Drifting, testing::Range(0, 6));

}  // namespace
}  // namespace blend::test

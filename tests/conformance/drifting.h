// A random model, its float64 reference, a prompt, and profiles whose maps of the drift are drawn.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "conformance/expect.h"
#include "conformance/random_prompt.h"
#include "support/temp_dir.h"

namespace blend::test {

class Drifting : public testing::TestWithParam<int> {
 protected:
  static constexpr size_t kMaxRows = 160;  // the reference is slow

  explicit Drifting(int seed = GetParam())
      : rng_(0x2545f491u * static_cast<uint64_t>(seed + 1)),
        spec_(deep(random_spec(rng_))),
        path_(write_random_model(spec_, dir_.file("model.gguf"))),
        reference_(path_),
        ctx_(make_ctx()),
        model_(open_model(ctx_, path_)),
        random_(random_prompt(rng_, spec_.n_vocab, kMaxRows)) {}

  static RandomModelSpec deep(RandomModelSpec spec) {
    spec.n_layers = std::max(spec.n_layers, 4u);
    return spec;
  }

  // A profile of this model with maps of `scale`, and the same maps for the reference.
  Profile make_profile(uint32_t check_layer, uint32_t rank, double scale, ReferenceDrift& drift,
                       const std::string& file = "profile");

  Profile open_profile(const std::string& file) {
    blend_profile* profile = nullptr;
    EXPECT_EQ(blend_profile_open(&profile, model_.get(), dir_.file(file).c_str(), nullptr),
              BLEND_OK);
    return Profile(profile);
  }

  FuseCase hkvd(const Profile& profile, const ReferenceDrift& drift, double ratio) {
    FuseCase how{.policy = BLEND_POLICY_HKVD, .check_layer = drift.check_layer, .ratio = ratio};
    how.chunk_prefix = random_.chunk_prefix;
    how.profile = profile.get();
    how.drift = drift;
    return how;
  }

  TempDir dir_;
  SplitMix rng_;
  RandomModelSpec spec_;
  std::string path_;
  ReferenceModel reference_;
  Ctx ctx_;
  Model model_;
  RandomPrompt random_;
};

}  // namespace blend::test

// random: any rows. A policy must be better than this to be worth its measurement.
//
// A row's score depends only on the seed and its position in the prompt. So the choice is the same
// on every machine, and a smaller budget chooses a part of what a larger one does.
#include "fusion/policy/policy.h"

namespace blend {
namespace {

// splitmix64 (Steele, Lea & Flood 2014).
uint64_t mix(uint64_t x) {
  uint64_t z = x + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

class Random final : public RankingPolicy {
 public:
  explicit Random(uint64_t seed) : RankingPolicy(Policy::random), seed_(seed) {}

 private:
  Status score(const ChoicePoint& /*at*/, std::span<const uint32_t> candidates,
               std::span<float> scores) const override {
    for (size_t i = 0; i < candidates.size(); ++i) {
      scores[i] = static_cast<float>(mix(mix(seed_) ^ candidates[i]) >> 40);  // 24 bits: exact
    }
    return Status::ok();
  }

  uint64_t seed_;
};

}  // namespace

std::unique_ptr<SelectionPolicy> make_random(const PolicySettings& settings) {
  return std::make_unique<Random>(settings.seed);
}

}  // namespace blend

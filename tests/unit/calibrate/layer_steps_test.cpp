#include "calibrate/layer_steps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "support/engine_fixture.h"

namespace blend {
namespace {

double geometric_mean(const std::vector<float>& factors) {
  double sum = 0;
  for (const float f : factors) sum += std::log2(f);
  return std::exp2(sum / static_cast<double>(factors.size()));
}

TEST(SplitSteps, AreInverseToTheRootsAndTheirGeometricMeanIsOne) {
  const std::vector<float> f = split_steps(std::vector<double>{0.04, 0.01, 0.01, 0.0025});
  ASSERT_EQ(f.size(), 4u);
  EXPECT_NEAR(f[1] / f[0], 2, 1e-5);
  EXPECT_NEAR(f[3] / f[0], 4, 1e-5);
  EXPECT_EQ(f[1], f[2]);
  EXPECT_NEAR(geometric_mean(f), 1, 1e-5);
}

TEST(SplitSteps, StayWithinBoundsAndTakeThoseIntoTheMean) {
  std::vector<double> kl(24, 1e-9);
  kl[5] = 1;
  kl[6] = 0;
  const std::vector<float> f = split_steps(kl);
  EXPECT_EQ(f[5], 1.0f / 16);
  for (size_t i = 0; i < f.size(); ++i) {
    EXPECT_NEAR(f[i], i == 5 ? 1.0 / 16 : std::exp2(4.0 / 23), 1e-4) << i;
  }
  EXPECT_NEAR(geometric_mean(f), 1, 1e-5);
  for (const float x : split_steps(std::vector<double>{1, 1, 1, 0})) EXPECT_LE(x, 4);
  // Two layers: one sixteenth and sixteen would be the split, and four is the most.
  const std::vector<float> two = split_steps(std::vector<double>{1, 1.0 / 65536});
  EXPECT_EQ(two[1], 4);
  EXPECT_NEAR(two[0], 0.25, 1e-5);
}

TEST(SplitSteps, AreNoneWhereNothingCanBeSaid) {
  EXPECT_TRUE(split_steps({}).empty());
  EXPECT_TRUE(split_steps(std::vector<double>{0.1}).empty()) << "one layer";
  EXPECT_TRUE(split_steps(std::vector<double>{0, 0, 0}).empty());
  EXPECT_TRUE(split_steps(std::vector<double>{0.1, std::nan(""), 0.2}).empty());
  EXPECT_TRUE(split_steps(std::vector<double>{0.1, INFINITY}).empty());
  EXPECT_TRUE(split_steps(std::vector<double>{0.1, -0.1}).empty());
}

TEST(SumOfShares, EveryWayCountsAlike) {
  const std::vector<std::vector<double>> kl = {{8, 1, 1}, {0.0001, 0.0007, 0.0002}};
  const std::vector<double> sum = sum_of_shares(kl);
  ASSERT_EQ(sum.size(), 3u);
  EXPECT_DOUBLE_EQ(sum[0], 0.8 + 0.1);
  EXPECT_DOUBLE_EQ(sum[1], 0.1 + 0.7);
  EXPECT_DOUBLE_EQ(sum[2], 0.1 + 0.2);
  using Costs = std::vector<std::vector<double>>;
  EXPECT_EQ(sum_of_shares(Costs{{0, 0}, {3, 1}}), (std::vector<double>{0.75, 0.25}));
  EXPECT_TRUE(sum_of_shares(Costs{{0, 0}}).empty());
  EXPECT_TRUE(sum_of_shares(Costs{{1, 2}, {std::nan(""), 1}}).empty());
  EXPECT_TRUE(sum_of_shares(Costs{}).empty());
}

// Every other prompt has `noise` more at reuse with all layers alike, the others as much less.
std::vector<StepTrial> trials(size_t n, double alike, double split, double noise,
                              uint64_t split_bytes = 1000) {
  std::vector<StepTrial> out;
  for (size_t i = 0; i < n; ++i) {
    StepTrial& t = out.emplace_back();
    t.ways = {{alike + (i % 2 == 0 ? noise : -noise), split}};
    t.alike = {1000, 2000};
    t.split = {split_bytes, 2000};
  }
  return out;
}

const std::vector<float> kFactors = {2, 0.5f};

TEST(JudgeSteps, KeepsWhatIsBetterByTheInterval) {
  const LayerSteps kept = judge_steps(kFactors, trials(32, 0.02, 0.01, 0.01));
  EXPECT_EQ(kept.factors, kFactors);
  EXPECT_NEAR(kept.kl_alike, 0.02, 1e-9);
  EXPECT_NEAR(kept.kl_split, 0.01, 1e-9);
  EXPECT_NEAR(kept.gain_margin, 1.96 * 0.01 / std::sqrt(31), 1e-4);
  EXPECT_EQ(kept.bits_alike, 4);
  EXPECT_EQ(kept.n_prompts, 32u);
}

TEST(JudgeSteps, DropsWhatIsWorseOrBetterByLuckOrHardlyTried) {
  const auto dropped = [](const std::vector<StepTrial>& t) {
    return judge_steps(kFactors, t).empty();
  };
  EXPECT_TRUE(dropped(trials(32, 0.01, 0.02, 0.001))) << "worse";
  EXPECT_TRUE(dropped(trials(32, 0.01, 0.01, 0))) << "the same";
  // Better on average, but the interval of the difference reaches below zero.
  const auto lucky = trials(32, 0.011, 0.01, 0.01);
  EXPECT_GT(judge_steps(kFactors, lucky).kl_alike, 0.01);
  EXPECT_TRUE(dropped(lucky));
  EXPECT_TRUE(dropped(trials(kLeastJudged - 1, 0.02, 0.01, 0))) << "too few";
  EXPECT_FALSE(dropped(trials(kLeastJudged, 0.02, 0.01, 0)));
  EXPECT_TRUE(dropped({}));
  auto bad = trials(32, 0.02, 0.01, 0);
  bad[7].ways[0].split = std::nan("");
  EXPECT_TRUE(dropped(bad)) << "not a number";
}

// In another way than reuse it need not be better, but must not be worse by its interval.
TEST(JudgeSteps, DropsWhatIsWorseWhereTheProfileFuses) {
  const auto with_way = [](double alike, double split, double noise) {
    auto t = trials(32, 0.02, 0.01, 0.01);
    for (size_t i = 0; i < t.size(); ++i) {
      t[i].ways.push_back({alike + (i % 2 == 0 ? noise : -noise), split});
    }
    return judge_steps(kFactors, t);
  };
  EXPECT_EQ(with_way(1e-4, 0.5e-4, 0).factors, kFactors);
  EXPECT_EQ(with_way(1e-4, 1e-4, 0).factors, kFactors);
  EXPECT_EQ(with_way(1e-4, 1.1e-4, 1e-4).factors, kFactors) << "worse by luck, perhaps";
  EXPECT_TRUE(with_way(1e-4, 1.5e-4, 1e-4).empty()) << "worse";
  EXPECT_TRUE(with_way(std::nan(""), 1e-4, 0).empty());
  EXPECT_NEAR(with_way(1e-4, 2e-4, 0).kl_alike, 0.02, 1e-9) << "reuse's own is what is told";
}

// A bit more an element reduces all layers alike to a quarter: half of their cost is not a gain
// then.
TEST(JudgeSteps, BytesThatTheSplitTakesCountAgainstIt) {
  EXPECT_FALSE(judge_steps(kFactors, trials(32, 0.02, 0.01, 0, 1000)).empty());
  EXPECT_TRUE(judge_steps(kFactors, trials(32, 0.02, 0.01, 0, 1250)).empty());
  EXPECT_FALSE(judge_steps(kFactors, trials(32, 0.02, 0.004, 0, 1250)).empty());
  EXPECT_TRUE(judge_steps(kFactors, trials(32, 0.009, 0.01, 0, 900)).empty()) << "no bonus";
}

TEST(StepPrompts, AreEveryOtherOne) {
  const StepPrompts few(15, 32), enough(17, 32), many(1000, 32), off(1000, 0);
  EXPECT_EQ(few.n_judged, 0u);
  EXPECT_EQ(few.n_runs(6, 1), 0u);
  EXPECT_EQ(enough.n_judged, 8u);
  EXPECT_EQ(enough.n_fitted, 9u);
  EXPECT_EQ(many.n_fitted, 32u);
  EXPECT_EQ(many.n_judged, 32u);
  EXPECT_EQ(many.n_runs(6, 2), 2 * (32u * 7 + 32u * 3));
  EXPECT_EQ(off.n_runs(6, 1), 0u);
}

// A random model of which one layer alone reads its K and V: the attention of the others adds next
// to nothing.
class FindLayerSteps : public test::EngineTest {
 protected:
  static constexpr uint32_t kReads = 2;

  void SetUp() override { model_ = reading(kReads); }

  std::shared_ptr<const Model> reading(uint32_t layer) {
    const test::RandomModelSpec spec;
    auto runtime = take(Runtime::create(2, Log(), BackendSpec{}));
    test::GgufWriter gguf = test::random_model(spec);
    const uint64_t n = uint64_t{spec.d_model} * spec.n_heads * spec.head_dim;
    for (uint32_t l = 0; l < spec.n_layers; ++l) {
      if (l == layer) continue;
      test::SplitMix rng(l);
      std::string bytes(n * sizeof(float), '\0');
      for (uint64_t i = 0; i < n; ++i) {
        const auto w = static_cast<float>(1e-4 * rng.normal());
        std::memcpy(bytes.data() + i * sizeof w, &w, sizeof w);
      }
      gguf.tensor("blk." + std::to_string(l) + ".attn_output.weight", test::kGgmlF32,
                  {uint64_t{spec.n_heads} * spec.head_dim, spec.d_model}, bytes);
    }
    return take(Model::load(runtime, gguf.write(dir_.file("one-layer.gguf")), {}, Watch{}));
  }
  template <typename T>
  static T take(Result<T> result) {
    EXPECT_TRUE(result.is_ok()) << result.status().message();
    return std::move(*result);
  }

  std::vector<Sample> samples(size_t n) const {
    std::vector<Sample> out;
    for (size_t i = 0; i < n; ++i) {
      out.push_back({{SegmentKind::text, tokens(3, 10 * i), {}},  // so that no chunk is exact
                     {SegmentKind::chunk, tokens(20, 10 * i + 1), {}},
                     {SegmentKind::chunk, tokens(17, 10 * i + 2), {}},
                     {SegmentKind::question, tokens(4, 10 * i + 3), {}}});
    }
    return out;
  }
  Result<LayerSteps> find(const std::vector<Sample>& prompts, uint64_t most = 32,
                          std::optional<Setting> way = {}) {
    StepOptions options{StepPrompts(prompts.size(), most), {}, DType::f16, std::move(way)};
    options.check_layer = 2;
    options.score_tokens = 2;
    n_done_ = 0;
    const auto done = [this] {
      ++n_done_;
      return Status::ok();
    };
    return find_layer_steps(model_, prompts, options, done, {});
  }

  uint64_t n_done_ = 0;
};

TEST_F(FindLayerSteps, TheLayerThatIsReadGetsTheFinestAndItIsWorthIt) {
  const LayerSteps steps = take(find(samples(24)));
  ASSERT_EQ(steps.factors.size(), 4u) << steps.kl_alike << ' ' << steps.kl_split;
  for (uint32_t l = 0; l < 4; ++l) {
    if (l == kReads) continue;
    EXPECT_GT(steps.factors[l], 4 * steps.factors[kReads]) << l;
  }
  EXPECT_LT(steps.kl_split * 4, steps.kl_alike);
  EXPECT_NEAR(steps.bits_split, steps.bits_alike, 0.3) << "about as many bytes";
  EXPECT_EQ(steps.n_prompts, 12u);
  EXPECT_EQ(n_done_, StepPrompts(24, 32).n_runs(4, 1));
}

// As the profile fuses, too: with check layer 2 layers 0 to 2 are computed again for every row, so
// only stored layer 3 matters, little as it does.
TEST_F(FindLayerSteps, ALayerThatMattersWhereTheProfileFusesIsKeptFinerToo) {
  const std::vector<Sample> prompts = samples(40);
  const LayerSteps alone = take(find(prompts));
  const LayerSteps both =
      take(find(prompts, 32, Setting{Policy::hkvd, {DeviationMetric::v, true}, 0.2}));
  EXPECT_EQ(n_done_, StepPrompts(40, 32).n_runs(4, 2));
  ASSERT_EQ(alone.factors.size(), 4u);
  ASSERT_EQ(both.factors.size(), 4u);
  EXPECT_GT(alone.factors[3], 1);
  EXPECT_LT(both.factors[3], 0.5);
  EXPECT_LT(both.factors[2], 0.5);
  EXPECT_GT(both.factors[1], 1);
}

TEST_F(FindLayerSteps, NothingIsFoundOfTooFewPromptsOrWhenNotAskedFor) {
  EXPECT_TRUE(take(find(samples(15))).empty());
  EXPECT_TRUE(take(find(samples(24), 0)).empty());
  EXPECT_EQ(n_done_, 0u);
}

// Prompts without a chunk have nothing to round: every cost is zero.
TEST_F(FindLayerSteps, NothingIsFoundWhereNothingIsStored) {
  std::vector<Sample> prompts(20);
  for (size_t i = 0; i < prompts.size(); ++i) {
    prompts[i] = {{SegmentKind::question, tokens(6, i), {}}};
  }
  EXPECT_TRUE(take(find(prompts)).empty());
}

}  // namespace
}  // namespace blend

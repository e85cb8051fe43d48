// Metrics against hand-made cases and plain loops.
#include "eval/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "compare.h"

namespace blend_cli {
namespace {

TEST(EvalMetrics, NormalisesAsSquadDoes) {
  EXPECT_EQ(normalised_answer("The  Quick, brown\tfox!\n"), "quick brown fox");
  EXPECT_EQ(normalised_answer("A man, a plan, an end."), "man plan end");
  EXPECT_EQ(normalised_answer("theatre Another"), "theatre another");  // articles are whole words
  EXPECT_EQ(normalised_answer("U.S.A."), "usa");
  EXPECT_EQ(normalised_answer("t-h.e cat"), "cat");  // punctuation goes first, then articles
  EXPECT_EQ(normalised_answer(" the "), "");
  EXPECT_EQ(normalised_answer("3,5 (three)"), "35 three");
}

TEST(EvalMetrics, LowersLettersBeyondAscii) {
  EXPECT_EQ(normalised_answer("\xC3\x89"
                              "cole \xC3\x9C"
                              "ber"),
            "\xC3\xA9"
            "cole \xC3\xBC"
            "ber");
  EXPECT_EQ(normalised_answer("\xCE\xA9\xD0\x9C\xD0\x81"), "\xCF\x89\xD0\xBC\xD1\x91");
  EXPECT_EQ(normalised_answer("3 \xC3\x97 3"), "3 \xC3\x97 3");  // the sign is no letter
  EXPECT_EQ(normalised_answer("\xC3"), "\xC3");                  // cut off: left as it is
}

TEST(EvalMetrics, ExactMatchTakesAnyAnswer) {
  EXPECT_TRUE(exact_match(" The red door.", {"green door", "Red Door"}));
  EXPECT_FALSE(exact_match("the red doors", {"green door", "red door"}));
  EXPECT_FALSE(exact_match("red door", {}));
  EXPECT_TRUE(exact_match("", {"the"}));
}

TEST(EvalMetrics, F1CountsSharedWords) {
  EXPECT_DOUBLE_EQ(token_f1("the red door", {"red door"}), 1);
  // 1 of 2 given, 1 of 3 expected: 2 * 1/2 * 1/3 / (1/2 + 1/3).
  EXPECT_DOUBLE_EQ(token_f1("red house", {"big red door"}), 0.4);
  // A word counts as often as both have it.
  EXPECT_DOUBLE_EQ(token_f1("no no no", {"no no"}), 0.8);
  EXPECT_DOUBLE_EQ(token_f1("blue", {"red door"}), 0);
  EXPECT_DOUBLE_EQ(token_f1("red", {"blue", "red door", "big red door"}), 2.0 / 3);  // the best
  EXPECT_DOUBLE_EQ(token_f1("the", {"an"}), 1);
  EXPECT_DOUBLE_EQ(token_f1("", {"red"}), 0);
  EXPECT_DOUBLE_EQ(token_f1("red", {"the"}), 0);
}

TEST(EvalMetrics, MeanAndQuantiles) {
  EXPECT_DOUBLE_EQ(mean({1, 2, 6}), 3);
  EXPECT_DOUBLE_EQ(mean({}), 0);
  EXPECT_DOUBLE_EQ(quantile({3, 1, 2}, 0.5), 2);
  EXPECT_DOUBLE_EQ(quantile({4, 1, 2, 3}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile({0, 10}, 0.95), 9.5);
  EXPECT_DOUBLE_EQ(quantile({7}, 0.95), 7);
  EXPECT_DOUBLE_EQ(quantile({5, 1}, 0), 1);
  EXPECT_DOUBLE_EQ(quantile({5, 1}, 1), 5);
  EXPECT_DOUBLE_EQ(quantile({}, 0.5), 0);
}

TEST(EvalMetrics, BootstrapCoversAsTheNormalIntervalDoes) {
  std::vector<double> values;
  for (int i = 0; i < 400; ++i) values.push_back(i % 4 == 0 ? 0 : 1);  // mean 0.75
  const Interval interval = bootstrap_mean(values, 7);
  const double half = 1.96 * std::sqrt(0.75 * 0.25 / 400);
  EXPECT_NEAR(interval.low, 0.75 - half, 0.01);
  EXPECT_NEAR(interval.high, 0.75 + half, 0.01);
}

TEST(EvalMetrics, BootstrapIsSeeded) {
  const std::vector<double> values = {0.1, 0.9, 0.4, 0.7, 0.2};
  const Interval a = bootstrap_mean(values, 1);
  const Interval b = bootstrap_mean(values, 1);
  const Interval c = bootstrap_mean(values, 2);
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
  EXPECT_TRUE(a.low != c.low || a.high != c.high);
  EXPECT_EQ(bootstrap_mean({1, 1, 1}, 3).low, 1);
  EXPECT_EQ(bootstrap_mean({}, 3).high, 0);
}

TEST(EvalMetrics, AnAnswerIsFoundWhereItsWordsStand) {
  EXPECT_TRUE(answer_found("It is signed by Ada Brunner.", {"nobody", "ada brunner"}));
  EXPECT_TRUE(answer_found("The Brunner's car", {"Brunner"}));
  EXPECT_TRUE(answer_found("at 7.50 euros", {"7.50 euros"}));
  EXPECT_TRUE(answer_found("in 19 of 1954", {"1954"}));
  EXPECT_FALSE(answer_found("in 1954", {"4", "195"}));  // neither part of a number is one
  EXPECT_FALSE(answer_found("concert", {"art", "cert"}));
  EXPECT_FALSE(answer_found("", {"", "the"}));
  EXPECT_FALSE(answer_found("the cat", {"the", "!"}));  // nothing of these is left
}

TEST(EvalMetrics, DifferencesAreOfPairs) {
  // Question by question always .25 less, though the values themselves are far apart.
  const std::vector<double> a = {0, 1, 5, 9};
  std::vector<double> b = a;
  for (double& value : b) value += 0.25;
  const Interval paired = bootstrap_difference(a, b, 7);
  EXPECT_DOUBLE_EQ(paired.low, -0.25);
  EXPECT_DOUBLE_EQ(paired.high, -0.25);
}

TEST(EvalMetrics, TheGapIsOfWhatFullPrefillGains) {
  EXPECT_DOUBLE_EQ(*performance_gap_recovered(0.4, 0.2, 0.6), 0.5);
  EXPECT_DOUBLE_EQ(*performance_gap_recovered(0.1, 0.2, 0.6), -0.25);
  EXPECT_FALSE(performance_gap_recovered(0.4, 0.6, 0.6));
  EXPECT_FALSE(performance_gap_recovered(0.4, 0.7, 0.6));
}

// The definition, two plain loops: sum over i of p_i * log(p_i / q_i), p_i = e^a_i / sum of e^a_k.
double plain_kl(const std::vector<float>& a, const std::vector<float>& b) {
  double kl = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    double sum_a = 0;
    double sum_b = 0;
    for (size_t k = 0; k < a.size(); ++k) {
      sum_a += std::exp(static_cast<double>(a[k]));
      sum_b += std::exp(static_cast<double>(b[k]));
    }
    const double p = std::exp(static_cast<double>(a[i])) / sum_a;
    const double q = std::exp(static_cast<double>(b[i])) / sum_b;
    kl += p * std::log(p / q);
  }
  return kl;
}

TEST(EvalMetrics, KlIsTheDoubleLoops) {
  std::mt19937 engine(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<float> a;
    std::vector<float> b;
    for (int i = 0; i < 50; ++i) {
      a.push_back(static_cast<float>(engine() % 1000) / 100 - 5);
      b.push_back(a.back() + static_cast<float>(engine() % 100) / 100);
    }
    EXPECT_NEAR(kl_divergence(a, b), plain_kl(a, b), 1e-12);
    EXPECT_NE(kl_divergence(a, b), kl_divergence(b, a));  // full prefill is the first
    EXPECT_EQ(kl_divergence(a, a), 0);
  }
  // Where a plain exponential would overflow; a shift of all logits changes nothing.
  EXPECT_NEAR(kl_divergence({1000, 1001}, {0, 1}), 0, 1e-12);
}

}  // namespace
}  // namespace blend_cli

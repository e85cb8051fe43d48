#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace blend {
namespace {

Sampler make(const SamplerOptions& options) {
  auto s = Sampler::create(options);
  EXPECT_TRUE(s.is_ok()) << s.status().message();
  return *s;
}

// How often each token came in n draws.
std::vector<double> frequencies(const SamplerOptions& options, const std::vector<float>& logits,
                                int n) {
  Sampler s = make(options);
  std::vector<double> f(logits.size());
  for (int i = 0; i < n; ++i) f[static_cast<size_t>(s.sample(logits))] += 1.0 / n;
  return f;
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestIdOfTies) {
  Sampler s = make({});
  EXPECT_EQ(s.sample(std::vector<float>{0.0f, 3.0f, 1.0f, 3.0f}), 1);
}

TEST(Sampler, FollowsTheSoftmaxAtItsTemperature) {
  const std::vector<float> logits{1.0f, 0.0f, -1.0f, 2.0f};
  const float temperature = 0.7f;
  double total = 0.0;
  for (const float l : logits) total += std::exp(l / temperature);
  const std::vector<double> f = frequencies({temperature, 1.0f, 0, 5}, logits, 200000);
  for (size_t i = 0; i < logits.size(); ++i) {
    EXPECT_NEAR(f[i], std::exp(logits[i] / temperature) / total, 0.005) << i;
  }
}

TEST(Sampler, TopKAndTopPCutTheTail) {
  const std::vector<float> logits{0.0f, 2.0f, 1.0f, -1.0f};  // p = .087 .644 .237 .032
  const std::vector<double> k = frequencies({1.0f, 1.0f, 2, 5}, logits, 20000);
  EXPECT_EQ(k[0], 0.0);
  EXPECT_EQ(k[3], 0.0);
  EXPECT_NEAR(k[1] / k[2], std::exp(1.0), 0.15);
  const std::vector<double> p = frequencies({1.0f, 0.6f, 0, 5}, logits, 1000);
  EXPECT_NEAR(p[1], 1.0, 1e-9);
  const std::vector<double> p2 = frequencies({1.0f, 0.7f, 0, 5}, logits, 1000);
  EXPECT_GT(p2[2], 0.0);
  EXPECT_EQ(p2[0], 0.0);
}

// Against a draw from the whole vocabulary, sorted.
TEST(Sampler, IsWhatSortingEverythingGives) {
  uint64_t state = 1;
  const auto random = [&] {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<double>(state >> 11) * 0x1p-53;
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<float> logits(1 + static_cast<size_t>(random() * 3000));
    const double spread = 1 + 6 * random();
    for (float& l : logits) l = static_cast<float>(std::floor(spread * random() * 8) / 8);  // ties
    SamplerOptions o;
    o.temperature = static_cast<float>(0.2 + 2 * random());
    o.seed = static_cast<uint64_t>(round);
    if (random() < 0.5) o.top_p = static_cast<float>(0.05 + 0.9 * random());
    if (random() < 0.5) o.top_k = 1 + static_cast<uint32_t>(random() * 400);
    if (random() < 0.5) o.min_p = static_cast<float>(0.5 * random());
    std::vector<size_t> order(logits.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return logits[a] > logits[b]; });
    const auto weight = [&](size_t i) {
      return std::exp((static_cast<double>(logits[i]) - logits[order[0]]) / o.temperature);
    };
    if (o.top_k > 0 && o.top_k < order.size()) order.resize(o.top_k);
    double total = 0, sum = 0;
    for (const size_t i : order) total += weight(i);
    size_t n = 0;
    while (n < order.size() && (o.top_p == 1.0f || sum < o.top_p * total))
      sum += weight(order[n++]);
    order.resize(n);
    while (weight(order.back()) < o.min_p) order.pop_back();
    total = 0;
    for (const size_t i : order) total += weight(i);
    Sampler s = make(o);
    const int32_t got = s.sample(logits);
    // splitmix64's first number, of the seed.
    uint64_t z = o.seed + 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    double target = static_cast<double>(z >> 11) * 0x1p-53 * total;
    size_t want = order.back();
    for (const size_t i : order) {
      target -= weight(i);
      if (target < 0) {
        want = i;
        break;
      }
    }
    ASSERT_EQ(got, static_cast<int32_t>(want)) << "round " << round;
  }
}

TEST(Sampler, TheSameSeedGivesTheSameTokens) {
  const std::vector<float> logits{0.1f, 0.2f, 0.3f, 0.4f, 0.5f};
  Sampler a = make({1.0f, 1.0f, 0, 42});
  Sampler b = make({1.0f, 1.0f, 0, 42});
  Sampler c = make({1.0f, 1.0f, 0, 43});
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const int32_t token = a.sample(logits);
    EXPECT_EQ(token, b.sample(logits));
    differs |= token != c.sample(logits);
  }
  EXPECT_TRUE(differs);
}

TEST(Sampler, RefusesOptionsThatMeanNothing) {
  for (const float t :
       {-1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(Sampler::create({t, 1.0f, 0, 0}).status().code(), BLEND_E_INVALID_ARGUMENT);
  }
  for (const float p : {0.0f, 1.5f, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_EQ(Sampler::create({1.0f, p, 0, 0}).status().code(), BLEND_E_INVALID_ARGUMENT);
  }
}

}  // namespace
}  // namespace blend

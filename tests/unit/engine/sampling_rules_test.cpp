// Penalties, bias, min-p, logprobs and stop texts, each against a plain loop over what it says.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "engine/logit_rules.h"
#include "engine/logprobs.h"
#include "engine/sampler.h"
#include "engine/stop_texts.h"

namespace blend {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> some_logits(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> of(0.0f, 3.0f);
  std::vector<float> logits(n);
  for (float& l : logits) l = of(rng);
  return logits;
}

TEST(LogitRules, AreWhatTheirDefinitionsSay) {
  constexpr uint32_t kVocab = 40;
  std::mt19937 rng(3);
  for (uint32_t round = 0; round < 200; ++round) {
    const std::vector<float> logits = some_logits(kVocab, round);
    const auto number = [&](double lo, double hi) {
      return static_cast<float>(std::uniform_real_distribution<double>(lo, hi)(rng));
    };
    LogitRuleOptions o;
    o.repetition_penalty = round % 3 == 0 ? 1.0f : number(0.5, 2);
    o.frequency_penalty = round % 4 == 0 ? 0.0f : number(-1, 2);
    o.presence_penalty = round % 5 == 0 ? 0.0f : number(-1, 2);
    std::vector<int32_t> seen(rng() % 30);
    for (int32_t& t : seen) t = static_cast<int32_t>(rng() % kVocab);
    for (uint32_t i = rng() % 4; i > 0; --i) {
      o.bias.push_back({static_cast<int32_t>(rng() % kVocab), i == 1 ? -kInf : number(-5, 5)});
    }
    std::vector<double> want(logits.begin(), logits.end());
    for (int32_t t = 0; t < static_cast<int32_t>(kVocab); ++t) {
      double& l = want[static_cast<size_t>(t)];
      bool was = false;
      for (const int32_t s : seen) was |= s == t;
      if (was && l > 0)
        l /= o.repetition_penalty;
      else if (was)
        l *= o.repetition_penalty;
      for (const int32_t s : seen) l -= s == t ? o.frequency_penalty : 0.0f;
      if (was) l -= o.presence_penalty;
      for (const LogitBias& b : o.bias) l += b.token == t ? b.bias : 0.0f;
    }
    auto rules = LogitRules::create(o, kVocab);
    ASSERT_TRUE(rules.is_ok()) << rules.status().message();
    for (const int32_t t : seen) rules->see(t);
    auto got = rules->apply(logits, nullptr);
    ASSERT_TRUE(got.is_ok()) << got.status().message();
    for (size_t i = 0; i < kVocab; ++i) {
      if (std::isinf(want[i])) {
        EXPECT_EQ((*got)[i], -kInf);
      } else {
        EXPECT_NEAR((*got)[i], want[i], 1e-4 * (1 + std::abs(want[i]))) << round << ' ' << i;
      }
    }
  }
}

TEST(LogitRules, TheCallbackComesLastAndIsHeldToWhatItMayDo) {
  const std::vector<float> logits{1, 2, 3};
  const auto with = [&](LogitsFn fn, float bias = 0) {
    LogitRuleOptions o;
    o.bias = {{1, bias}};
    o.fn = std::move(fn);
    auto rules = LogitRules::create(o, 3);
    EXPECT_TRUE(rules.is_ok());
    auto got = rules->apply(logits, nullptr);
    return got.is_ok() ? std::vector<float>(got->begin(), got->end())
                       : std::vector<float>{static_cast<float>(got.status().code())};
  };
  const auto set = [](size_t i, float to) {
    return [=](std::span<float> l) {
      l[i] = to;
      return 0;
    };
  };
  EXPECT_EQ(with([](std::span<float> l) { return l[1] == 7.0f ? 0 : 1; }, 5.0f),
            (std::vector<float>{1, 7, 3}));
  EXPECT_EQ(with(set(2, -kInf)), (std::vector<float>{1, 2, -kInf}));
  EXPECT_EQ(with(set(2, kNan)), std::vector<float>{BLEND_E_NUMERIC});
  EXPECT_EQ(with(set(2, kInf)), std::vector<float>{BLEND_E_NUMERIC});
  EXPECT_EQ(with([](std::span<float>) { return 5; }), std::vector<float>{BLEND_E_CALLBACK});
  EXPECT_EQ(with([](std::span<float> l) {
              for (float& x : l) x = -kInf;
              return 0;
            }),
            std::vector<float>{BLEND_E_INVALID_ARGUMENT});
}

TEST(LogitRules, RefuseWhatMeansNothing) {
  const auto code = [](auto set) {
    LogitRuleOptions o;
    set(o);
    return LogitRules::create(o, 10).status().code();
  };
  for (const float bad : {kNan, kInf, 0.0f, -1.0f}) {
    EXPECT_EQ(code([&](auto& o) { o.repetition_penalty = bad; }), BLEND_E_INVALID_ARGUMENT);
  }
  for (const float bad : {kNan, kInf, -kInf}) {
    EXPECT_EQ(code([&](auto& o) { o.frequency_penalty = bad; }), BLEND_E_INVALID_ARGUMENT);
    EXPECT_EQ(code([&](auto& o) { o.presence_penalty = bad; }), BLEND_E_INVALID_ARGUMENT);
  }
  for (const LogitBias bad : {LogitBias{10, 0}, LogitBias{-1, 0}, {1, kNan}, {1, kInf}}) {
    EXPECT_EQ(code([&](auto& o) { o.bias = {bad}; }), BLEND_E_INVALID_ARGUMENT);
  }
  EXPECT_EQ(code([&](auto& o) { o.bias = {{9, -kInf}}; }), BLEND_OK);
}

TEST(Sampler, MinPLeavesWhatIsLikelyEnough) {
  const std::vector<float> logits = some_logits(50, 1);
  for (const float temperature : {0.5f, 1.0f, 2.0f}) {
    const float top = *std::max_element(logits.begin(), logits.end());
    double total = 0;
    std::vector<double> want(logits.size());
    for (size_t i = 0; i < logits.size(); ++i) {
      const double p = std::exp((logits[i] - top) / temperature);
      if (p >= 0.2) total += want[i] = p;
    }
    auto s = Sampler::create({temperature, 1.0f, 0, 9, 0.2f});
    ASSERT_TRUE(s.is_ok());
    constexpr int kDraws = 50000;
    std::map<int32_t, int> came;
    for (int i = 0; i < kDraws; ++i) ++came[s->sample(logits)];
    for (size_t i = 0; i < logits.size(); ++i) {
      const double f = came[static_cast<int32_t>(i)] / static_cast<double>(kDraws);
      if (want[i] == 0) {
        EXPECT_EQ(f, 0);
      }
      EXPECT_NEAR(f, want[i] / total, 0.02);
    }
  }
  for (const float bad : {-0.1f, 1.1f, kNan}) {
    EXPECT_EQ(Sampler::create({1, 1, 0, 0, bad}).status().code(), BLEND_E_INVALID_ARGUMENT);
  }
}

TEST(Sampler, NeverTakesAForbiddenToken) {
  const std::vector<float> logits{-kInf, 1.0f, -kInf, 0.0f, -kInf};
  for (const float temperature : {0.0f, 1.0f, 100.0f}) {
    auto s = Sampler::create({temperature, 1.0f, 0, 4});
    ASSERT_TRUE(s.is_ok());
    for (int i = 0; i < 2000; ++i) {
      const int32_t t = s->sample(logits);
      EXPECT_TRUE(t == 1 || t == 3) << t;
    }
  }
}

TEST(Logprobs, AreTheLogarithmOfTheSoftmax) {
  std::vector<float> logits = some_logits(30, 8);
  logits[4] = logits[20];  // a tie
  double total = 0;
  for (const float l : logits) total += std::exp(static_cast<double>(l));
  for (const uint32_t n : {0u, 1u, 7u, 30u, 99u}) {
    const std::vector<Logprob> got = logprobs(logits, 12, n);
    ASSERT_EQ(got.size(), 1 + std::min<size_t>(n, logits.size()));
    EXPECT_EQ(got[0].token, 12);
    std::vector<bool> taken(logits.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const auto id = static_cast<size_t>(got[i].token);
      EXPECT_NEAR(got[i].logprob, std::log(std::exp(static_cast<double>(logits[id])) / total),
                  1e-4);
      if (i == 0) continue;
      size_t best = logits.size();  // the lowest id of the largest that are left
      for (size_t j = logits.size(); j-- > 0;) {
        if (!taken[j] && (best == logits.size() || logits[j] >= logits[best])) best = j;
      }
      EXPECT_EQ(id, best);
      taken[best] = true;
    }
  }
}

// Where the first end of a stop text lies, byte by byte; the text before the longest that ends
// there.
std::string before_stop(const std::string& text, const std::vector<std::string>& stops, bool& any) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& s : stops) {
      if (s.size() <= end && text.compare(end - s.size(), s.size(), s) == 0) {
        longest = std::max(longest, s.size());
      }
    }
    if (longest > 0) {
      any = true;
      return text.substr(0, end - longest);
    }
  }
  any = false;
  return text;
}

TEST(StopTexts, AreFoundWhereverPiecesEnd) {
  std::mt19937 rng(11);
  int matches = 0, none = 0;
  for (int round = 0; round < 20000; ++round) {
    const auto word = [&](size_t least, size_t most) {
      std::string s(least + rng() % (most - least + 1), '\0');
      for (char& c : s) c = static_cast<char>('a' + rng() % 2);  // few letters: many near misses
      return s;
    };
    std::vector<std::string> stops(1 + rng() % 3);
    size_t longest = 0;
    for (std::string& s : stops) longest = std::max(longest, (s = word(1, 8)).size());
    const std::string text = word(0, 40);
    bool want_match = false;
    const std::string want = before_stop(text, stops, want_match);
    auto made = StopTexts::create(stops);
    ASSERT_TRUE(made.is_ok());
    std::string got;
    for (size_t at = 0; at < text.size() && !made->matched();) {
      const size_t n = std::min<size_t>(rng() % 5, text.size() - at);
      got += made->push(text.substr(at, n));
      at += n;
      ASSERT_EQ(got, text.substr(0, got.size()));
      // Nothing is held that could not become a stop text.
      if (!made->matched()) {
        ASSERT_LT(at - got.size(), longest);
      }
    }
    if (!made->matched()) got += made->finish();
    ASSERT_EQ(made->matched(), want_match);
    ASSERT_EQ(got, want);
    (want_match ? matches : none)++;
  }
  EXPECT_GT(matches, 1000);
  EXPECT_GT(none, 1000);
}

TEST(StopTexts, HoldBackNothingThatIsDecided) {
  auto stops = StopTexts::create({"\n\nQ:"});
  ASSERT_TRUE(stops.is_ok());
  EXPECT_EQ(stops->push("yes\n"), "yes");
  EXPECT_EQ(stops->push("\n"), "");
  EXPECT_EQ(stops->push("\n"), "\n");  // three: the first is none of it
  EXPECT_EQ(stops->push("P"), "\n\nP");
  EXPECT_EQ(stops->push("\n\nQ"), "");
  EXPECT_EQ(stops->finish(), "\n\nQ");
  EXPECT_FALSE(stops->matched());
  EXPECT_EQ(StopTexts::create({"a", ""}).status().code(), BLEND_E_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace blend

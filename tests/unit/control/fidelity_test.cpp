#include "control/fidelity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "support/random_model.h"

namespace blend {
namespace {

constexpr uint32_t kFirst = 5;  // the rung where fuses of which nothing is known begin: 0.3

// Answers of a model whose agreement at each rung is known. Prompts differ: one in three is a hard
// one, which has most of the disagreement.
class Answers {
 public:
  explicit Answers(uint64_t seed) : random_(seed) {}

  CheckedAnswer next(double agreement) {
    CheckedAnswer answer;
    answer.n_tokens = 8 + static_cast<uint32_t>(random_.below(25));
    const double miss = (1 - agreement) * (uniform() < 1.0 / 3 ? 2.5 : 0.25);
    for (uint32_t i = 0; i < answer.n_tokens; ++i) answer.n_agree += uniform() < miss ? 0 : 1;
    return answer;
  }

 private:
  double uniform() { return static_cast<double>(random_.below(1u << 30)) / (1u << 30); }
  test::SplitMix random_;
};

using Curve = std::array<double, kLadder.size()>;  // agreement by rung

struct Walk {
  std::array<uint32_t, kLadder.size()> stayed{};  // checks by rung, of the second half
  uint32_t moves = 0;                             // of the second half
  uint32_t last = 0;
  uint32_t highest = 0;
};

Walk walk(const Curve& curve, double target, uint32_t n_checks, uint64_t seed) {
  Answers answers(seed);
  FidelityRecord record;
  record.follow(target, kFirst);
  Walk out;
  for (uint32_t i = 0; i < n_checks; ++i) {
    const double ratio = record.ratio(target, kFirst);
    const uint32_t before = rung_of(ratio);
    record.observe(ratio, answers.next(curve[before]));
    const uint32_t after = rung_of(record.ratio(target, kFirst));
    EXPECT_LE(after > before ? after - before : before - after, 1u) << "a rung at a time";
    out.highest = std::max(out.highest, after);
    if (i < n_checks / 2) continue;
    ++out.stayed[before];
    out.moves += after != before ? 1 : 0;
  }
  out.last = rung_of(record.ratio(target, kFirst));
  return out;
}

TEST(FidelityLadder, AShortPromptTakesALargerShare) {
  EXPECT_EQ(share_of(0.2, 800), 0.2);
  EXPECT_EQ(share_of(0.2, 20000), 0.2);
  // 160 to 200 rows of them down to 310, then the same share.
  EXPECT_NEAR(share_of(0.2, 600), 0.317, 1e-3);
  EXPECT_NEAR(share_of(0.2, 450), std::sqrt(0.2), 1e-12);
  EXPECT_NEAR(share_of(0.2, 310), 0.617, 1e-3);
  for (const uint64_t n : {0u, 1u, 200u, 309u})
    EXPECT_NEAR(share_of(0.2, n), share_of(0.2, 310), 1e-12);
  EXPECT_EQ(share_of(0, 10), 0);
  EXPECT_EQ(share_of(1, 10), 1);
  for (const double rung : kLadder) {
    for (const uint64_t n : {0u, 1u, 200u, 500u, 799u, 800u, 5000u}) {
      EXPECT_NEAR(usual_share(share_of(rung, n), n), rung, 1e-12) << rung << " of " << n;
    }
  }
  EXPECT_EQ(usual_share(2, 100), 1) << "rounded up";
}

TEST(FidelityLadder, BeginsSafeAndNamesTheNearestRung) {
  EXPECT_EQ(FidelityRecord().ratio(0.98, kFirst), 0.3);
  EXPECT_EQ(rung_of(0), 0u);
  EXPECT_EQ(rung_of(usual_share(0.2, 250)), 1u);
  EXPECT_EQ(rung_of(0.16), 3u);
  EXPECT_EQ(rung_of(0.29), 5u);
  EXPECT_EQ(rung_of(1), 8u);
}

TEST(FidelityLadder, FindsTheLeastRatioThatKeepsTheTarget) {
  //                        0    .05   .1   .15   .2   .3   .45   .6    1
  const Curve curves[] = {{.90, .94, .96, .97, .990, .995, .997, .998, 1},
                          {.60, .70, .75, .80, .85, .90, .93, .995, 1},
                          {.995, .996, .997, .998, .999, .999, 1, 1, 1}};
  const uint32_t least[] = {4, 7, 0};
  for (size_t c = 0; c < std::size(curves); ++c) {
    uint64_t there = 0, below = 0, all = 0, moves = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const Walk w = walk(curves[c], 0.98, 3000, seed);
      for (uint32_t i = 0; i < w.stayed.size(); ++i) {
        all += w.stayed[i];
        if (i == least[c]) there += w.stayed[i];
        if (i < least[c]) below += w.stayed[i];
      }
      moves += w.moves;
    }
    EXPECT_GE(static_cast<double>(there), 0.9 * static_cast<double>(all)) << c;
    EXPECT_LE(static_cast<double>(below), 0.05 * static_cast<double>(all)) << c;
    // 20 walks of 1500 checks.
    EXPECT_LE(moves, 200u) << c << ": it goes to and fro";
  }
}

TEST(FidelityLadder, ALadderWithoutAGoodRungEndsAtTheTop) {
  Curve bad;
  bad.fill(0.9);
  bad.back() = 1;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const Walk w = walk(bad, 0.98, 600, seed);
    EXPECT_GE(w.stayed.back(), 200u) << seed;
  }
}

TEST(FidelityLadder, OneBadBatchDoesNotMoveItToTheTop) {
  FidelityRecord record;
  record.follow(0.98, kFirst);
  for (int i = 0; i < 5; ++i) record.observe(record.ratio(0.98, kFirst), {24, 6, 0, 0});
  EXPECT_EQ(record.ratio(0.98, kFirst), 0.3) << "five answers are no evidence";
  for (int i = 0; i < 5; ++i) record.observe(record.ratio(0.98, kFirst), {24, 6, 0, 0});
  EXPECT_EQ(record.ratio(0.98, kFirst), 0.45) << "a rung, not more";
  for (int i = 0; i < 400; ++i) record.observe(record.ratio(0.98, kFirst), {24, 24, 0, 0});
  EXPECT_LE(record.ratio(0.98, kFirst), 0.05) << "and back, when all is well";
}

TEST(FidelityLadder, FollowsAChange) {
  FidelityRecord record;
  record.follow(0.98, kFirst);
  Answers answers(7);
  for (int i = 0; i < 600; ++i) record.observe(record.ratio(0.98, kFirst), answers.next(0.997));
  EXPECT_EQ(record.ratio(0.98, kFirst), 0);
  const auto worse = [&] { return record.ratio(0.98, kFirst) < 0.25 ? 0.93 : 0.997; };
  for (int i = 0; i < 600; ++i) record.observe(record.ratio(0.98, kFirst), answers.next(worse()));
  EXPECT_EQ(record.ratio(0.98, kFirst), 0.3);
}

TEST(FidelityLadder, AChecksOwnRungIsWhatItSpeaksFor) {
  FidelityRecord record;
  record.follow(0.98, kFirst);
  for (int i = 0; i < 50; ++i) record.observe(0.15, {24, 0, 0, 0});
  EXPECT_EQ(record.ratio(0.98, kFirst), 0.3) << "a fuse of the host's own ratio";
  EXPECT_EQ(record.rungs[rung_of(0.15)].n_checks, 50u) << "which is counted all the same";
}

TEST(FidelityLadder, TargetsMoveApart) {
  FidelityRecord record;
  EXPECT_TRUE(record.follow(0.98, kFirst));
  EXPECT_TRUE(record.follow(0.9, kFirst));
  EXPECT_FALSE(record.follow(0.98, kFirst));
  for (int i = 0; i < 100; ++i) record.observe(record.ratio(0.9, kFirst), {25, 24, 0, 0});  // .96
  EXPECT_LT(record.ratio(0.9, kFirst), 0.3);
  EXPECT_GE(record.ratio(0.98, kFirst), 0.3);
  for (const double target : {0.91, 0.92, 0.93, 0.94}) record.follow(target, kFirst);
  EXPECT_EQ(record.states.size(), FidelityRecord::kMostTargets);
}

TEST(FidelityEvidence, TheIntervalHoldsTheTruthAsOftenAsItSays) {
  int held = 0, all = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Answers answers(seed);
    Evidence e;
    for (int i = 0; i < 60; ++i) e.add(answers.next(0.95));
    const Interval interval = e.interval(1.96);
    ++all;
    held += interval.low <= 0.95 && 0.95 <= interval.high ? 1 : 0;
  }
  // Tokens as independent witnesses: about 84 %.
  EXPECT_GE(held, all * 92 / 100);
  EXPECT_LE(held, all * 99 / 100) << "wider than it need be";
}

TEST(FidelityEvidence, AnswersThatDifferFromEachOtherCountForLess) {
  Evidence even, uneven;
  for (int i = 0; i < 40; ++i) {
    even.add({20, 19, 0, 0});
    uneven.add({20, i % 20 == 0 ? 0u : 20u, 0, 0});
  }
  EXPECT_NEAR(even.agreement(), 0.95, 0.01);
  EXPECT_NEAR(uneven.agreement(), 0.95, 0.01);
  const Interval a = even.interval(1.96), b = uneven.interval(1.96);
  EXPECT_GT(b.high - b.low, 1.5 * (a.high - a.low));
}

TEST(FidelityEvidence, NothingSeenIsNothingKnown) {
  const Interval nothing = Evidence().interval(1.96);
  EXPECT_EQ(nothing.low, 0);
  EXPECT_EQ(nothing.high, 1);
}

TEST(FidelityEvidence, ForgetsWhatIsLongAgo) {
  RungRecord r;
  for (int i = 0; i < 1000; ++i) r.add({10, 5, 1, 2.0});
  for (int i = 0; i < 1000; ++i) r.add({10, 10, 1, 0.0});
  EXPECT_EQ(r.n_checks, 2000u);
  EXPECT_EQ(r.n_tokens, 20000u);
  EXPECT_GT(r.evidence.agreement(), 0.98);
  EXPECT_LT(r.mean_kl(), 0.1);
  EXPECT_LE(r.evidence.checks, 256.5f);
}

FidelityRecord some_record() {
  FidelityRecord record;
  Answers answers(3);
  record.follow(0.98, kFirst);
  record.follow(0.9, kFirst);
  for (int i = 0; i < 300; ++i) {
    CheckedAnswer a = answers.next(0.96);
    a.n_kl = 8;
    a.kl = 0.02;
    record.observe(record.ratio(0.98, kFirst), a);
  }
  return record;
}

std::optional<FidelityRecord> decoded(const std::string& bytes) {
  return FidelityRecord::decode(std::as_bytes(std::span(bytes)));
}

TEST(FidelityRecord, ComesBackAsItWas) {
  const FidelityRecord record = some_record();
  const std::string bytes = record.encode();
  EXPECT_LE(bytes.size(), 1024u) << "of a note";
  const auto back = decoded(bytes);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(*back, record);
  EXPECT_TRUE(decoded(FidelityRecord().encode())->empty());
}

TEST(FidelityRecord, DamageIsIgnored) {
  const std::string bytes = some_record().encode();
  EXPECT_FALSE(decoded("").has_value());
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(decoded(bytes.substr(0, n)).has_value());
  EXPECT_FALSE(decoded(bytes + "x").has_value());
  // The tokens of the first rung's evidence, as no sum of them can be.
  constexpr size_t kTokens = 4 + 4 + 8 + 8 + 4;
  for (const float f : {-1.0f, std::nanf(""), HUGE_VALF}) {
    std::string wrong = bytes;
    std::memcpy(wrong.data() + kTokens, &f, sizeof f);
    EXPECT_FALSE(decoded(wrong).has_value()) << f;
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string flipped = bytes;
    flipped[i] = static_cast<char>(~flipped[i]);
    const auto back = decoded(flipped);
    if (!back.has_value()) continue;
    // A record accepted as sound computes with finite numbers and stays on the ladder.
    for (const RungRecord& r : back->rungs) {
      const Interval at = r.evidence.interval(1.96);
      EXPECT_TRUE(at.low >= 0 && at.high <= 1 && at.low <= at.high) << i;
    }
    FidelityRecord on = *back;
    for (int k = 0; k < 20; ++k) on.observe(on.ratio(0.98, kFirst), {24, 0, 0, 0});
    EXPECT_LE(on.ratio(0.98, kFirst), 1) << i;
  }
}

}  // namespace
}  // namespace blend

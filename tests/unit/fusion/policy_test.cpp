#include "fusion/policy/policy.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "control/pass_cost.h"

namespace blend {
namespace {

TEST(RecomputeBudget, RoundsUpButNotRoundingErrors) {
  EXPECT_EQ(recompute_budget(0.15, 120), 18u);
  EXPECT_EQ(recompute_budget(0.15, 121), 19u);
  EXPECT_EQ(recompute_budget(0.0, 1000), 0u);
  EXPECT_EQ(recompute_budget(1.0, 1000), 1000u);
  EXPECT_EQ(recompute_budget(0.05, 1), 1u);
  EXPECT_EQ(recompute_budget(0.15, 0), 0u);
  for (size_t n = 0; n <= 100000; n += 100) {
    // 0.07 * n is whole for these n, but not in binary floating point.
    EXPECT_EQ(recompute_budget(0.07, n), n / 100 * 7) << n;
  }
}

const PolicySettings kUnweighed{.weighed = false};

std::unique_ptr<SelectionPolicy> of(Policy policy, const PolicySettings& settings = {}) {
  auto made = make_policy(policy, settings);
  EXPECT_TRUE(made.is_ok()) << made.status().message();
  return made.is_ok() ? std::move(*made) : nullptr;
}

// Policies on a prompt of three chunks, 0..3, 4..9 and 10..11, and a question, 12..13.
class PolicyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto pool = ThreadPool::create(2);
    ASSERT_TRUE(pool.is_ok());
    pool_ = std::move(*pool);
    auto backend = make_cpu_backend(*pool_);
    ASSERT_TRUE(backend.is_ok());
    backend_ = std::move(*backend);
    uint32_t first = 0;
    for (const uint32_t n : {4u, 6u, 2u, 2u}) {
      PromptSegment s;
      s.kind = first < 12 ? SegmentKind::chunk : SegmentKind::question;
      s.first_row = first;
      s.n_rows = n;
      prompt_.segments.push_back(std::move(s));
      first += n;
    }
    prompt_.tokens.assign(first, 0);
  }
  std::vector<uint32_t> choose(const std::unique_ptr<SelectionPolicy>& policy,
                               const std::vector<uint32_t>& candidates, size_t budget) {
    const ChoicePoint at{*backend_, prompt_, 1, deviation_, attention_};
    auto picked = policy->choose(at, candidates, budget);
    EXPECT_TRUE(picked.is_ok()) << picked.status().message();
    return picked.is_ok() ? *picked : std::vector<uint32_t>{};
  }
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Backend> backend_;
  Prompt prompt_;
  std::vector<float> deviation_ = std::vector<float>(14, 1.0f);
  std::vector<float> attention_ = std::vector<float>(14, 0.1f);
};

using Rows = std::vector<uint32_t>;

TEST_F(PolicyTest, HkvdTakesTheLargestOfTheCandidatesOnly) {
  deviation_ = {9.0f, 1.0f, 5.0f, 8.0f, 2.0f, 7.0f};
  EXPECT_EQ(choose(of(Policy::hkvd, kUnweighed), {1, 2, 4, 5}, 2), (Rows{2, 5}));
}

// A chunk's source whose rows were seen.
std::unique_ptr<ChunkSource> seen(const std::vector<RowImpact>& impact) {
  auto record = std::make_shared<ChunkRecord>();
  record->meta.impact = impact;
  return make_memory_source(std::move(record));
}

TEST_F(PolicyTest, ContextImpactIsOutsideTimesInside) {
  prompt_.segments[0].chunk = seen({{.9f, .1f}, {.5f, .5f}, {.1f, .9f}, {0, 1}});
  prompt_.segments[1].chunk = seen(std::vector<RowImpact>(6, {.4f, .4f}));
  EXPECT_EQ(choose(of(Policy::context_impact), {0, 1, 2, 3, 4, 5}, 3), (Rows{1, 4, 5}));
  EXPECT_TRUE(of(Policy::context_impact)->needs().nothing());
  const ChoicePoint at{*backend_, prompt_, 0, {}, {}};
  const Rows others{1, 10};
  const auto refused = of(Policy::context_impact)->choose(at, others, 1);
  EXPECT_EQ(refused.status().code(), BLEND_E_NOT_FOUND) << "the third chunk has no statistics";
  EXPECT_TRUE(choose(of(Policy::context_impact), {1, 2}, 1) == Rows{1}) << "unless it is not asked";
}

TEST_F(PolicyTest, WeighedHkvdTakesWhereTheErrorIsRead) {
  deviation_ = {16, 9, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  prompt_.segments[0].chunk = seen({{0, .1f}, {0, .1f}, {0, .2f}, {0, .4f}});
  // Roots: .4, .3, .4, .4; squares would be 1.6, .9, .8, .4.
  EXPECT_EQ(choose(of(Policy::hkvd, {.norm = DeviationNorm::l2}), {0, 1, 2, 3}, 3),
            (Rows{0, 2, 3}));
  EXPECT_EQ(choose(of(Policy::hkvd, {.norm = DeviationNorm::l1}), {0, 1, 2, 3}, 2), (Rows{0, 1}));
  // Not seen: as if it was attended to evenly, (1 + 1/2) / 2 = .75 and 1/2.
  deviation_[10] = 0.2f;
  deviation_[11] = 0.4f;
  EXPECT_EQ(choose(of(Policy::hkvd, {.norm = DeviationNorm::l1}), {2, 10, 11}, 2), (Rows{2, 11}));
  deviation_[10] = 0.3f;
  EXPECT_EQ(choose(of(Policy::hkvd, {.norm = DeviationNorm::l1}), {10, 11}, 1), (Rows{10}));
}

TEST_F(PolicyTest, TiesGoToTheEarlierRow) {
  EXPECT_EQ(choose(of(Policy::hkvd, kUnweighed), {3, 4, 5, 6}, 2), (Rows{3, 4}));
}

TEST_F(PolicyTest, ABudgetPastTheCandidatesTakesThemAll) {
  for (const Policy policy : {Policy::hkvd, Policy::first_k, Policy::question}) {
    EXPECT_EQ(choose(of(policy, kUnweighed), {0, 2}, 7), (Rows{0, 2}));
    EXPECT_TRUE(choose(of(policy, kUnweighed), {}, 3).empty());
    EXPECT_TRUE(choose(of(policy, kUnweighed), {0}, 0).empty());
  }
}

TEST_F(PolicyTest, FirstKGoesByTheShareOfTheChunk) {
  const Rows all{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  EXPECT_EQ(choose(of(Policy::first_k), all, 3), (Rows{0, 4, 10})) << "one of each first";
  EXPECT_EQ(choose(of(Policy::first_k), all, 4), (Rows{0, 4, 5, 10})) << "then of the longest";
  EXPECT_EQ(choose(of(Policy::first_k), all, 6), (Rows{0, 1, 4, 5, 6, 10}));
  // A row that another term has taken does not make the next one the first of its chunk.
  EXPECT_EQ(choose(of(Policy::first_k), {1, 2, 3, 4, 5}, 2), (Rows{4, 5}));
}

TEST_F(PolicyTest, QuestionWeighsDeviationByAttention) {
  deviation_ = {4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  attention_ = {.1f, .2f, .1f, .9f, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(choose(of(Policy::question, kUnweighed), {0, 1, 2, 3, 4, 5}, 2), (Rows{1, 3}));
  EXPECT_TRUE(of(Policy::question, kUnweighed)->needs().question_attention);
}

TEST_F(PolicyTest, AttentionTakesSomeRowsOfEveryChunk) {
  attention_ = {.01f, .02f, .03f, .04f, .9f, .9f, .9f, .9f, .9f, .9f, .05f, .06f, 1, 1};
  const Rows all{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  EXPECT_EQ(choose(of(Policy::attention), all, 2), (Rows{4, 5})) << "too few for one of each";
  EXPECT_EQ(choose(of(Policy::attention), all, 4), (Rows{3, 4, 5, 11}));
  EXPECT_EQ(choose(of(Policy::attention), all, 9), (Rows{1, 2, 3, 4, 5, 6, 7, 10, 11}))
      << "three of each that has them, and one where the question looks";
  prompt_.segments[1].n_rows = 0;  // no rows of it are candidates
  EXPECT_EQ(choose(of(Policy::attention), {0, 1, 2, 3, 10, 11}, 3), (Rows{3, 10, 11}));
}

TEST_F(PolicyTest, AttentionTakesWhatTheQuestionAttendsToAndReadsNothingElse) {
  deviation_.clear();
  attention_[3] = 0.5f;
  attention_[8] = 0.4f;
  attention_[9] = 0.9f;  // no candidate
  attention_[10] = 0.3f;
  EXPECT_EQ(choose(of(Policy::attention), {1, 2, 3, 8, 10}, 3), (Rows{3, 8, 10}));
  EXPECT_EQ(choose(of(Policy::attention), {1, 2, 3, 8, 10}, 4), (Rows{1, 3, 8, 10}))
      << "then the earlier";
  const Needs needs = of(Policy::attention)->needs();
  EXPECT_EQ(needs.asks, Asks::middle);
  EXPECT_FALSE(needs.deviation || needs.question_attention || needs.nothing());
}

// Two terms that ask at other layers would need two answers.
TEST_F(PolicyTest, AUnionAsksOnce) {
  FuseOptions options;
  const auto code = [&](std::vector<PolicyTerm> terms) {
    options.terms = std::move(terms);
    return make_selection_policy(Policy::combined, options).status().code();
  };
  EXPECT_EQ(code({{Policy::attention, 1}, {Policy::first_k, 1}}), BLEND_OK);
  EXPECT_EQ(code({{Policy::probe, 1}, {Policy::cascade, 1}}), BLEND_OK);
  EXPECT_EQ(code({{Policy::attention, 1}, {Policy::probe, 1}}), BLEND_E_INVALID_ARGUMENT);
  EXPECT_EQ(code({{Policy::cascade, 1}, {Policy::attention, 1}}), BLEND_E_INVALID_ARGUMENT);
  EXPECT_EQ(code({{Policy::attention, 1}, {Policy::hkvd, 1}}), BLEND_E_INVALID_ARGUMENT);
  ASSERT_EQ(code({{Policy::random, 1}, {Policy::attention, 1}}), BLEND_OK);
  EXPECT_EQ((*make_selection_policy(Policy::combined, options))->needs().asks, Asks::middle);
}

TEST_F(PolicyTest, UnionSplitsTheBudgetByTheShares) {
  deviation_ = {0, 0, 0, 9, 0, 0, 0, 0, 8, 7, 0, 6, 0, 0};
  const auto make = [](double first_k, double hkvd) {
    std::vector<UnionTerm> terms;
    terms.push_back({of(Policy::first_k), first_k});
    terms.push_back({of(Policy::hkvd, kUnweighed), hkvd});
    return make_union(std::move(terms));
  };
  const Rows all{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  EXPECT_EQ(choose(make(1, 1), all, 4), (Rows{0, 3, 4, 8}));
  EXPECT_EQ(choose(make(1, 3), all, 4), (Rows{0, 3, 8, 9}));
  EXPECT_EQ(choose(make(30, 10), all, 4), (Rows{0, 3, 4, 10}));
  EXPECT_EQ(choose(make(1, 1), all, 100), all);
  for (size_t budget = 0; budget <= all.size(); ++budget) {
    EXPECT_EQ(choose(make(1, 2.7), all, budget).size(), budget);
  }
}

// The makers' policies have the needs that the table states.
TEST(PolicyRegistry, EveryRowIsMadeAsItSays) {
  const PolicySettings settings{.score = [](auto, auto, auto, auto) { return 0; }};
  std::set<uint32_t> codes;
  std::set<std::string_view> names;
  for (const PolicyEntry& e : kPolicies) {
    SCOPED_TRACE(e.name);
    EXPECT_TRUE(codes.insert(e.code()).second && names.insert(e.name).second);
    EXPECT_EQ(find_policy(e.code()), &e);
    auto made = make_policy(e.policy, settings);
    ASSERT_TRUE(made.is_ok());
    ASSERT_EQ(*made != nullptr, e.ranks);
    EXPECT_TRUE(!e.ranks || (*made)->needs() == e.needs);
    FuseOptions options;
    options.terms = {{e.policy, 1}};
    options.score = settings.score;
    EXPECT_EQ(make_selection_policy(Policy::combined, options).is_ok(),
              e.has(policy_table::kJoins));
  }
  EXPECT_EQ(find_policy(kLastPolicy + 1), nullptr);
  EXPECT_FALSE(policy_entry(Policy::automatic).has(policy_table::kJoins)) << "auto is no term";
  EXPECT_FALSE(make_policy(Policy::callback, {}).is_ok());
}

// "| `name` | ..." of the section's first table.
std::set<std::string> documented_policies() {
  std::ifstream file(BLEND_TEST_SOURCE_DIR "/../docs/fusion.md");
  std::set<std::string> names;
  bool here = false;
  for (std::string line; std::getline(file, line);) {
    if (line == "## Policies") here = true;
    if (here && line.starts_with("| `")) names.insert(line.substr(3, line.find('`', 3) - 3));
    if (!names.empty() && !line.starts_with("|")) break;
  }
  return names;
}

TEST(PolicyRegistry, TheDocumentationNamesEveryPolicyAndNoOther) {
  std::set<std::string> names;
  for (const PolicyEntry& e : kPolicies) names.emplace(e.name);
  EXPECT_EQ(documented_policies(), names);
}

TEST_F(PolicyTest, FullAndReuseAreNoPolicies) {
  for (const Policy policy : {Policy::full, Policy::reuse}) {
    auto made = make_selection_policy(policy, {});
    ASSERT_TRUE(made.is_ok());
    EXPECT_EQ(*made, nullptr);
  }
}

}  // namespace
}  // namespace blend

#include "fusion/select.h"

#include <gtest/gtest.h>

#include <vector>

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

class SelectRows : public ::testing::Test {
 protected:
  void SetUp() override {
    auto pool = ThreadPool::create(2);
    ASSERT_TRUE(pool.is_ok());
    pool_ = std::move(*pool);
    auto backend = make_cpu_backend(*pool_);
    ASSERT_TRUE(backend.is_ok());
    backend_ = std::move(*backend);
  }
  std::vector<uint32_t> select(const std::vector<uint32_t>& candidates,
                               const std::vector<float>& deviation, size_t budget) {
    auto picked = select_rows(*backend_, candidates, deviation, budget);
    EXPECT_TRUE(picked.is_ok());
    return *picked;
  }
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Backend> backend_;
};

TEST_F(SelectRows, TakesTheLargestOfTheCandidatesOnly) {
  const std::vector<float> deviation{9.0f, 1.0f, 5.0f, 8.0f, 2.0f, 7.0f};
  EXPECT_EQ(select({1, 2, 4, 5}, deviation, 2), (std::vector<uint32_t>{2, 5}));
}

TEST_F(SelectRows, TiesGoToTheEarlierRow) {
  EXPECT_EQ(select({3, 4, 5, 6}, std::vector<float>(8, 1.0f), 2), (std::vector<uint32_t>{3, 4}));
}

TEST_F(SelectRows, ABudgetPastTheCandidatesTakesThemAll) {
  EXPECT_EQ(select({0, 2}, {1.0f, 1.0f, 1.0f}, 7), (std::vector<uint32_t>{0, 2}));
  EXPECT_TRUE(select({}, {1.0f}, 3).empty());
  EXPECT_TRUE(select({0}, {1.0f}, 0).empty());
}

}  // namespace
}  // namespace blend

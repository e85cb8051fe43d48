#include "fusion/request/schedule.h"

#include <gtest/gtest.h>

namespace blend {
namespace {

TEST(MeanRatio, CountsTheLayersThatEachCheckHoldsFor) {
  // Layers 0 .. 9: layer 9's rows are only the prompt's last, whatever the schedule.
  EXPECT_DOUBLE_EQ(mean_ratio(Schedule{{1, 0.3}}, 10), 0.3);
  EXPECT_DOUBLE_EQ(mean_ratio(Schedule{{1, 0.5}, {5, 0.1}}, 10), 0.3);
  EXPECT_DOUBLE_EQ(mean_ratio(Schedule{{1, 0.6}, {3, 0.2}}, 10), (2 * 0.6 + 6 * 0.2) / 8);
  EXPECT_DOUBLE_EQ(mean_ratio(Schedule{{9, 0.6}}, 10), 0.6) << "nothing is after it";
}

TEST(FallingSchedule, FallsAndHasTheMean) {
  for (const uint32_t n_layers : {1u, 2u, 3u, 4u, 7u, 16u, 32u, 80u}) {
    for (uint32_t first = 0; first < n_layers; first += 1 + n_layers / 5) {
      for (const uint32_t n_checks : {1u, 2u, 3u, 5u, 100u}) {
        for (const double ratio : {0.0, 0.01, 0.15, 0.5, 0.8, 0.99, 1.0}) {
          SCOPED_TRACE(testing::Message() << n_layers << " layers, from " << first << ", "
                                          << n_checks << " checks, ratio " << ratio);
          const Schedule s = falling_schedule(ratio, first, n_checks, n_layers);
          ASSERT_FALSE(s.empty());
          EXPECT_LE(s.size(), n_checks);
          EXPECT_EQ(s.front().layer, first);
          EXPECT_TRUE(check_schedule(s, first, n_layers).is_ok())
              << check_schedule(s, first, n_layers).message();
          EXPECT_NEAR(mean_ratio(s, n_layers), ratio, 1e-12);
          if (s.size() > 1 && ratio > 0 && ratio < 1) {
            EXPECT_GT(s.front().ratio, ratio);
            EXPECT_LT(s.back().ratio, ratio);
          }
        }
      }
    }
  }
}

TEST(FallingSchedule, IsEvenlySpacedAndAsSteepAsItSays) {
  const Schedule s = falling_schedule(0.2, 1, 3, 16);  // layers 1 .. 14 in three parts
  ASSERT_EQ(s.size(), 3u);
  EXPECT_EQ(s[0].layer, 1u);
  EXPECT_EQ(s[1].layer, 5u);
  EXPECT_EQ(s[2].layer, 10u);
  EXPECT_NEAR(s[0].ratio - s[2].ratio, 0.2, 1e-12) << "from 1.5 to 0.5 of the mean";
}

TEST(CheckSchedule, TheSentenceNamesTheEntry) {
  const auto message = [](const Schedule& s) { return check_schedule(s, 1, 8).message(); };
  EXPECT_EQ(message({{1, 0.5}, {3, 0.5}, {7, 0.0}}), "");
  EXPECT_NE(message({{1, 0.5}, {8, 0.5}}).find("check_layers 1: layer 8"), std::string::npos);
  EXPECT_NE(message({{0, 0.5}}).find("check_layers 0: layer 0"), std::string::npos);
  EXPECT_NE(message({{1, 0.5}, {2, 0.6}}).find("check_layers 1: ratio 0.6"), std::string::npos);
}

}  // namespace
}  // namespace blend

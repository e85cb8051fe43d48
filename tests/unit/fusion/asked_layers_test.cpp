#include "fusion/request/asked_layers.h"

#include <gtest/gtest.h>

namespace blend {
namespace {

TEST(AskedLayers, LeaveOutASixthAtEitherEnd) {
  struct Case {
    uint32_t n_layers, first, last;
  };
  for (const Case& c : {Case{2, 0, 1}, Case{3, 0, 2}, Case{5, 0, 4}, Case{6, 1, 4}, Case{7, 1, 5},
                        Case{12, 2, 9}, Case{18, 3, 14}, Case{30, 5, 24}, Case{32, 5, 26}}) {
    const LayerRange asked = asked_layers(Asks::middle, c.n_layers);
    EXPECT_EQ(asked.first, c.first) << c.n_layers;
    EXPECT_EQ(asked.last, c.last) << c.n_layers;
  }
}

TEST(AskedLayers, EarlyIsLayer1OfAnyModel) {
  for (const uint32_t n_layers : {2u, 6u, 80u}) {
    const LayerRange asked = asked_layers(Asks::early, n_layers);
    EXPECT_EQ(asked.first, 1u);
    EXPECT_EQ(asked.size(), 1u);
  }
}

TEST(AskedLayers, HaveBothTheirEnds) {
  const LayerRange asked{2, 4};
  EXPECT_EQ(asked.size(), 3u);
  EXPECT_FALSE(asked.has(1));
  EXPECT_TRUE(asked.has(2));
  EXPECT_TRUE(asked.has(4));
  EXPECT_FALSE(asked.has(5));
}

}  // namespace
}  // namespace blend

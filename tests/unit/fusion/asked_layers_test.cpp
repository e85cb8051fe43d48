#include "fusion/request/asked_layers.h"

#include <gtest/gtest.h>

#include "model/config.h"

namespace blend {
namespace {

TEST(AskedLayers, LeaveOutASixthAtEitherEnd) {
  struct Case {
    uint32_t n_layers, first, last;
  };
  for (const Case& c : {Case{2, 0, 1}, Case{3, 0, 2}, Case{5, 0, 4}, Case{6, 1, 4}, Case{7, 1, 5},
                        Case{12, 2, 9}, Case{18, 3, 14}, Case{30, 5, 24}, Case{32, 5, 26}}) {
    const LayerRange asked = asked_layers(Asks::middle, c.n_layers, {});
    EXPECT_EQ(asked.first, c.first) << c.n_layers;
    EXPECT_EQ(asked.last, c.last) << c.n_layers;
  }
}

TEST(AskedLayers, EarlyIsLayer1OfAnyModel) {
  for (const uint32_t n_layers : {2u, 6u, 80u}) {
    const LayerRange asked = asked_layers(Asks::early, n_layers, {});
    EXPECT_EQ(asked.first, 1u);
    EXPECT_EQ(asked.size(), 1u);
  }
}

// Qwen3.5: each fourth layer attends, and the states before the first reach as far as attention.
TEST(AskedLayers, KnowOfStatesThatReachFar) {
  RowMixer deltas{.kind = RowMixer::Kind::delta, .layers = std::vector<bool>(24, true)};
  for (size_t i = 3; i < 24; i += 4) deltas.layers[i] = false;
  EXPECT_EQ(dependent_layer(deltas, 24, 1), 3u);
  EXPECT_EQ(dependent_layer(deltas, 24, 4), 7u);
  EXPECT_EQ(asked_layers(Asks::early, 24, deltas).last, 3u);
  const LayerRange middle = asked_layers(Asks::middle, 24, deltas);
  EXPECT_EQ(middle.first, 4u);
  EXPECT_EQ(middle.last, 19u);
}

// LFM2-350M: layers 2, 5, 8, 10, 12 and 14 of sixteen attend.
TEST(AskedLayers, EndWhereALayerAttends) {
  RowMixer convolves{.kind = RowMixer::Kind::conv, .layers = std::vector<bool>(16, true)};
  for (const size_t i : {2, 5, 8, 10, 12, 14}) convolves.layers[i] = false;
  const LayerRange middle = asked_layers(Asks::middle, 16, convolves);
  EXPECT_EQ(middle.first, 2u);
  EXPECT_EQ(middle.last, 12u);
  const LayerRange early = asked_layers(Asks::early, 16, convolves);
  EXPECT_EQ(early.first, 5u) << "the first that attends after another";
  EXPECT_EQ(early.last, 5u);
  EXPECT_EQ(dependent_layer(convolves, 16, 1), 5u);
  EXPECT_EQ(dependent_layer(convolves, 16, 6), 8u);
  EXPECT_EQ(dependent_layer(convolves, 16, 15), 16u);
  EXPECT_EQ(dependent_layer({}, 16, 1), 1u);
  // One attending layer, which is all there is to ask: at the end, and before all that is looked
  // at.
  for (const size_t only : {15, 0}) {
    RowMixer one{.kind = RowMixer::Kind::conv, .layers = std::vector<bool>(16, true)};
    one.layers[only] = false;
    for (const Asks what : {Asks::early, Asks::middle}) {
      const LayerRange asked = asked_layers(what, 16, one);
      EXPECT_EQ(asked.last, only);
      EXPECT_LE(asked.first, asked.last);
    }
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

// What is counted as work in layers that do not attend, or do more than attend and feed.
#include "fusion/correct/work.h"

#include <gtest/gtest.h>

#include <array>

namespace blend {
namespace {

ModelConfig config_of(RowMixer::Kind kind) {
  ModelConfig c;
  c.n_layers = 2;
  c.d_model = 10;
  c.n_heads = 2;
  c.n_kv_heads = 1;
  c.head_dim = 4;
  c.d_ff = 7;
  c.mixer.kind = kind;
  c.mixer.taps = 3;
  c.mixer.layers = {true, false};
  if (c.mixer.scans()) {
    c.attn_gate = kind == RowMixer::Kind::delta;
    c.mixer.k_heads = 1;
    c.mixer.v_heads = 2;
    c.mixer.k_dim = 3;
    c.mixer.v_dim = 5;
  }
  return c;
}

double kv_flops(const ModelConfig& c, uint32_t layer, size_t rows) {
  Work work(c);
  work.add_kv(layer, rows);
  return work.flops();
}

double layer_flops(const ModelConfig& c, uint32_t layer, std::span<const uint32_t> rows) {
  Work work(c);
  work.add_layer(layer, rows);
  return work.flops();
}

constexpr std::array<uint32_t, 2> kRows = {4, 9};
constexpr double kFeed = 2 * 2 * 3 * 10 * 7;  // of two rows

TEST(Work, ConvolutionsAreFourSquares) {
  const ModelConfig c = config_of(RowMixer::Kind::conv);
  EXPECT_EQ(kv_flops(c, 0, 3), 3 * 2 * 10 * 20);
  EXPECT_EQ(layer_flops(c, 0, kRows), 2 * 2 * 10 * 20 + kFeed);
  EXPECT_EQ(kv_flops(c, 1, 3), 3 * 2 * 10 * 8);
  EXPECT_EQ(layer_flops(c, 1, kRows), 2 * 2 * 10 * 16 + kFeed + (5 + 10) * 4 * 8);
}

// Two rows are computed, and ten pass through the states.
TEST(Work, AStateIsOfAllRowsBefore) {
  const ModelConfig c = config_of(RowMixer::Kind::delta);
  const double row = 2 * 3 + 2 * 5 + 2 * 2;
  EXPECT_EQ(kv_flops(c, 0, 3), 3 * 2 * 10 * row);
  EXPECT_EQ(layer_flops(c, 0, kRows), 2 * 2 * 10 * 20 + kFeed + 10 * 5 * 10 * 3);
  // Q, its gate and the output.
  EXPECT_EQ(layer_flops(c, 1, kRows), 2 * 2 * 10 * 24 + kFeed + (5 + 10) * 4 * 8);
}

TEST(Work, AMamba2ReadsNothingFromItsState) {
  const ModelConfig c = config_of(RowMixer::Kind::ssm);
  const double row = 2 * 3 + 2 * 5 + 2;
  EXPECT_EQ(kv_flops(c, 0, 3), 3 * 2 * 10 * row);
  EXPECT_EQ(layer_flops(c, 0, kRows), 2 * 2 * 10 * 20 + kFeed + 10 * 3 * 10 * 3);
}

// Three of five experts with two matrices of a row of 6, which two others make and take; and a
// shared one.
TEST(Work, ExpertsMayReadNarrowerRows) {
  ModelConfig c = config_of(RowMixer::Kind::none);
  c.activation = Activation::relu2;
  c.experts.count = 5;
  c.experts.used = 3;
  c.experts.d_ff = 4;
  c.experts.shared_d_ff = 8;
  c.experts.latent = 6;
  const double fed = 2 * (3 * 6 * 4 + 10 * 8) + 2 * 10 * 6 + 10 * 5;
  EXPECT_EQ(layer_flops(c, 1, kRows), 2 * 2 * (10 * 16 + fed) + (5 + 10) * 4 * 8);
}

// A layer's own embedding, Laurel, and four streams, which layer 0 is given and the logits take.
TEST(Work, RowsMayHaveStreamsAndMoreThanTwoBlocks) {
  ModelConfig c = config_of(RowMixer::Kind::none);
  c.mixer = {};
  c.n_vocab = 100;
  c.input_dim = 4;
  c.laurel_rank = 3;
  c.n_streams = 4;
  const double others = 2 * 2 * 10 * (3 * 4 + 2 * 3 + 4 * 4 + 2 * 4);
  const double layer = 2 * 2 * 10 * 16 + kFeed + (5 + 10) * 4 * 8 + others;
  EXPECT_EQ(layer_flops(c, 1, kRows), layer);
  EXPECT_EQ(layer_flops(c, 0, kRows), layer + 2 * 2 * 3 * 10 * 10);
  Work work(c);
  work.add_logits();
  EXPECT_EQ(work.flops(), 2 * 10 * 100 + 2 * 3 * 10 * 10);
}

}  // namespace
}  // namespace blend

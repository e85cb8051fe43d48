#include "control/pass_cost.h"

#include "fusion/run/fuse.h"
#include "fusion/select/selection.h"
#include "support/engine_fixture.h"
#include "support/fake_store.h"

namespace blend {
namespace {

// Text of 4 tokens, chunks of 20 and 12, a question of 5: neither chunk is exact.
class ExpectedPassTest : public test::EngineTest {
 protected:
  Fused fuse_by(Policy policy, double ratio) {
    FuseRequest request;
    request.segments = {{SegmentKind::text, tokens(4, 1), {}},
                        {SegmentKind::chunk, tokens(20, 2), {}},
                        {SegmentKind::chunk, tokens(12, 3), {}},
                        {SegmentKind::question, tokens(5, 4), {}}};
    request.options.policy = policy;
    request.options.ratio = RatioRequest::fixed(ratio);
    auto fused = fuse(model_, {&store_, true, DType::f32}, request);
    EXPECT_TRUE(fused.is_ok()) << fused.status().message();
    return std::move(*fused);
  }
  test::FakeStore store_;
  const RowCounts rows_{.n_always = 9, .n_reused = 32, .n_candidates = 32, .n_exact = 0};
};

// Counted by the fuses themselves.
TEST_F(ExpectedPassTest, RowsAreThoseThatAFuseComputes) {
  const uint32_t n_layers = model_->config().n_layers;
  struct Case {
    Policy policy;
    Schedule schedule;
    std::optional<uint32_t> asks_upto = {};
  };
  ASSERT_EQ(n_layers, 4u);
  for (const Case& c :
       {Case{Policy::hkvd, {{1, 0.25}}}, Case{Policy::first_k, {{0, 0.25}}},
        Case{Policy::cascade, {{0, 0.5}, {1, 0.25}}, 1}, Case{Policy::attention, {{0, 0.25}}, 3}}) {
    const uint32_t asked = c.asks_upto.value_or(0);
    SCOPED_TRACE(static_cast<uint32_t>(c.policy));
    const Fused fused = fuse_by(c.policy, 0.25);
    const std::vector<LayerRows> rows = rows_by_layer(c.schedule, c.asks_upto, rows_, n_layers);
    ASSERT_EQ(rows.size(), fused.layers.size());
    uint64_t kv = 0, rest = 0, fused_kv = 0, fused_rest = 0, again = 0;
    for (uint32_t i = 0; i < n_layers; ++i) {
      if (!c.asks_upto) {
        EXPECT_EQ(rows[i].n_kv, fused.layers[i].rows_kv) << i;
        EXPECT_EQ(rows[i].n_rest, fused.layers[i].rows_full) << i;
      }
      if (i > 1 && i >= asked) {
        EXPECT_EQ(32 - rows[i].n_chosen, fused.layers[i].rows_placed) << i;
      }
      kv += rows[i].n_kv, fused_kv += fused.layers[i].rows_kv;
      rest += rows[i].n_rest, fused_rest += fused.layers[i].rows_full;
      again += fused.layers[i].rows_asked;
    }
    // The rows that ask go through the layers before the last that is asked, and have K, V there.
    // The text, which stands before all chunks, is not computed again where more than layer 1 is
    // asked, and that is not expected.
    const uint64_t known = asked > 1 ? 4 : 0;
    EXPECT_EQ(again, c.asks_upto ? asked * (9 - known) + 9 : 0);
    EXPECT_EQ(kv, fused_kv + again + asked * known);
    EXPECT_EQ(rest, fused_rest + asked * 9);
  }
}

// If the budget is none of the candidates, or all of them, the question's attention is not read.
TEST_F(ExpectedPassTest, NobodyAsksWhatIsSettled) {
  EXPECT_FALSE(asking_matters({}, 32, 32));
  EXPECT_FALSE(asking_matters(Schedule{{0, 0.0}}, 32, 32));
  EXPECT_FALSE(asking_matters(Schedule{{0, 1.0}}, 32, 32));
  EXPECT_TRUE(asking_matters(Schedule{{0, 0.9}}, 32, 32));
  EXPECT_TRUE(asking_matters(Schedule{{0, 1.0}, {1, 0.5}}, 32, 32));
  EXPECT_FALSE(asking_matters(Schedule{{0, 0.5}}, 32, 16)) << "16 are all there are";
  for (const double ratio : {0.0, 1.0}) {
    const Schedule schedule{{0, ratio}};
    const auto asked = rows_by_layer(schedule, 3, rows_, 4);
    const auto plain = rows_by_layer(schedule, {}, rows_, 4);
    for (uint32_t i = 0; i < 4; ++i) {
      EXPECT_EQ(asked[i].n_kv, plain[i].n_kv) << i;
      EXPECT_EQ(asked[i].n_rest, plain[i].n_rest) << i;
      EXPECT_EQ(asked[i].n_chosen, plain[i].n_chosen) << i;
    }
  }
}

TEST_F(ExpectedPassTest, WhatIsComputedBeforeTheFirstLoadedLayerHidesLoading) {
  const uint32_t n_layers = model_->config().n_layers;
  const auto layers = rows_by_layer(Schedule{{1, 0.25}}, {}, rows_, n_layers);
  const RowCost row{.kv_s = 0.1, .rest_s = 0.9, .place_s = 0};
  const PassCost free = pass_cost(layers, rows_, row, {}, 1);
  EXPECT_DOUBLE_EQ(free.seconds, free.compute_s);
  // Layer 0 is computed for 41 rows, and the K, V of layer 1: 45.1 s.
  const PassCost hidden =
      pass_cost(layers, rows_, row, {.exact_s = 0, .stale_s = 5, .latency_s = 40}, 1);
  EXPECT_NEAR(hidden.seconds, free.seconds, 1e-9);
  const PassCost late =
      pass_cost(layers, rows_, row, {.exact_s = 0, .stale_s = 5, .latency_s = 50}, 1);
  EXPECT_NEAR(late.seconds, free.seconds + 55 - 45.1, 1e-9);
  EXPECT_NEAR(late.load_s, 50 + 5 * (n_layers - 1), 1e-9);
}

TEST_F(ExpectedPassTest, ARowCostsItsShareOfAPrefill) {
  const ModelConfig& config = model_->config();
  const RowCost row = RowCost::of(config, 200, 3);
  const RowCounts all{.n_always = 200};
  const auto layers = rows_by_layer({}, {}, all, config.n_layers);
  EXPECT_NEAR(pass_cost(layers, all, row, {}, 0).seconds, 3, 1e-9);
  EXPECT_NEAR(computed_seconds(layers, row), 3, 1e-9);
}

// Three layers by hand, every term of its own size. Computed: 8 + 215, 16 + 108 and 10 + 28 s, of
// which what comes before a wait counts for the layer before.
TEST(PassCost, IsTheLongerOfLoadingAndComputingLayerByLayer) {
  const LayerRows layers[] = {{.n_kv = 10, .n_ahead = 4, .n_rest = 10, .n_chosen = 6},
                              {.n_kv = 8, .n_ahead = 8, .n_rest = 5, .n_chosen = 3},
                              {.n_kv = 5, .n_ahead = 5, .n_rest = 1, .n_chosen = 3}};
  const RowCounts rows{.n_always = 2, .n_reused = 8, .n_candidates = 8, .n_exact = 3};
  const RowCost row{.kv_s = 1, .rest_s = 10, .place_s = 0.5};
  const auto cost = [&](double stale_s) {
    const LoadCost load{.exact_s = 7, .stale_s = stale_s, .latency_s = 5};
    return pass_cost(layers, rows, row, load, 1, 2);
  };
  const PassCost computing = cost(20);
  EXPECT_NEAR(computing.load_s, 12 + 27 + 27, 1e-9);
  EXPECT_NEAR(computing.compute_s, 385, 1e-9);
  EXPECT_NEAR(computing.seconds, 12 + 385, 1e-9) << "only the first layer is waited for";
  EXPECT_NEAR(cost(200).seconds, 12 + 207 + 207 + 28, 1e-9) << "the last one is";
  EXPECT_NEAR(computed_seconds(layers, row), 23 + 160, 1e-9);
}

// Counted by hand. A row of 8 numbers, two heads of 4 for Q and one for K and V, 16 in between: K
// and V are 64 products, Q and what follows attention 128, the feed-forward 384, and attention to
// half of ten rows 80.
TEST(RowCost, SplitsALayerByItsProducts) {
  ModelConfig config;
  config.n_layers = 3;
  config.d_model = 8;
  config.n_heads = 2;
  config.n_kv_heads = 1;
  config.head_dim = 4;
  config.d_ff = 16;
  const RowCost row = RowCost::of(config, 10, 1);
  EXPECT_NEAR(row.rest_s / row.kv_s, 592.0 / 64, 1e-9);
  EXPECT_EQ(row.place_s, 0);
  EXPECT_EQ(RowCost::of(config, 0, 1).kv_s, 0);
}

// One row reads a quarter of four experts, two rows 7/16 of them, and many rows all: a row of few
// costs more than one of many.
TEST(RowCost, OfExpertsFallsWithTheRows) {
  ModelConfig config;
  config.n_layers = 3;
  config.d_model = 8;
  config.n_heads = 2;
  config.n_kv_heads = 1;
  config.head_dim = 4;
  config.d_ff = 16;
  const RowCost dense = RowCost::of(config, 10, 1);
  config.experts.count = 4;
  config.experts.used = 1;
  config.experts.d_ff = 16;
  const RowCost row = RowCost::of(config, 10, 1);
  // A row's products are those of a dense layer.
  EXPECT_NEAR(row.rest_s / row.kv_s, dense.rest_s / dense.kv_s, 1e-9);
  EXPECT_NEAR(row.rest(1), row.rest_s + row.experts_s / 4, 1e-12);
  EXPECT_NEAR(row.rest(2), 2 * row.rest_s + row.experts_s * 7 / 16, 1e-12);
  EXPECT_NEAR(row.rest(4, 2), 2 * row.rest(2), 1e-12) << "two layers of two rows each";
  EXPECT_NEAR(row.rest(1000), 1000 * row.rest_s + row.experts_s, 1e-12);
  // A prefill takes what it takes.
  const auto layers = rows_by_layer({}, {}, {.n_always = 10}, config.n_layers);
  EXPECT_NEAR(computed_seconds(layers, row), 1, 1e-9);
  EXPECT_EQ(dense.rest(7), 7 * dense.rest_s);
  // A layer without experts reads none.
  config.experts.dense = {true, false, false};
  EXPECT_NEAR(RowCost::of(config, 10, 1).experts_s / RowCost::of(config, 10, 1).kv_s,
              row.experts_s / row.kv_s * 2 / 3, 1e-9);
}

}  // namespace
}  // namespace blend

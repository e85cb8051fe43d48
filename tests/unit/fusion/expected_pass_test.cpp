#include "fusion/expected_pass.h"

#include "fusion/fuse.h"
#include "fusion/selection.h"
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
    request.options.ratio = RatioChoice::fixed(ratio);
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
    bool probes;
  };
  for (const Case& c :
       {Case{Policy::hkvd, {{1, 0.25}}, false}, Case{Policy::first_k, {{0, 0.25}}, false},
        Case{Policy::cascade, {{0, 0.5}, {1, 0.25}}, true}}) {
    SCOPED_TRACE(static_cast<uint32_t>(c.policy));
    const Fused fused = fuse_by(c.policy, 0.25);
    const std::vector<LayerRows> rows = rows_by_layer(c.schedule, c.probes, rows_, n_layers);
    ASSERT_EQ(rows.size(), fused.layers.size());
    uint64_t kv = 0, rest = 0, fused_kv = 0, fused_rest = 0;
    for (uint32_t i = 0; i < n_layers; ++i) {
      if (!c.probes) {
        EXPECT_EQ(rows[i].n_kv, fused.layers[i].rows_kv) << i;
        EXPECT_EQ(rows[i].n_rest, fused.layers[i].rows_full) << i;
      }
      if (i > 1) {
        EXPECT_EQ(32 - rows[i].n_chosen, fused.layers[i].rows_placed) << i;
      }
      kv += rows[i].n_kv, fused_kv += fused.layers[i].rows_kv;
      rest += rows[i].n_rest, fused_rest += fused.layers[i].rows_full;
    }
    // The question's rows ask through layer 0 and the K, V of layer 1; the account has only what
    // was computed after it.
    EXPECT_EQ(kv, fused_kv + (c.probes ? 2 * 9 : 0));
    EXPECT_EQ(rest, fused_rest + (c.probes ? 9 : 0));
  }
}

TEST_F(ExpectedPassTest, WhatIsComputedBeforeTheFirstLoadedLayerHidesLoading) {
  const uint32_t n_layers = model_->config().n_layers;
  const auto layers = rows_by_layer(Schedule{{1, 0.25}}, false, rows_, n_layers);
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
  EXPECT_NEAR(pass_cost(rows_by_layer({}, false, all, config.n_layers), all, row, {}, 0).seconds, 3,
              1e-9);
}

}  // namespace
}  // namespace blend

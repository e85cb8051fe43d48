#include "fusion/run/pass.h"

#include <cmath>
#include <cstring>

#include "engine/precompute.h"
#include "support/engine_fixture.h"
#include "support/fake_store.h"
#include "support/resolved.h"
#include "support/slots.h"

namespace blend {
namespace {

using RowList = std::vector<uint32_t>;

// Text of 4 tokens, chunks of 12 and 9, a question of 5: neither chunk is exact.
class PassTest : public test::EngineTest {
 protected:
  static constexpr uint32_t kRows = 30;

  void SetUp() override {
    EngineTest::SetUp();
    segments_ = {{SegmentKind::text, tokens(4, 1), {}},
                 {SegmentKind::chunk, tokens(12, 2), {}},
                 {SegmentKind::chunk, tokens(9, 3), {}},
                 {SegmentKind::question, tokens(5, 4), {}}};
    n_layers_ = model_->config().n_layers;
    options_.reserve_tokens = 0;
  }

  // One pass over all layers, as a batch of one drives it. `between` is called before each layer.
  Fused run(const std::function<void(uint32_t, const Selection&)>& between = {}) {
    Fused out;
    const ResolvedFuse how = test::resolved(options_, n_layers_);
    PromptBuilder builder(*model_, &store_, true, DType::f32, options_, how);
    prompt_ = std::move(*builder.build(segments_, {}, {}));
    const Stopwatch clock;
    LayerSession session(model_->backend(), model_->config(), prompt_, how, options_.deviation,
                         clock);
    EXPECT_TRUE(session.begin().is_ok());
    Pass pass(model_, prompt_, options_, how, session, clock, out);
    LayerFeed feed(model_->backend(), n_layers_, clock);
    auto view = feed.subscribe(prompt_, session.selection().first_stored_layer());
    EXPECT_TRUE(feed.start(kUsualRingDepth).is_ok());
    EXPECT_TRUE(pass.prepare(*view).is_ok());
    for (uint32_t layer = 0; layer < n_layers_; ++layer) {
      if (between) between(layer, session.selection());
      const Status status = pass.layer(layer, {});
      EXPECT_TRUE(status.is_ok()) << status.message();
    }
    EXPECT_TRUE(pass.finish().is_ok());
    session.report(options_, 0, out);
    EXPECT_EQ(out.sequence->n_rows(), 0u);  // until the commit it is as before
    pass.commit();
    return out;
  }
  // K before RoPE | V of every row of the cache at `layer`.
  std::vector<float> cache_rows(Fused& fused, uint32_t layer) {
    Backend& b = model_->backend();
    const auto cols = static_cast<int64_t>(2 * model_->config().kv_dim());
    auto buffer = std::move(*b.allocate(kRows * static_cast<size_t>(cols) * sizeof(float)));
    const Tensor kv{buffer->data(), kRows, cols, b.traits().activation_bytes};
    EXPECT_TRUE(b.fusion()
                    .read_kv(fused.sequence->cache(), layer, fused.sequence->ropes().keys(layer),
                             test::slots_from(0, kRows).data(), kv)
                    .is_ok());
    const auto* at = static_cast<const float*>(buffer->data());
    return {at, at + kRows * cols};
  }
  // The same of the whole prompt prefilled, or of each chunk prefilled alone.
  std::vector<float> prefilled_rows(uint32_t layer, bool alone) {
    std::vector<float> rows;
    std::vector<int32_t> all;
    for (const Segment& s : segments_) {
      if (alone) append_rows(*s.tokens, layer, rows);
      all.insert(all.end(), s.tokens->begin(), s.tokens->end());
    }
    if (!alone) append_rows(all, layer, rows);
    return rows;
  }
  void append_rows(const std::vector<int32_t>& tokens, uint32_t layer, std::vector<float>& rows) {
    const auto record =
        *precompute_chunk(*model_, {}, describe_chunk(*model_, DType::f32, {}, "", tokens), {});
    const size_t dim = model_->config().kv_dim();
    for (size_t row = 0; row < tokens.size(); ++row) {
      for (const std::byte* plane : {record->k(layer), record->v(layer)}) {
        const size_t at = rows.size();
        rows.resize(at + dim);
        std::memcpy(&rows[at], plane + row * dim * sizeof(float), dim * sizeof(float));
      }
    }
  }
  // The largest difference within one row.
  float distance(const std::vector<float>& a, const std::vector<float>& b, uint32_t row) const {
    const size_t cols = 2 * size_t{model_->config().kv_dim()};
    float most = 0;
    for (size_t i = row * cols; i < (row + 1) * cols; ++i) {
      most = std::max(most, std::fabs(a[i] - b[i]));
    }
    return most;
  }
  static float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    float most = 0;
    for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::fabs(a[i] - b[i]));
    return most;
  }

  test::FakeStore store_;
  std::vector<Segment> segments_;
  FuseOptions options_;
  uint32_t n_layers_ = 0;
  Prompt prompt_;
};

constexpr float kNothing = 2e-3f;    // what rounding does to K, V and logits here
constexpr float kSomething = 1e-2f;  // what a wrong row does at least

TEST_F(PassTest, AllRowsComputedAreAFullPrefill) {
  options_.ratio = RatioRequest::fixed(1.0);
  const Fused all = run();
  options_.policy = Policy::full;
  const Fused full = run();
  EXPECT_LT(largest_difference(all.sequence->logits(), full.sequence->logits()), kNothing);
  // The engine decodes the last token to the same logits.
  const int32_t last = segments_.back().tokens->back();
  segments_.back().tokens->pop_back();
  options_.reserve_tokens = 1;
  const Fused decoded = run();
  ASSERT_TRUE(decoded.sequence->append({&last, 1}, {}).is_ok());
  EXPECT_LT(largest_difference(decoded.sequence->logits(), full.sequence->logits()), kNothing);
  segments_.back().tokens->push_back(last);
  options_.policy = Policy::reuse;
  const Fused reused = run();
  EXPECT_GT(largest_difference(reused.sequence->logits(), full.sequence->logits()), kSomething);
}

TEST_F(PassTest, RowsAreFreshUpToTheCheckLayerAndStoredBehindItUnlessTheyGoOn) {
  options_.ratio = RatioRequest::fixed(0.2);  // of 21: 5 rows
  Fused fused = run();
  ASSERT_EQ(fused.selected.size(), 5u);
  for (uint32_t layer = 0; layer < n_layers_; ++layer) {
    const std::vector<float> rows = cache_rows(fused, layer);
    const std::vector<float> full = prefilled_rows(layer, false);
    const std::vector<float> alone = prefilled_rows(layer, true);
    for (uint32_t row = 4; row < 25; ++row) {
      const bool chosen = std::binary_search(fused.selected.begin(), fused.selected.end(), row);
      if (layer <= options_.check_layer) {
        EXPECT_LT(distance(rows, full, row), kNothing) << layer << " " << row;
      } else if (!chosen) {
        EXPECT_LT(distance(rows, alone, row), kNothing) << layer << " " << row;
      } else if (layer == options_.check_layer + 1) {
        // All that it attended to so far was fresh.
        EXPECT_LT(distance(rows, full, row), kNothing) << layer << " " << row;
      } else {
        EXPECT_GT(distance(rows, alone, row), kNothing) << layer << " " << row;
      }
    }
  }
}

TEST_F(PassTest, WhatIsComputedShrinksAtTheCheckLayersAndTheAccountSaysSo) {
  options_.check_layers = {{1, 0.5}, {2, 0.2}};
  std::vector<RowList> active;
  const Fused fused = run([&](uint32_t, const Selection& s) { active.push_back(s.active()); });
  ASSERT_EQ(active.size(), 4u);
  const size_t sizes[] = {30, 30, 9 + 11, 9 + 5};
  for (uint32_t layer = 0; layer < 4; ++layer) {
    EXPECT_EQ(active[layer].size(), sizes[layer]) << layer;
    EXPECT_EQ(fused.layers[layer].layer, layer);
    EXPECT_EQ(fused.layers[layer].rows_kv, sizes[layer]);
    EXPECT_EQ(fused.layers[layer].rows_full, layer == 3 ? 1 : sizes[layer + 1]);
  }
  EXPECT_EQ(fused.layers[1].rows_placed, 0u);
  EXPECT_EQ(fused.layers[2].rows_placed, 10u);
  EXPECT_EQ(fused.layers[3].rows_placed, 16u);
  EXPECT_EQ(fused.layers[0].bytes_loaded, 0u) << "nothing is needed before it is measured";
  EXPECT_EQ(fused.selected.size(), 5u);
  EXPECT_TRUE(std::includes(active[2].begin(), active[2].end(), fused.selected.begin(),
                            fused.selected.end()));
  ASSERT_EQ(fused.deviation.size(), kRows);
  for (uint32_t row = 0; row < kRows; ++row) {
    EXPECT_EQ(fused.deviation[row] > 0, row >= 4 && row < 25) << row;
  }
}

// The rows of x must be those of the active rows, whatever was dropped before.
TEST_F(PassTest, TheLastRowIsThatOfThePromptWhateverWasDropped) {
  options_.policy = Policy::random;
  options_.ratio = RatioRequest::fixed(0.3);
  const Fused before = run();
  options_.check_layers = {{0, 0.3}, {1, 0.3}};
  const Fused again = run();
  EXPECT_EQ(before.selected, again.selected);
  EXPECT_EQ(largest_difference(before.sequence->logits(), again.sequence->logits()), 0.0f)
      << "a check layer that drops nothing changes nothing";
}

TEST_F(PassTest, ACancelledPassStopsInItsLayer) {
  CancelToken cancel;
  const ResolvedFuse how = test::resolved(options_, n_layers_);
  PromptBuilder builder(*model_, &store_, true, DType::f32, options_, how);
  prompt_ = std::move(*builder.build(segments_, {}, {}));
  const Stopwatch clock;
  LayerSession session(model_->backend(), model_->config(), prompt_, how, options_.deviation,
                       clock);
  ASSERT_TRUE(session.begin().is_ok());
  Fused out;
  Pass pass(model_, prompt_, options_, how, session, clock, out);
  LayerFeed feed(model_->backend(), n_layers_, clock);
  auto view = feed.subscribe(prompt_, session.selection().first_stored_layer());
  ASSERT_TRUE(feed.start(kUsualRingDepth).is_ok());
  ASSERT_TRUE(pass.prepare(*view).is_ok());
  EXPECT_TRUE(pass.layer(0, {&cancel, {}}).is_ok());
  cancel.request();
  EXPECT_EQ(pass.layer(1, {&cancel, {}}).code(), BLEND_E_CANCELLED);
}

}  // namespace
}  // namespace blend

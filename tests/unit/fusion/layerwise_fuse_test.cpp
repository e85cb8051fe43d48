#include "fusion/steps/layerwise_fuse.h"

#include <cmath>
#include <cstring>

#include "engine/precompute.h"
#include "support/engine_fixture.h"
#include "support/fake_store.h"

namespace blend {
namespace {

using RowList = std::vector<uint32_t>;

// Text of 4 tokens, chunks of 12 and 9, a question of 5. The host's model is the engine's: its
// fresh K and V are those of a full prefill, which they are at the first check layer.
class LayerwiseFuseTest : public test::EngineTest {
 protected:
  static constexpr uint32_t kRows = 30;
  static constexpr float kUntouched = 1e9f;

  void SetUp() override {
    EngineTest::SetUp();
    segments_ = {{SegmentKind::text, tokens(4, 1), {}},
                 {SegmentKind::chunk, tokens(12, 2), {}},
                 {SegmentKind::chunk, tokens(9, 3), {}},
                 {SegmentKind::question, tokens(5, 4), {}}};
    for (const Segment& s : segments_) all_.insert(all_.end(), s.tokens->begin(), s.tokens->end());
    full_ = prefill(all_);
    kv_dim_ = model_->config().kv_dim();
    n_layers_ = model_->config().n_layers;
    options_.ratio = RatioRequest::fixed(0.2);  // of 21: 5 rows
    target_.assign(2 * size_t{kRows} * kv_dim_, kUntouched);
  }
  std::shared_ptr<const ChunkRecord> prefill(const std::vector<int32_t>& tokens) {
    return *precompute_chunk(*model_, {}, describe_chunk(*model_, DType::f32, {}, "", tokens), {});
  }
  Result<FuseJob> job(const CancelToken* cancel = nullptr) {
    FuseJob out{{segments_, options_, {cancel, {}}}, {}, {}};
    BLEND_ASSIGN(out.fuse, resolve(out.request, {.n_layers = n_layers_, .steps = true}));
    return out;
  }
  std::unique_ptr<LayerwiseFuse> create() {
    StoreAccess access;
    access.store = store_.get();
    access.kv_dtype = DType::f32;
    auto plan = LayerwiseFuse::create(model_, store_, access, *job());
    EXPECT_TRUE(plan.is_ok()) << plan.status().message();
    return plan.is_ok() ? std::move(*plan) : nullptr;
  }
  int32_t refusal() {
    StoreAccess access;
    access.store = store_.get();
    auto resolved = job();
    if (!resolved.is_ok()) return resolved.status().code();
    return LayerwiseFuse::create(model_, store_, access, *resolved).status().code();
  }
  HostKv view(float* k, float* v) const {
    const ModelConfig& c = model_->config();
    return {reinterpret_cast<std::byte*>(k),
            reinterpret_cast<std::byte*>(v),
            DType::f32,
            false,
            kv_dim_,
            c.head_dim,
            c.n_kv_heads,
            c.head_dim};
  }
  HostKv target() { return view(target_.data(), target_.data() + size_t{kRows} * kv_dim_); }
  Status fetch_and_synchronize(LayerwiseFuse& plan, uint32_t layer) {
    target_.assign(target_.size(), kUntouched);
    BLEND_RETURN_IF_ERROR(plan.fetch(layer, target()));
    return plan.synchronize(layer);
  }
  // Selects with the fresh K and V of the plan's rows.
  Status select(LayerwiseFuse& plan, uint32_t layer) {
    std::vector<float> k, v;
    for (const uint32_t row : plan.rows()) {
      append(full_->k(layer), row, k);
      append(full_->v(layer), row, v);
    }
    const HostKv fresh = view(k.data(), v.data());
    return plan.select(layer, &fresh);
  }
  void append(const std::byte* plane, uint32_t row, std::vector<float>& out) const {
    const size_t at = out.size();
    out.resize(at + kv_dim_);
    std::memcpy(&out[at], plane + row * kv_dim_ * sizeof(float), kv_dim_ * sizeof(float));
  }
  // Whether the host's row holds what its chunk's prefill alone gave, or nothing was put there.
  enum class Row { stored, untouched, other };
  Row row_of_target(uint32_t layer, uint32_t row) {
    const bool first = row < 16;
    const auto record = prefill(*segments_[first ? 1 : 2].tokens);
    std::vector<float> k;
    append(record->k(layer), row - (first ? 4 : 16), k);
    const float* const at = &target_[size_t{row} * kv_dim_];
    if (at[0] == kUntouched) return Row::untouched;
    for (size_t i = 0; i < kv_dim_; ++i) {
      if (std::fabs(at[i] - k[i]) > 1e-4f) return Row::other;
    }
    return Row::stored;
  }
  Status take_layer(LayerwiseFuse& plan, uint32_t layer) {
    BLEND_RETURN_IF_ERROR(fetch_and_synchronize(plan, layer));
    BLEND_RETURN_IF_ERROR(select(plan, layer));
    return plan.commit(layer);
  }

  std::shared_ptr<test::FakeStore> store_ = std::make_shared<test::FakeStore>();
  std::vector<Segment> segments_;
  std::vector<int32_t> all_;
  std::shared_ptr<const ChunkRecord> full_;
  FuseOptions options_;
  uint32_t kv_dim_ = 0, n_layers_ = 0;
  std::vector<float> target_;  // K of all rows, then V
};

TEST_F(LayerwiseFuseTest, ChoosesTheRowsThatTheEngineDoes) {
  StoreAccess access;
  access.store = store_.get();
  access.kv_dtype = DType::f32;
  auto fused = fuse(model_, access, FuseRequest{segments_, options_, {}});
  ASSERT_TRUE(fused.is_ok()) << fused.status().message();
  const auto plan = create();
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->tokens(), all_);
  EXPECT_EQ(plan->rows().size(), kRows);
  for (uint32_t layer = 0; layer < n_layers_; ++layer) {
    ASSERT_TRUE(take_layer(*plan, layer).is_ok()) << layer;
  }
  const Fused& account = plan->account();
  EXPECT_EQ(account.selected, fused->selected);
  ASSERT_EQ(account.deviation.size(), fused->deviation.size());
  for (uint32_t row = 0; row < kRows; ++row) {
    EXPECT_NEAR(account.deviation[row], fused->deviation[row], 1e-3 * fused->deviation[row]);
  }
  for (uint32_t layer = 0; layer < n_layers_; ++layer) {
    EXPECT_EQ(account.layers[layer].rows_kv, fused->layers[layer].rows_kv) << layer;
    EXPECT_EQ(account.layers[layer].rows_full, fused->layers[layer].rows_full) << layer;
    EXPECT_EQ(account.layers[layer].rows_placed, fused->layers[layer].rows_placed) << layer;
  }
  const blend_fusion_report &a = account.info, &b = fused->info;
  EXPECT_EQ(a.flags, b.flags);
  EXPECT_EQ(a.ratio, b.ratio);
  EXPECT_EQ(a.check_layer, b.check_layer);
  EXPECT_EQ(a.n_rows_reused, b.n_rows_reused);
  EXPECT_EQ(a.n_rows_always, b.n_rows_always);
  EXPECT_EQ(a.n_rows_selected, b.n_rows_selected);
}

TEST_F(LayerwiseFuseTest, StoredRowsArePutBesideThoseTheHostComputes) {
  const auto plan = create();
  ASSERT_NE(plan, nullptr);
  ASSERT_TRUE(take_layer(*plan, 0).is_ok());
  ASSERT_TRUE(fetch_and_synchronize(*plan, 1).is_ok());
  for (uint32_t row = 4; row < 25; ++row) {
    EXPECT_EQ(row_of_target(1, row), Row::untouched) << "all are the host's up to the check layer";
  }
  ASSERT_TRUE(select(*plan, 1).is_ok());
  ASSERT_TRUE(plan->commit(1).is_ok());
  const RowList chosen = plan->account().selected;
  ASSERT_EQ(chosen.size(), 5u);
  ASSERT_TRUE(fetch_and_synchronize(*plan, 2).is_ok());
  for (uint32_t row = 4; row < 25; ++row) {
    const bool hosts = std::binary_search(chosen.begin(), chosen.end(), row);
    EXPECT_EQ(row_of_target(2, row), hosts ? Row::untouched : Row::stored) << row;
    EXPECT_EQ(std::binary_search(plan->rows().begin(), plan->rows().end(), row), hosts) << row;
  }
}

TEST_F(LayerwiseFuseTest, EveryCallHasItsTurn) {
  const auto plan = create();
  ASSERT_NE(plan, nullptr);
  const auto refused = [&](const Status& status, const char* due) {
    EXPECT_EQ(status.code(), BLEND_E_INVALID_ARGUMENT);
    EXPECT_NE(status.message().find(due), std::string::npos) << status.message();
  };
  refused(plan->synchronize(0), "blend_layerwise_fetch_kv of layer 0");
  refused(plan->commit(0), "blend_layerwise_fetch_kv of layer 0");
  ASSERT_TRUE(plan->fetch(0, target()).is_ok());
  refused(plan->fetch(0, target()), "blend_layerwise_synchronize of layer 0");
  refused(plan->fetch(2, target()), "blend_layerwise_synchronize of layer 0");
  ASSERT_TRUE(plan->fetch(1, target()).is_ok()) << "it may run ahead";
  refused(plan->commit(0), "blend_layerwise_synchronize of layer 0");
  ASSERT_TRUE(plan->synchronize(0).is_ok());
  ASSERT_TRUE(plan->commit(0).is_ok()) << "nothing is chosen there";
  ASSERT_TRUE(plan->synchronize(1).is_ok());
  refused(plan->commit(1), "blend_layerwise_select of layer 1");
  refused(plan->select(1, nullptr), "needs fresh K and V");
  ASSERT_TRUE(select(*plan, 1).is_ok()) << "a refused call changes nothing";
  refused(plan->select(1, nullptr), "blend_layerwise_commit of layer 1");
  ASSERT_TRUE(plan->commit(1).is_ok());
  for (uint32_t layer = 2; layer < n_layers_; ++layer) {
    ASSERT_TRUE(take_layer(*plan, layer).is_ok());
  }
  EXPECT_EQ(plan->rows(), RowList{kRows - 1}) << "after the last layer";
  refused(plan->fetch(n_layers_, target()), "blend_layerwise_close");
  refused(plan->restart(), "create another layerwise fuse");
}

TEST_F(LayerwiseFuseTest, ARestartForgetsWhatWasChosen) {
  const auto plan = create();
  ASSERT_NE(plan, nullptr);
  for (uint32_t layer = 0; layer < 3; ++layer) ASSERT_TRUE(take_layer(*plan, layer).is_ok());
  const RowList chosen = plan->account().selected;
  ASSERT_TRUE(plan->restart().is_ok());
  EXPECT_TRUE(plan->account().selected.empty());
  EXPECT_EQ(plan->rows().size(), kRows);
  for (uint32_t layer = 0; layer < n_layers_; ++layer) {
    ASSERT_TRUE(take_layer(*plan, layer).is_ok()) << layer;
  }
  EXPECT_EQ(plan->account().selected, chosen);
}

TEST_F(LayerwiseFuseTest, ACancelledWaitMayBeRepeated) {
  CancelToken cancel;
  StoreAccess access;
  access.store = store_.get();
  access.kv_dtype = DType::f32;
  auto plan = LayerwiseFuse::create(model_, store_, access, *job(&cancel));
  ASSERT_TRUE(plan.is_ok());
  ASSERT_TRUE((*plan)->fetch(0, target()).is_ok());
  ASSERT_TRUE((*plan)->synchronize(0).is_ok());
  cancel.request();
  EXPECT_EQ((*plan)->commit(0).code(), BLEND_E_CANCELLED);
  cancel.reset();
  EXPECT_TRUE((*plan)->commit(0).is_ok());
}

TEST_F(LayerwiseFuseTest, WhatOnlyTheEngineCanDoIsRefused) {
  options_.policy = Policy::question;
  EXPECT_EQ(refusal(), BLEND_E_UNSUPPORTED);
  options_.policy = Policy::ape;
  EXPECT_EQ(refusal(), BLEND_E_UNSUPPORTED);
  options_.policy = Policy::hkvd;
  // If the library does not prefill for a plan, the host computes the missing chunks.
  options_.on_miss = OnMiss::compute_store;
  EXPECT_EQ(refusal(), BLEND_OK);
}

}  // namespace
}  // namespace blend

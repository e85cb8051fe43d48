#include "fusion/run/layer_session.h"

#include <new>

#include "fusion/load/stored_rows.h"
#include "support/hand_prompt.h"
#include "support/resolved.h"

namespace blend {
namespace {

using RowList = std::vector<uint32_t>;

// Text 0..1, a chunk 2..7, a chunk 8..11, a question 12..13.
class LayerSessionTest : public test::HandPrompt {
 protected:
  void SetUp() override {
    options_.weighed = false;
    options_.ratio = RatioRequest::fixed(0.3);  // of 10: 3 rows
    config_.n_layers = kLayers;
    config_.n_heads = config_.n_kv_heads = 1;
    config_.head_dim = kKvDim;
    config_.d_model = config_.d_ff = 4;
    config_.n_vocab = 8;
    add_computed(SegmentKind::text, 2);
    add_stored(6);
    add_stored(4);
    add_computed(SegmentKind::question, 2);
  }
  std::unique_ptr<LayerSession> begin(
      Selection::Asking asking = Selection::Asking::where_it_matters) {
    auto made = std::make_unique<LayerSession>(
        *backend_, config_, prompt_, test::resolved(options_, kLayers), options_.deviation, clock_);
    EXPECT_TRUE(made->begin(asking).is_ok());
    made->start(prompt_.n_rows());
    return made;
  }
  // The stored rows that are not computed are put into place, as a driver does it.
  void place(LayerSession& s) {
    Placement placement;
    const auto& mask = s.computed();
    for (uint32_t row = 2; row < 12; ++row) placement.rows_placed += mask[row] == 0;
    placement.load.device_bytes = 10;
    if (!s.is_placed()) s.add_placement(placement);
    s.placed();
  }
  // Fresh K and V `distance[row]` above the stored ones.
  Status choose(LayerSession& s, const std::vector<float>& distance) {
    std::vector<float> values;
    for (const uint32_t row : s.rows()) {
      values.push_back(stored_value(s.layer(), row) + distance[row]);
    }
    const std::vector<size_t> segments = {1, 2};
    const StagedLayer staged = stage(segments, s.layer());
    const RowList rows = s.rows();
    return s.choose(fresh(values), stored_runs_among(prompt_, segments, staged, rows), {});
  }
  std::vector<float> rising() const {
    std::vector<float> out;
    for (uint32_t row = 0; row < prompt_.n_rows(); ++row) out.push_back(static_cast<float>(row));
    return out;
  }
  Fused report(const LayerSession& s) const {
    Fused out;
    s.report(options_, 0, out);
    return out;
  }
  void finish(LayerSession& s) {
    while (s.due() != LayerStep::done) {
      if (s.due() == LayerStep::place) place(s);
      ASSERT_EQ(s.due(), LayerStep::finish);
      s.finish_layer();
    }
  }

  ModelConfig config_;
  FuseOptions options_;
  Stopwatch clock_;
};

TEST_F(LayerSessionTest, ACheckLayerHasAStepMore) {
  options_.policy = Policy::hkvd;
  const auto s = begin();
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(s->layer(), layer);
    EXPECT_EQ(s->due(), LayerStep::place);
    EXPECT_EQ(s->all_go_on(), layer != 1 && layer + 1 != kLayers);
    place(*s);
    if (layer == 1) {
      EXPECT_EQ(s->due(), LayerStep::choose);
      EXPECT_TRUE(s->measures());
      ASSERT_TRUE(choose(*s, rising()).is_ok());
      EXPECT_EQ(s->rows(), (RowList{0, 1, 9, 10, 11, 12, 13}));
      EXPECT_EQ(s->computed()[8], 0);
      EXPECT_EQ(s->computed()[9], 1);
    }
    EXPECT_EQ(s->due(), LayerStep::finish);
    if (layer + 1 == kLayers) s->leave_last_row();
    s->finish_layer();
  }
  EXPECT_EQ(s->due(), LayerStep::done);
  const Fused out = report(*s);
  EXPECT_EQ(out.selected, (RowList{9, 10, 11}));
  const uint64_t kv[] = {14, 14, 7, 7, 7}, full[] = {14, 7, 7, 7, 1}, placed[] = {0, 0, 7, 7, 7};
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(out.layers[layer].layer, layer);
    EXPECT_EQ(out.layers[layer].rows_kv, kv[layer]) << layer;
    EXPECT_EQ(out.layers[layer].rows_full, full[layer]) << layer;
    EXPECT_EQ(out.layers[layer].rows_placed, placed[layer]) << layer;
  }
  EXPECT_EQ(out.info.bytes_from_device, 50u);
}

// The rows that a layer is gone through twice for count twice.
TEST_F(LayerSessionTest, AProbeGoesBackToTheFirstLayer) {
  options_.policy = Policy::attention;
  const auto s = begin();
  const uint32_t last = s->asked().last;
  ASSERT_GT(last, 1u);
  EXPECT_EQ(s->decided_upto(), last);
  for (uint32_t layer = 0; layer < last; ++layer) {
    EXPECT_TRUE(s->asking());
    EXPECT_EQ(s->rows(), (RowList{0, 1, 12, 13}));
    place(*s);
    s->finish_layer();
  }
  EXPECT_FALSE(s->all_go_on());
  place(*s);
  EXPECT_EQ(s->due(), LayerStep::probe);
  ASSERT_TRUE(s->probe(rising()).is_ok());
  EXPECT_FALSE(s->asking());
  EXPECT_EQ(s->layer(), 0u);
  EXPECT_EQ(s->due(), LayerStep::place);
  EXPECT_EQ(s->rows(), (RowList{0, 1, 7, 10, 11, 12, 13}));
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(s->is_placed(), layer < last) << layer;
    place(*s);
    s->finish_layer();
  }
  EXPECT_EQ(s->due(), LayerStep::done);
  const Fused out = report(*s);
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(out.layers[layer].rows_kv, 7u) << layer;
    EXPECT_EQ(out.layers[layer].rows_asked, layer <= last ? 4u : 0u) << layer;
    EXPECT_EQ(out.layers[layer].rows_placed, 7u) << layer;
    EXPECT_GE(out.layers[layer].compute_end_ns, out.layers[layer].compute_begin_ns) << layer;
  }
  EXPECT_EQ(out.info.bytes_from_device, 10u * kLayers) << "once a layer";
}

TEST_F(LayerSessionTest, TheLastAskedLayersTimeIsThatOfTheLayersThatComeAgain) {
  options_.policy = Policy::attention;
  const auto s = begin();
  const uint32_t last = s->asked().last;
  for (uint32_t layer = 0; layer < last; ++layer) {
    place(*s);
    s->finish_layer();
  }
  place(*s);
  const blend_layer_info first = s->layers()[0];
  ASSERT_TRUE(s->probe(rising()).is_ok());
  s->begin_layer();
  s->add_wait(5);
  place(*s);
  s->finish_layer();
  EXPECT_EQ(s->layers()[0].compute_begin_ns, first.compute_begin_ns);
  EXPECT_EQ(s->layers()[0].compute_end_ns, first.compute_end_ns);
  EXPECT_EQ(s->layers()[0].wait_ns, 0u);
  EXPECT_EQ(s->layers()[last].wait_ns, 5u);
  EXPECT_GT(s->finished_ns(), first.compute_end_ns);
  const uint64_t begin_of_last = s->layers()[last].compute_begin_ns;
  finish(*s);
  EXPECT_EQ(s->layers()[last].compute_begin_ns, begin_of_last);
  EXPECT_GT(s->layers()[last].compute_end_ns, s->layers()[last - 1].compute_end_ns);
}

TEST_F(LayerSessionTest, WhatIsKnownIsNotCountedTwice) {
  options_.policy = Policy::attention;
  double flops[2] = {};
  for (const size_t known : {size_t{0}, size_t{2}}) {
    const auto s = begin();
    for (uint32_t layer = 0; layer < s->asked().last; ++layer) {
      place(*s);
      s->finish_layer();
    }
    place(*s);
    ASSERT_TRUE(s->probe(rising()).is_ok());
    s->keep_known(known);
    EXPECT_EQ(s->n_known(), known);
    finish(*s);
    EXPECT_EQ(s->layers()[0].rows_asked, 4u - known);
    EXPECT_EQ(s->layers()[s->asked().last].rows_asked, 4u) << "of that one all rows come again";
    flops[known / 2] = report(*s).info.flops;
  }
  Work known(config_);
  for (uint32_t layer = 0; layer < begin()->asked().last; ++layer) {
    known.add_kv(layer, 2);
    known.add_layer(layer, RowList{0, 1});
  }
  EXPECT_EQ(flops[0] - flops[1], known.flops());
}

// A host's calls must not depend on what is stored.
TEST_F(LayerSessionTest, WhoAlwaysAsksDoesSoWithNothingToChooseAmong) {
  options_.policy = Policy::attention;
  prompt_.segments[1].exact = prompt_.segments[2].exact = true;
  EXPECT_FALSE(begin()->asking());
  const auto s = begin(Selection::Asking::always);
  EXPECT_TRUE(s->asking());
  for (uint32_t layer = 0; layer < s->asked().last; ++layer) {
    place(*s);
    s->finish_layer();
  }
  place(*s);
  ASSERT_EQ(s->due(), LayerStep::probe);
  ASSERT_TRUE(s->probe(rising()).is_ok());
  finish(*s);
  EXPECT_TRUE(report(*s).selected.empty());
}

TEST_F(LayerSessionTest, AFailedChoiceMayBeMadeAgain) {
  int32_t answer = 7;
  options_.policy = Policy::callback;
  options_.score = [&](uint32_t, auto, auto, auto) { return answer; };
  const auto s = begin();
  place(*s);
  s->finish_layer();
  place(*s);
  const RowList before = s->rows();
  const double flops = report(*s).info.flops;
  EXPECT_EQ(choose(*s, rising()).code(), BLEND_E_CALLBACK);
  EXPECT_EQ(s->due(), LayerStep::choose);
  EXPECT_EQ(s->rows(), before);
  EXPECT_EQ(report(*s).info.flops, flops);
  answer = 0;
  ASSERT_TRUE(choose(*s, rising()).is_ok());
  EXPECT_EQ(s->due(), LayerStep::finish);
}

TEST_F(LayerSessionTest, AChoiceThatThrowsHalfWayIsTheEnd) {
  options_.policy = Policy::callback;
  options_.score = [&](uint32_t, auto, auto, auto) -> int32_t { throw std::bad_alloc(); };
  const auto s = begin();
  place(*s);
  s->finish_layer();
  place(*s);
  EXPECT_THROW(static_cast<void>(choose(*s, rising())), std::bad_alloc);
  EXPECT_EQ(s->due(), LayerStep::broken);
}

}  // namespace
}  // namespace blend

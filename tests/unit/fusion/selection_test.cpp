#include "fusion/select/selection.h"

#include "fusion/load/stored_rows.h"
#include "fusion/resolve/auto_ratio.h"
#include "support/hand_prompt.h"
#include "support/resolved.h"

namespace blend {
namespace {

using RowList = std::vector<uint32_t>;

// Text 0..1, an exact chunk 2..3, a chunk 4..9, a miss 10, a chunk 11..14, a question 15..16.
class SelectionTest : public test::HandPrompt {
 protected:
  void SetUp() override {
    options_.weighed = false;
    add_computed(SegmentKind::text, 2);
    add_stored(2, true);
    add_stored(6);
    add_computed(SegmentKind::chunk, 1);
    add_stored(4);
    add_computed(SegmentKind::question, 2);
  }
  std::unique_ptr<Selection> create(uint32_t n_layers = kLayers) {
    return std::make_unique<Selection>(*backend_, test::resolved(options_, n_layers),
                                       options_.deviation);
  }
  std::unique_ptr<Selection> begin() {
    auto made = create();
    EXPECT_TRUE(made->begin(prompt_).is_ok());
    return made;
  }
  int32_t refusal(uint32_t n_layers = kLayers) {
    return resolve({{}, options_, {}}, {.n_layers = n_layers}).status().code();
  }
  // Measures and chooses at `layer`, where each active row's fresh K and V lie `distance[row]`
  // above the stored ones.
  Status choose(Selection& s, uint32_t layer, const std::vector<float>& distance) {
    std::vector<float> values;
    for (const uint32_t row : s.active()) {
      values.push_back(stored_value(layer, row) + distance[row]);
    }
    const std::vector<size_t> segments = {1, 2, 4};
    const StagedLayer staged = stage(segments, layer);
    const auto runs = stored_runs_among(prompt_, segments, staged, s.active());
    BLEND_ASSIGN(const std::vector<float> deviation, s.measure(fresh(values), runs));
    return s.choose(deviation, {});
  }
  // Distances that are larger for later rows.
  std::vector<float> rising() const {
    std::vector<float> out;
    for (uint32_t row = 0; row < prompt_.n_rows(); ++row) out.push_back(static_cast<float>(row));
    return out;
  }

  // The host wants the maps of a profile that was fitted at this check layer, come what may.
  void insist_on_drift(uint32_t check_layer) {
    profile_.prefixes = {{}};
    profile_.check_layer = check_layer;
    options_.calibration.profile = &profile_;
    options_.calibration.correction = DriftUse::on;
  }

  Profile profile_;
  static constexpr uint32_t kAlways[] = {0, 1, 10, 15, 16};
  FuseOptions options_;
};

TEST_F(SelectionTest, BeforeTheCheckLayerAllButExactRowsAreComputed) {
  const auto s = begin();
  EXPECT_EQ(s->rows().n_reused, 12u);
  EXPECT_EQ(s->rows().always, RowList(std::begin(kAlways), std::end(kAlways)));
  EXPECT_EQ(s->active(), (RowList{0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}));
  EXPECT_TRUE(s->selected().empty());
  EXPECT_EQ(s->computed(20),
            (std::vector<uint8_t>{1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0}));
  EXPECT_FALSE(s->chooses_at(0));
  EXPECT_TRUE(s->chooses_at(1));
  EXPECT_EQ(s->decided_upto(), 1u);
  EXPECT_EQ(s->first_stored_layer(), 1u) << "what is measured there";
}

TEST_F(SelectionTest, TheRowsThatDeviateMostGoOn) {
  options_.ratio = RatioRequest::fixed(0.25);  // of 12: 3 rows
  const auto s = begin();
  std::vector<float> distance(prompt_.n_rows(), 1.0f);
  distance[6] = 5;
  distance[9] = 3;
  distance[13] = 4;
  distance[15] = 9;  // computed anyway, and not measured
  ASSERT_TRUE(choose(*s, 1, distance).is_ok());
  EXPECT_EQ(s->selected(), (RowList{6, 9, 13}));
  EXPECT_EQ(s->active(), (RowList{0, 1, 6, 9, 10, 13, 15, 16}));
  EXPECT_FLOAT_EQ(s->deviation()[6], kKvDim * 25.0f);
  EXPECT_FLOAT_EQ(s->deviation()[4], kKvDim * 1.0f);
  EXPECT_EQ(s->deviation()[15], 0.0f);
  EXPECT_FALSE(s->chooses_at(1)) << "once";
  EXPECT_EQ(s->decided_upto(), kLayers - 1);
  s->leave_last_row();
  EXPECT_EQ(s->active(), RowList{16});
  EXPECT_EQ(s->selected().size(), 3u) << "the account keeps them";
}

TEST_F(SelectionTest, EachCheckLayerChoosesAmongWhatTheOneBeforeLetThrough) {
  options_.check_layers = {{1, 0.5}, {3, 0.25}};
  const auto s = begin();
  EXPECT_EQ(s->expected_rows(), (std::vector<uint64_t>{15, 15, 11, 11, 8}));
  ASSERT_TRUE(choose(*s, 1, rising()).is_ok());
  EXPECT_EQ(s->selected(), (RowList{8, 9, 11, 12, 13, 14}));
  const std::vector<float> seen = s->deviation();
  EXPECT_FALSE(s->chooses_at(2));
  EXPECT_TRUE(s->chooses_at(3));
  EXPECT_EQ(s->decided_upto(), 3u);
  // Now none deviates, and ties go to the earlier row: those that were left out do not come back.
  ASSERT_TRUE(choose(*s, 3, std::vector<float>(prompt_.n_rows(), 0.0f)).is_ok());
  EXPECT_EQ(s->selected(), (RowList{8, 9, 11}));
  EXPECT_EQ(s->deviation(), seen) << "as the first check layer saw it";
  EXPECT_NEAR(test::resolved(options_, kLayers).mean_ratio(), (2 * 0.5 + 1 * 0.25) / 3, 1e-12);
}

TEST_F(SelectionTest, APolicyThatMeasuresNothingChoosesBeforeLayer0) {
  options_.policy = Policy::first_k;
  options_.ratio = RatioRequest::fixed(0.25);
  const auto s = begin();
  EXPECT_EQ(s->selected(), (RowList{4, 5, 11}));
  EXPECT_EQ(s->active(), (RowList{0, 1, 4, 5, 10, 11, 15, 16}));
  EXPECT_FALSE(s->chooses_at(0));
  EXPECT_EQ(s->first_stored_layer(), 0u);
  EXPECT_EQ(s->expected_rows(), std::vector<uint64_t>(kLayers, 8));
  // Unless a schedule says otherwise: up to there rows keep their fresh K, V.
  options_.check_layers = {{2, 0.25}};
  const auto later = begin();
  EXPECT_TRUE(later->selected().empty());
  EXPECT_TRUE(later->chooses_at(2));
  EXPECT_EQ(later->first_stored_layer(), 3u);
}

TEST_F(SelectionTest, WithoutAPolicyStoredRowsStayStored) {
  options_.policy = Policy::reuse;
  const auto s = begin();
  EXPECT_EQ(s->active(), RowList(std::begin(kAlways), std::end(kAlways)));
  for (uint32_t layer = 0; layer < kLayers; ++layer) EXPECT_FALSE(s->chooses_at(layer));
  EXPECT_EQ(s->first_stored_layer(), 0u);
  EXPECT_TRUE(s->schedule().empty());
  options_.policy = Policy::hkvd;
  prompt_.segments[2].exact = prompt_.segments[4].exact = true;
  const auto exact = begin();
  EXPECT_EQ(exact->active(), RowList(std::begin(kAlways), std::end(kAlways)));
  EXPECT_FALSE(exact->chooses_at(1)) << "there is nothing to choose among";
  EXPECT_EQ(exact->first_stored_layer(), 0u);
}

TEST_F(SelectionTest, AFailedChoiceLeavesAllAsBefore) {
  int32_t answer = 7;
  options_.policy = Policy::callback;
  options_.score = [&](uint32_t, auto, auto, auto) { return answer; };
  const auto s = begin();
  const RowList before = s->active();
  const Status failed = choose(*s, 1, rising());
  EXPECT_EQ(failed.code(), BLEND_E_CALLBACK);
  EXPECT_EQ(failed.detail(), 7);
  EXPECT_EQ(s->active(), before);
  EXPECT_TRUE(s->selected().empty());
  EXPECT_TRUE(s->chooses_at(1));
  answer = 0;
  EXPECT_TRUE(choose(*s, 1, rising()).is_ok());
  EXPECT_FALSE(s->selected().empty());
}

// After a damaged chunk became a miss.
TEST_F(SelectionTest, ItBeginsAnewWithTheRowsThatAreThen) {
  const auto s = begin();
  ASSERT_TRUE(choose(*s, 1, rising()).is_ok());
  prompt_.segments[4].chunk.reset();
  prompt_.segments[4].source = Source::computed;
  ASSERT_TRUE(s->begin(prompt_).is_ok());
  EXPECT_EQ(s->rows().n_reused, 8u);
  EXPECT_TRUE(s->selected().empty());
  EXPECT_TRUE(s->chooses_at(1));
  EXPECT_EQ(s->deviation(), std::vector<float>(prompt_.n_rows(), 0.0f));
  EXPECT_EQ(s->rows().always, (RowList{0, 1, 10, 11, 12, 13, 14, 15, 16}));
}

TEST_F(SelectionTest, TheQuestionsPolicyWantsAQuestion) {
  options_.policy = Policy::question;
  const auto made = create();
  EXPECT_TRUE(made->needs().question_attention);
  EXPECT_TRUE(made->begin(prompt_).is_ok());
  prompt_.segments.back().kind = SegmentKind::text;
  EXPECT_EQ(made->begin(prompt_).code(), BLEND_E_INVALID_ARGUMENT);
}

// Attention that is larger for later rows.
TEST_F(SelectionTest, AttentionIsAskedForThroughTheMiddleLayersBeforeAnyRowIsChosen) {
  options_.policy = Policy::attention;
  options_.ratio = RatioRequest::fixed(0.25);  // of 12: 3 rows
  const auto s = begin();
  EXPECT_TRUE(s->probes());
  EXPECT_EQ(s->asked().first, 0u);
  EXPECT_EQ(s->asked().last, 4u) << "of five layers";
  EXPECT_EQ(s->active(), RowList(std::begin(kAlways), std::end(kAlways)));
  EXPECT_EQ(s->decided_upto(), 4u);
  EXPECT_EQ(s->first_stored_layer(), 0u);
  EXPECT_FALSE(s->chooses_at(0));
  // Five rows ask in every layer; at the last, all five layers again with the three.
  EXPECT_EQ(s->expected_rows(), (std::vector<uint64_t>{5, 5, 5, 5, 5 + 5 * 8}));
  ASSERT_TRUE(s->choose({}, rising()).is_ok());
  EXPECT_FALSE(s->probes());
  EXPECT_EQ(s->selected(), (RowList{9, 13, 14})) << "one of each chunk first";
  EXPECT_EQ(s->active(), (RowList{0, 1, 9, 10, 13, 14, 15, 16}));
  EXPECT_EQ(s->decided_upto(), kLayers - 1);
}

TEST_F(SelectionTest, NobodyIsAskedWhereTheAnswerChangesNothing) {
  for (const Policy policy : {Policy::attention, Policy::probe}) {
    options_.policy = policy;
    options_.ratio = RatioRequest::fixed(0);
    auto s = begin();
    EXPECT_FALSE(s->probes());
    EXPECT_TRUE(s->selected().empty());
    EXPECT_EQ(s->active(), RowList(std::begin(kAlways), std::end(kAlways)));
    options_.ratio = RatioRequest::fixed(0.8);  // of 12: 10 rows, all candidates
    s = begin();
    EXPECT_FALSE(s->probes());
    EXPECT_EQ(s->selected(), (RowList{4, 5, 6, 7, 8, 9, 11, 12, 13, 14}));
    // A host whose calls must not depend on it is asked all the same.
    ASSERT_TRUE(s->begin(prompt_, Selection::Asking::always).is_ok());
    EXPECT_TRUE(s->probes());
    options_.ratio = RatioRequest::fixed(0.7);  // 9 rows
    EXPECT_TRUE(begin()->probes());
    options_.check_layers = {{0, 0.9}, {2, 0.5}};  // all at first, and then some of them
    EXPECT_TRUE(begin()->probes());
    options_.check_layers.clear();
  }
}

TEST_F(SelectionTest, AttentionWantsAQuestionTwoLayersAndNoCorrection) {
  options_.policy = Policy::attention;
  EXPECT_EQ(refusal(1), BLEND_E_UNSUPPORTED);
  EXPECT_EQ(refusal(2), BLEND_OK);
  options_.check_layers = {{1, 0.2}};
  EXPECT_EQ(refusal(), BLEND_E_INVALID_ARGUMENT) << "it chooses before layer 0";
  options_.check_layers = {{0, 0.5}, {2, 0.2}};
  DriftMaps maps;
  maps.kv_dim = kKvDim;
  maps.first_layer = 3;
  options_.calibration.drift = *Drift::load(*backend_, maps);
  EXPECT_FALSE(begin()->corrects()) << "what it reads is read as it is stored";
  insist_on_drift(0);
  EXPECT_EQ(refusal(), BLEND_E_INVALID_ARGUMENT);
  options_.calibration.profile = nullptr;
  options_.calibration.correction = DriftUse::automatic;
  const auto s = begin();
  prompt_.segments.back().kind = SegmentKind::text;
  EXPECT_EQ(s->begin(prompt_).code(), BLEND_E_INVALID_ARGUMENT);
}

TEST_F(SelectionTest, TheControllerRaisesTheOneRatioButNotAScheduleOfTheHosts) {
  const PrefillTimes times = *PrefillTimes::create({{1000, 1'000'000'000}});
  ReadRates fast;
  fast.add(Origin::disk, Codec::none, 1'000'000'000, 1'000'000'000);
  ModelConfig config;
  config.n_layers = kLayers;
  config.d_model = 8;
  config.n_heads = config.n_kv_heads = 1;
  config.head_dim = kKvDim;
  config.d_ff = 64;
  Pace pace;
  const KnownCosts known{&fast, &config, 0, {&times, &pace}};
  const auto chosen = [&] {
    return choose_ratio(test::resolved(options_, kLayers), options_.ratio, known, prompt_);
  };
  // Most of what computing all rows takes.
  options_.ratio = RatioRequest::automatic(0.8e-3 * prompt_.n_rows());
  options_.ratio.begin = 0.1;
  const ResolvedFuse raised = chosen();
  EXPECT_TRUE(raised.choice.has_value());
  EXPECT_EQ(raised.ratio, 0.1) << "where it began";
  EXPECT_GT(raised.mean_ratio(), 0.1);
  EXPECT_EQ(raised.schedule.front().ratio, raised.mean_ratio());
  options_.check_layers = {{1, 0.3}};
  const ResolvedFuse own = chosen();
  EXPECT_FALSE(own.choice.has_value());
  EXPECT_DOUBLE_EQ(own.mean_ratio(), 0.3);
}

TEST_F(SelectionTest, DriftMapsBelongToTheirOwnCheckLayer) {
  DriftMaps maps;
  maps.kv_dim = kKvDim;
  maps.first_layer = 3;
  auto drift = Drift::load(*backend_, maps);
  ASSERT_TRUE(drift.is_ok());
  options_.calibration.drift = *drift;
  EXPECT_FALSE(begin()->corrects()) << "it checks at layer 1";
  options_.check_layer = 2;
  EXPECT_TRUE(begin()->corrects());
  // They measure where the policy does not.
  options_.policy = Policy::random;
  options_.check_layers = {{2, 0.25}};
  const auto measured = begin();
  EXPECT_TRUE(measured->corrects());
  EXPECT_EQ(measured->first_stored_layer(), 2u);
  options_.check_layers = {{1, 0.25}};
  EXPECT_EQ(begin()->first_stored_layer(), 2u);
  insist_on_drift(1);
  EXPECT_EQ(refusal(), BLEND_E_INVALID_ARGUMENT);
}

TEST_F(SelectionTest, OptionsThatDoNotGoTogetherAreRefused) {
  for (const uint32_t layer : {0u, kLayers}) {
    options_.check_layer = layer;
    EXPECT_EQ(refusal(), BLEND_E_INVALID_ARGUMENT) << layer;
  }
  options_.check_layers = {{0, 0.2}};
  EXPECT_EQ(refusal(), BLEND_E_INVALID_ARGUMENT) << "nothing deviates at layer 0";
  options_.policy = Policy::first_k;
  EXPECT_EQ(refusal(), BLEND_OK);
  options_.policy = Policy::full;
  EXPECT_EQ(refusal(), BLEND_E_INVALID_ARGUMENT) << "it chooses nothing";
}

// There is no layer after the first to leave rows out of, and nothing to measure in it.
TEST_F(SelectionTest, AModelOfOneLayerChoosesNothing) {
  for (const uint32_t layer : {0u, 1u, 7u}) {
    options_.check_layer = layer;
    const auto s = create(1);
    ASSERT_TRUE(s->begin(prompt_).is_ok());
    EXPECT_FALSE(s->chooses_at(0));
    EXPECT_EQ(s->active().size(), 15u);
    EXPECT_EQ(s->decided_upto(), 0u);
  }
}

}  // namespace
}  // namespace blend

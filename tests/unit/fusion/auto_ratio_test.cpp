#include "fusion/resolve/auto_ratio.h"

#include <cmath>

#include "control/advise.h"
#include "support/hand_prompt.h"

namespace blend {
namespace {

constexpr uint32_t kCheck = 1;
constexpr double kUnlimited = 1e15;  // bytes a second

// Text 0..9, an exact chunk 10..29, a chunk 30..129, a miss 130..139, a chunk 140..169, a question
// 170..179. A token takes a millisecond.
class AutoRatioTest : public test::HandPrompt {
 protected:
  void SetUp() override {
    add_computed(SegmentKind::text, 10);
    add_stored(20, true);
    add_stored(100);
    add_computed(SegmentKind::chunk, 10);
    add_stored(30);
    add_computed(SegmentKind::question, 10);
    config_.n_layers = kLayers;
    config_.d_model = 8;
    config_.n_heads = config_.n_kv_heads = 1;
    config_.head_dim = kKvDim;
    config_.d_ff = 64;
  }
  void start_anew() {
    prompt_ = {};
    SetUp();
  }
  void set_rate(double bytes_per_s) {
    reads_ = std::make_unique<ReadRates>();
    reads_->add(Origin::disk, Codec::none, static_cast<uint64_t>(bytes_per_s), 1'000'000'000);
  }
  KnownCosts known(double spent_s = 0) {
    return {reads_.get(), &config_, spent_s, {&times_, &pace_}};
  }
  RatioChoice choose(double least = 0.15, double target_s = 0, double spent_s = 0) {
    const auto choice = choose_by_cost(known(spent_s), rules_, least, target_s, prompt_);
    EXPECT_TRUE(choice.has_value());
    return choice.value_or(RatioChoice{});
  }
  // The pass at a ratio when the chunks of `computed` (bits: the exact one, the long one, the short
  // one) are computed: by the arithmetic alone.
  double seconds_of(uint32_t computed, double ratio, double bytes_per_s) const {
    const uint64_t n[] = {20, 100, 30};
    RowCounts rows;
    LoadCost load;
    rows.n_always = 30;
    for (uint32_t i = 0; i < 3; ++i) {
      if ((computed >> i & 1) != 0) {
        rows.n_always += n[i];
        continue;
      }
      (i == 0 ? rows.n_exact : rows.n_candidates) += n[i];
      rows.n_reused += n[i];
      (i == 0 ? load.exact_s : load.stale_s) +=
          kReadsBeside * static_cast<double>(n[i] * kLayerBytes) / bytes_per_s;
    }
    const RowCost row = RowCost::of(config_, 180, times_.seconds(180));
    const Schedule schedule = rows.n_candidates > 0 ? rules_.schedule(ratio) : Schedule{};
    return pass_cost(rows_by_layer(schedule, {}, rows, kLayers), rows, row, load, kCheck).seconds;
  }
  static constexpr uint64_t kLayerBytes = 2 * kKvDim * sizeof(float);  // of one row

  const PrefillTimes times_ = *PrefillTimes::create({{1000, 1'000'000'000}});
  Pace pace_;
  ModelConfig config_;
  std::unique_ptr<ReadRates> reads_ = std::make_unique<ReadRates>();
  const PassRules rules_{[](double ratio) { return Schedule{{kCheck, ratio}}; }, {}, kCheck};
};

// From a device that brings all in no time to one that brings nothing: no set of chunks to compute
// is sooner done, so neither is loading nothing, and the ratio rises only where that costs no time.
TEST_F(AutoRatioTest, NoOtherChoiceIsSooner) {
  bool mixed = false;
  for (double bytes_per_s = 100; bytes_per_s < 1e7; bytes_per_s *= 1.1) {
    SCOPED_TRACE(bytes_per_s);
    start_anew();
    set_rate(bytes_per_s);
    const RatioChoice ratio = choose();
    EXPECT_GE(ratio.ratio, 0.15);
    uint32_t computed = 0;
    const size_t places[] = {1, 2, 4};
    for (uint32_t i = 0; i < 3; ++i) {
      const PromptSegment& s = prompt_.segments[places[i]];
      if (!s.reused()) {
        computed |= 1u << i;
        EXPECT_EQ(s.source, Source::computed);
        EXPECT_FALSE(s.exact);
      }
    }
    const double rate = std::floor(bytes_per_s);
    EXPECT_NEAR(ratio.ttft_s, seconds_of(computed, ratio.ratio, rate), 1e-9);
    EXPECT_NEAR(ratio.computing_s, seconds_of(7, 0.15, rate), 1e-9);
    for (uint32_t other = 0; other < 8; ++other) {
      EXPECT_LE(ratio.ttft_s, 1.02 * seconds_of(other, 0.15, rate))
          << other << " beside " << computed << " at " << ratio.ratio;
    }
    mixed = mixed || (computed != 0 && computed != 7);
  }
  EXPECT_TRUE(mixed) << "somewhere some chunks are loaded, others computed";
}

// Many chunks, fast and slow, some far away: what the choice says of itself is what its parts come
// to when they are added up anew, and no other chunk should have been computed or loaded.
TEST_F(AutoRatioTest, TheCostOfManyChunksIsThatOfThoseThatWereChosen) {
  PassQuestion q;
  q.config = &config_;
  q.machine = {&times_, &pace_};
  q.rules = rules_;
  q.n_always = 30;
  q.n_rows = 30;
  for (uint32_t i = 0; i < 400; ++i) {
    const uint32_t n = 1 + i * 7 % 40;
    StoredPart part{i, n, i % 5 == 0, i % 9 != 0, i % 11 != 0};
    if (part.known) {
      part.layer_s = 4e-8 * (1 + i * 13 % 500) * n;
      part.latency_s = i % 40 == 0 ? 0.5 * (1 + i / 40) : 0;
    }
    q.n_rows += n;
    q.parts.push_back(part);
  }
  PassQuestion computed = q;
  const PassModel loaded(q);
  const auto choice = choose_pass(q, 0.15, 0);
  ASSERT_TRUE(choice.has_value());
  size_t n_computed = 0;
  for (const StoredPart& part : q.parts) {
    n_computed += part.loaded ? 0 : 1;
    EXPECT_TRUE(part.loaded || part.known);
  }
  EXPECT_GT(n_computed, 0u);
  EXPECT_LT(n_computed, q.parts.size() / 2);
  const double anew = PassModel(q).cost(choice->ratio).seconds;
  EXPECT_NEAR(choice->ttft_s / anew, 1, 1e-9);
  EXPECT_LE(choice->ttft_s, loaded.cost(0.15).seconds * (1 + 1e-9));
  for (size_t i = 0; i < q.parts.size(); ++i) {
    if (!q.parts[i].known) continue;
    PassQuestion other = q;
    other.parts[i].loaded = !other.parts[i].loaded;
    EXPECT_GT(PassModel(other).cost(0.15).seconds * 1.005, PassModel(q).cost(0.15).seconds) << i;
  }
  for (StoredPart& part : computed.parts) part.loaded = !part.known;
  EXPECT_LE(choice->ttft_s, PassModel(computed).cost(0.15).seconds * (1 + 1e-9));
}

// One chunk that is best loaded while computing would wait: by no more than what is free.
TEST_F(AutoRatioTest, TheRatioRisesWhereItsRowsHideBehindLoading) {
  bool raised = false;
  for (double bytes_per_s = 1e4; bytes_per_s < 1e6; bytes_per_s *= 1.1) {
    SCOPED_TRACE(bytes_per_s);
    prompt_ = {};
    add_computed(SegmentKind::text, 10);
    add_stored(130);
    add_computed(SegmentKind::question, 10);
    set_rate(bytes_per_s);
    const RatioChoice ratio = choose();
    if (!prompt_.segments[1].reused()) continue;
    const RowCounts rows{.n_always = 20, .n_reused = 130, .n_candidates = 130, .n_exact = 0};
    const LoadCost load{.exact_s = 0,
                        .stale_s = kReadsBeside * 130 * kLayerBytes / std::floor(bytes_per_s),
                        .latency_s = 0};
    const auto least = rows_by_layer(rules_.schedule(0.15), {}, rows, kLayers);
    const RowCost row = RowCost::of(config_, 150, times_.seconds(150));
    EXPECT_LE(ratio.ttft_s, pass_cost(least, rows, row, load, kCheck).seconds * (1 + 1e-6));
    raised = raised || ratio.ratio > 0.2;
  }
  EXPECT_TRUE(raised);
}

TEST_F(AutoRatioTest, AFastStoreLeavesTheLeastRatio) {
  set_rate(kUnlimited);
  EXPECT_EQ(choose(0.15).ratio, 0.15);
  EXPECT_EQ(choose(0.7).ratio, 0.7);
  for (const size_t i : {1u, 2u, 4u}) EXPECT_TRUE(prompt_.segments[i].reused());
}

TEST_F(AutoRatioTest, WhatComputingTakesHereAndNowCounts) {
  const double rate = static_cast<double>(150 * kLayerBytes * kLayers) / 0.3;
  set_rate(rate);
  EXPECT_GT(choose().n_rows_computed, 0u) << "sooner computed";
  start_anew();
  for (int i = 0; i < 10; ++i) pace_.add_computed(0.5, 1'000'000, 4'000'000);
  EXPECT_EQ(choose().n_rows_computed, 0u) << "not where that takes four times as long";
}

// Fuses that recompute little take longer for each row. That must not make computing everything
// look slow.
TEST_F(AutoRatioTest, WhatFewRowsTakeSaysNothingOfComputingAll) {
  set_rate(1e4);
  pace_.add_computed(0.2, 1'000'000, 2'000'000);
  EXPECT_NEAR(choose().computing_s, 2 * seconds_of(7, 0.15, 1e4), 1e-9);
  start_anew();
  pace_.add_computed(1, 1'000'000, 1'000'000);
  EXPECT_NEAR(choose().computing_s, seconds_of(7, 0.15, 1e4), 1e-9);
  start_anew();
  set_rate(kUnlimited);
  EXPECT_NEAR(choose().ttft_s, 2 * seconds_of(0, 0.15, kUnlimited),
              0.6 * seconds_of(0, 0.15, kUnlimited))
      << "few rows take what few rows took";
}

// The host gives a time: the most exact choice that is done by then.
TEST_F(AutoRatioTest, ATargetBuysExactness) {
  set_rate(kUnlimited);
  const RatioChoice soonest = choose();
  const double all_s = soonest.computing_s;
  double before = soonest.ratio;
  for (const double share : {0.5, 0.7, 0.9}) {
    const RatioChoice ratio = choose(0.15, share * all_s);
    EXPECT_GT(ratio.ratio, before) << share;
    EXPECT_LE(ratio.ttft_s, share * all_s) << share;
    EXPECT_FALSE(ratio.late);
    before = ratio.ratio;
  }
  for (const size_t i : {1u, 2u, 4u}) EXPECT_TRUE(prompt_.segments[i].reused());
  const RatioChoice late = choose(0.15, 0.1 * soonest.ttft_s);
  EXPECT_TRUE(late.late);
  EXPECT_EQ(late.ratio, 0.15);
  const RatioChoice all = choose(0.15, 2 * all_s);
  EXPECT_EQ(all.n_rows_computed, 150u);
  for (const size_t i : {1u, 2u, 4u}) EXPECT_FALSE(prompt_.segments[i].reused());
}

TEST_F(AutoRatioTest, WithoutAMachineOrAStoreNothingIsChosen) {
  set_rate(1'000'000);
  const auto chooses = [&](const KnownCosts& by) {
    return choose_by_cost(by, rules_, 0.3, 0, prompt_).has_value();
  };
  EXPECT_FALSE(chooses({reads_.get(), &config_, 0}));
  EXPECT_FALSE(chooses({nullptr, &config_, 0, {&times_, &pace_}}));
  EXPECT_TRUE(layers_read_.empty());
}

TEST_F(AutoRatioTest, AKnownStoreIsNotAsked) {
  set_rate(1000);
  choose();
  EXPECT_TRUE(layers_read_.empty());
}

TEST_F(AutoRatioTest, AStoreThatNothingIsKnownOfIsAskedForLayersThatAreNeededAnyway) {
  choose();
  EXPECT_GT(reads_->per_second(Origin::disk, Codec::none), 0.0);
  EXPECT_EQ(reads_->per_second(Origin::disk, Codec::int4), 0.0);
  EXPECT_FALSE(layers_read_.empty());
  // Nothing to read, nothing known.
  reads_ = std::make_unique<ReadRates>();
  for (PromptSegment& s : prompt_.segments) s.chunk.reset();
  EXPECT_FALSE(choose_by_cost(known(), rules_, 0.15, 0, prompt_).has_value());
}

// A chunk at the far end of a link of some rate. Reading it would be a transfer.
class FarSource final : public ChunkSource {
 public:
  FarSource(ChunkMeta meta, RemoteCost cost) : meta_(std::move(meta)), cost_(cost) {
    meta_.stored_bytes = meta_.shape.total_bytes();
  }
  const ChunkMeta& meta() const override { return meta_; }
  void prefetch(uint32_t) override {}
  Status read_layer(uint32_t, std::byte*) override {
    ADD_FAILURE() << "it was read before it was chosen";
    return Status::ok();
  }
  Origin origin() const override { return Origin::remote; }
  RemoteCost remote_cost() const override { return cost_; }

 private:
  ChunkMeta meta_;
  const RemoteCost cost_;
};

TEST_F(AutoRatioTest, ChunksBehindASlowLinkAreComputedBehindAFastOneLoaded) {
  // 100 rows of 5 layers are 8000 bytes; to compute them takes 100 ms.
  struct Case {
    double bytes_per_s;
    double latency_s;
    bool loaded;
  };
  for (const Case& c : {Case{1e9, 1e-3, true}, Case{1e6, 1e-3, true}, Case{1e4, 1e-3, false},
                        Case{1e9, 30, false}, Case{0, 0, true}}) {
    SCOPED_TRACE(c.bytes_per_s);
    start_anew();
    prompt_.segments[2].chunk = std::make_unique<FarSource>(
        prompt_.segments[2].chunk->meta(),
        ChunkSource::RemoteCost{.latency_s = c.latency_s, .bytes_per_s = c.bytes_per_s});
    set_rate(1e9);  // the disk is fast
    choose();
    EXPECT_EQ(c.loaded, prompt_.segments[2].reused());
    EXPECT_TRUE(prompt_.segments[4].reused()) << "what lies on the disk is loaded";
  }
}

// They are asked at once; all layers that are needed come, as they are stored.
TEST_F(AutoRatioTest, TwoChunksBehindALinkAreWaitedForOnce) {
  uint64_t bytes = 0;
  for (const size_t i : {2u, 4u}) {
    const ChunkMeta& meta = prompt_.segments[i].chunk->meta();
    bytes += meta.shape.total_bytes();
    prompt_.segments[i].chunk = std::make_unique<FarSource>(
        meta, ChunkSource::RemoteCost{.latency_s = 0.05, .bytes_per_s = 1e6});
  }
  set_rate(kUnlimited);
  const double load_s = choose().load_s;
  EXPECT_NEAR(load_s, 0.05 + kReadsBeside * static_cast<double>(bytes) * 1e-6, 1e-6);
}

TEST_F(AutoRatioTest, WhatWasSpentAndWhatPlacingTakesCounts) {
  set_rate(kUnlimited);
  const double before_s = choose().ttft_s;
  start_anew();
  EXPECT_NEAR(choose(0.15, 0, 0.5).ttft_s, before_s + 0.5, 1e-9);
  start_anew();
  pace_.add_placed(100, 1'000'000);
  // The exact chunk in five layers, and in four what is left of 130 rows without 15 % of 150.
  EXPECT_NEAR(choose().ttft_s, before_s + 10e-6 * (5 * 20 + 4 * (130 - 22.5)), 50e-6);
}

// One device, two codecs: each has the rate that its own layers came at.
TEST_F(AutoRatioTest, WhatIsStoredSmallerIsLoadedWhereTheOtherIsComputed) {
  class Packed final : public ChunkSource {
   public:
    Packed(std::unique_ptr<ChunkSource> of, Codec codec) : meta_(of->meta()) {
      meta_.codec = codec;
    }
    const ChunkMeta& meta() const override { return meta_; }
    void prefetch(uint32_t) override {}
    Status read_layer(uint32_t, std::byte*) override { return Status::ok(); }

   private:
    ChunkMeta meta_;
  };
  set_rate(1e4);
  reads_->add(Origin::disk, Codec::int4, 1'000'000, 1'000'000'000);
  PromptSegment& s = prompt_.segments[2];
  s.chunk = std::make_unique<Packed>(std::move(s.chunk), Codec::int4);
  choose();
  EXPECT_TRUE(prompt_.segments[2].reused());
  start_anew();
  set_rate(1e4);
  choose();
  EXPECT_FALSE(prompt_.segments[2].reused());
}

// What is advised for a storage is what the controller does with chunks that lie there: the same
// ratio, the same time, at any speed, on a machine of any pace.
TEST_F(AutoRatioTest, AdviceIsWhatTheControllerDoes) {
  constexpr uint64_t kChunk = 50;
  bool raised = false, computed = false, partly = false;
  for (const uint64_t n_chunks : {1u, 4u}) {
    pace_.add_computed(0.5, 1'000'000, n_chunks * 1'300'000);
    for (double bytes_per_s = 100; bytes_per_s < 1e7; bytes_per_s *= 1.3) {
      SCOPED_TRACE(bytes_per_s);
      prompt_ = {};
      for (uint64_t i = 0; i < n_chunks; ++i) add_stored(kChunk);
      set_rate(std::floor(bytes_per_s));
      const AdvisedPrompt advised{
          &config_, {&times_, &pace_}, n_chunks * kChunk, kChunk, static_cast<double>(kLayerBytes),
          kCheck};
      const Storage storage[] = {{std::floor(bytes_per_s), 0}};
      const StorageAdvice advice = advise(advised, 0.15, storage).storages[0];
      const RatioChoice deed = choose(0.15);
      EXPECT_DOUBLE_EQ(advice.expected_s, deed.ttft_s);
      const bool all = deed.n_rows_computed == n_chunks * kChunk;
      EXPECT_EQ(advice.ratio, all ? 1.0 : deed.ratio);
      raised = raised || deed.ratio > 0.2;
      computed = computed || all;
      partly = partly || (deed.n_rows_computed > 0 && !all);
    }
  }
  EXPECT_TRUE(raised) << "somewhere rows hide behind loading";
  EXPECT_TRUE(computed) << "somewhere all are computed";
  EXPECT_TRUE(partly) << "somewhere some chunks are computed, others loaded";
}

}  // namespace
}  // namespace blend

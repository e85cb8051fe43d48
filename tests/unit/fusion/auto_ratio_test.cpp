#include "fusion/auto_ratio.h"

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
  }
  static constexpr uint64_t kLayerBytes = 2 * kKvDim * sizeof(float);  // of one row
  const PrefillTimes times_ = *PrefillTimes::create({{1000, 1'000'000'000}});
  RateMeter reads_;
};

TEST_F(AutoRatioTest, APromptCostsWhatItsRowsAndItsStoredLayersDo) {
  const FuseShape shape = shape_of(prompt_, kCheck, kLayers);
  EXPECT_EQ(shape.n_rows, 180u);
  EXPECT_EQ(shape.n_always, 30u);
  EXPECT_EQ(shape.n_reused, 150u);
  EXPECT_EQ(shape.n_candidates, 130u);
  EXPECT_EQ(shape.n_layers, kLayers);
  EXPECT_EQ(shape.n_check_layers, kCheck);
  // The exact chunk from layer 0 on, the others from the check layer on.
  EXPECT_EQ(shape.load_bytes, kLayerBytes * (20 * kLayers + 130 * (kLayers - kCheck)));
  // What was prefilled a moment ago is in memory.
  prompt_.segments[2].source = Source::precomputed;
  EXPECT_EQ(shape_of(prompt_, kCheck, kLayers).load_bytes,
            kLayerBytes * (20 * kLayers + 30 * (kLayers - kCheck)));
}

TEST_F(AutoRatioTest, AFastStoreLeavesTheLeastRatioASlowerOneHidesMore) {
  EXPECT_EQ(ratio_by_cost(prompt_, kCheck, kLayers, times_, kUnlimited, 0.15), 0.15);
  const FuseShape shape = shape_of(prompt_, kCheck, kLayers);
  // As slow as the pass is at half of the rows: those hide behind loading.
  const double prefill_s = times_.seconds(shape.n_rows);
  const double bytes_per_s =
      static_cast<double>(shape.load_bytes) / compute_seconds(shape, 0.5, prefill_s);
  EXPECT_NEAR(ratio_by_cost(prompt_, kCheck, kLayers, times_, bytes_per_s, 0.15), 0.5, 1e-9);
  EXPECT_NEAR(ratio_by_cost(prompt_, kCheck, kLayers, times_, bytes_per_s, 0.7), 0.7, 1e-9)
      << "never below the least";
  for (const size_t i : {1u, 2u, 4u}) EXPECT_TRUE(prompt_.segments[i].reused());
}

TEST_F(AutoRatioTest, ChunksThatAreSoonerComputedThanLoadedLoseTheirSources) {
  ratio_by_cost(prompt_, kCheck, kLayers, times_, 1.0, 0.15);
  EXPECT_TRUE(prompt_.segments[1].reused()) << "an exact chunk costs nothing in quality";
  EXPECT_FALSE(prompt_.segments[2].reused()) << "the longest is the first to go";
  EXPECT_EQ(prompt_.segments[2].source, Source::computed);
}

TEST_F(AutoRatioTest, WithoutAMachineOrAStoreNothingIsChosen) {
  reads_.add(1'000'000, 1'000'000'000);
  RatioChoice fixed = RatioChoice::fixed(0.3);
  choose_by_cost(&reads_, kCheck, kLayers, prompt_, fixed);
  EXPECT_FALSE(fixed.is_chosen());
  EXPECT_EQ(fixed.ratio(), 0.3);
  RatioChoice no_machine = RatioChoice::automatic(nullptr);
  choose_by_cost(&reads_, kCheck, kLayers, prompt_, no_machine);
  EXPECT_FALSE(no_machine.is_chosen());
  EXPECT_EQ(no_machine.ratio(), RatioChoice().ratio());
  RatioChoice no_store = RatioChoice::automatic(&times_);
  choose_by_cost(nullptr, kCheck, kLayers, prompt_, no_store);
  EXPECT_FALSE(no_store.is_chosen());
  EXPECT_TRUE(layers_read_.empty());
}

TEST_F(AutoRatioTest, AKnownStoreIsNotAsked) {
  reads_.add(1000, 1'000'000'000);
  RatioChoice ratio = RatioChoice::automatic(&times_);
  ratio.begin_at(0.2);
  choose_by_cost(&reads_, kCheck, kLayers, prompt_, ratio);
  EXPECT_TRUE(ratio.is_chosen());
  EXPECT_GT(ratio.ratio(), 0.2);
  EXPECT_TRUE(layers_read_.empty());
}

TEST_F(AutoRatioTest, AStoreThatNothingIsKnownOfIsAskedForLayersThatAreNeededAnyway) {
  RatioChoice ratio = RatioChoice::automatic(&times_);
  choose_by_cost(&reads_, kCheck, kLayers, prompt_, ratio);
  EXPECT_TRUE(ratio.is_chosen());
  EXPECT_GT(reads_.per_second(), 0.0);
  ASSERT_FALSE(layers_read_.empty());
  for (const uint32_t layer : layers_read_) EXPECT_GE(layer, kCheck);
  // Nothing to read, nothing known.
  RateMeter reads;
  for (PromptSegment& s : prompt_.segments) s.chunk.reset();
  RatioChoice empty = RatioChoice::automatic(&times_);
  choose_by_cost(&reads, kCheck, kLayers, prompt_, empty);
  EXPECT_FALSE(empty.is_chosen());
}

// A chunk behind a link of some rate. Reading it would be a transfer.
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
    prompt_ = {};
    SetUp();
    prompt_.segments[2].chunk = std::make_unique<FarSource>(
        prompt_.segments[2].chunk->meta(),
        ChunkSource::RemoteCost{.latency_s = c.latency_s, .bytes_per_s = c.bytes_per_s});
    RateMeter reads;
    reads.add(1'000'000'000, 1'000'000'000);  // the disk is fast
    RatioChoice ratio = RatioChoice::automatic(&times_);
    choose_by_cost(&reads, kCheck, kLayers, prompt_, ratio);
    EXPECT_EQ(c.loaded, prompt_.segments[2].reused());
    EXPECT_TRUE(prompt_.segments[4].reused()) << "what lies on the disk is loaded";
  }
}

TEST(RatioChoice, OnlyAnAutomaticOneBeginsElsewhereAndItOnlyRises) {
  RatioChoice fixed = RatioChoice::fixed(0.3);
  EXPECT_FALSE(fixed.is_automatic());
  fixed.begin_at(0.5);
  EXPECT_EQ(fixed.ratio(), 0.3);
  RatioChoice automatic = RatioChoice::automatic(nullptr);
  EXPECT_TRUE(automatic.is_automatic());
  automatic.begin_at(0.5);
  EXPECT_EQ(automatic.ratio(), 0.5);
  EXPECT_FALSE(automatic.is_chosen());
  automatic.choose(0.4);
  EXPECT_EQ(automatic.ratio(), 0.5);
  automatic.choose(0.6);
  EXPECT_EQ(automatic.ratio(), 0.6);
  EXPECT_TRUE(automatic.is_chosen());
}

}  // namespace
}  // namespace blend

#include "fusion/load/stored_rows.h"

#include "support/hand_prompt.h"

namespace blend {
namespace {

float first_of(const std::byte* plane) {
  float value = 0;
  std::memcpy(&value, plane, sizeof value);
  return value;
}

// Text 0..1, an exact chunk 2..4, a chunk 5..9, a miss 10..11, a chunk 12..13, a question 14.
class StoredRowsTest : public test::HandPrompt {
 protected:
  void SetUp() override {
    add_computed(SegmentKind::text, 2);
    add_stored(3, true);
    add_stored(5);
    add_computed(SegmentKind::chunk, 2);
    add_stored(2);
    add_computed(SegmentKind::question, 1);
  }
  // Every row of a run stands in the staged layer where the run says.
  void expect_rows(const StoredRun& run, uint32_t layer, const std::vector<uint32_t>& rows) {
    ASSERT_EQ(run.n_rows, rows.size());
    for (uint32_t i = 0; i < run.n_rows; ++i) {
      const size_t at = i * kKvDim * sizeof(float);
      EXPECT_EQ(first_of(run.k + at), stored_value(layer, rows[i]));
      EXPECT_EQ(first_of(run.v + at), stored_value(layer, rows[i]));
    }
  }
};

TEST_F(StoredRowsTest, ExactChunksAreLoadedFromLayer0TheOthersFromWhereTheyAreNeeded) {
  const ChunksToLoad load = chunks_to_load(prompt_, 2, kLayers);
  EXPECT_EQ(load.segments, (std::vector<size_t>{1, 2, 4}));
  ASSERT_EQ(load.items.size(), 3u);
  EXPECT_EQ(load.items[0].source, prompt_.segments[1].chunk.get());
  EXPECT_EQ(load.items[0].first_layer, 0u);
  EXPECT_EQ(load.items[1].first_layer, 2u);
  EXPECT_EQ(load.items[2].first_layer, 2u);
  EXPECT_EQ(load.first_layer, 0u);
  prompt_.segments[1].exact = false;
  EXPECT_EQ(chunks_to_load(prompt_, 2, kLayers).first_layer, 2u);
  for (PromptSegment& s : prompt_.segments) s.chunk.reset();
  EXPECT_TRUE(chunks_to_load(prompt_, 2, kLayers).items.empty());
  EXPECT_EQ(chunks_to_load(prompt_, 2, kLayers).first_layer, kLayers);
}

TEST_F(StoredRowsTest, RunsStandAtTheirRowsOfThePrompt) {
  const std::vector<size_t> segments = {1, 2, 4};
  const std::vector<StoredRun> runs = stored_runs(prompt_, segments, stage(segments, 3));
  ASSERT_EQ(runs.size(), 3u);
  const uint32_t first[] = {2, 5, 12};
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(runs[i].first, first[i]);
  expect_rows(runs[0], 3, {2, 3, 4});
  expect_rows(runs[1], 3, {5, 6, 7, 8, 9});
  expect_rows(runs[2], 3, {12, 13});
  std::vector<uint8_t> computed(prompt_.n_rows(), 0);
  EXPECT_EQ(rows_to_place(runs, computed), 10u);
  computed[0] = computed[6] = computed[13] = computed[14] = 1;  // two of them are stored rows
  EXPECT_EQ(rows_to_place(runs, computed), 8u);
}

TEST_F(StoredRowsTest, AmongTheActiveRowsARunEndsWhereOneIsMissingAndExactRowsAreNone) {
  const std::vector<size_t> segments = {1, 2, 4};
  const std::vector<uint32_t> active = {0, 1, 2, 5, 6, 9, 10, 11, 13, 14};
  const std::vector<StoredRun> runs =
      stored_runs_among(prompt_, segments, stage(segments, 1), active);
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].first, 3u);  // place in `active`
  expect_rows(runs[0], 1, {5, 6});
  EXPECT_EQ(runs[1].first, 5u);
  expect_rows(runs[1], 1, {9});
  EXPECT_EQ(runs[2].first, 8u);
  expect_rows(runs[2], 1, {13});
}

// A packed plane is decoded as a whole: its runs say from which of its rows on.
TEST_F(StoredRowsTest, PackedRunsPointToTheWholePlane) {
  const std::vector<size_t> segments = {2};
  StagedLayer staged = stage(segments, 1);
  staged.chunks[0][0].packed.packing = Packing::int8;
  const std::byte* const k = staged.chunks[0][0].k;
  const std::vector<uint32_t> active = {6, 8, 9};
  const std::vector<StoredRun> runs = stored_runs_among(prompt_, segments, staged, active);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].k, k);
  EXPECT_EQ(runs[0].plane_row, 1u);
  EXPECT_EQ(runs[1].k, k);
  EXPECT_EQ(runs[1].plane_row, 3u);
  EXPECT_EQ(runs[1].n_rows, 2u);
}

}  // namespace
}  // namespace blend

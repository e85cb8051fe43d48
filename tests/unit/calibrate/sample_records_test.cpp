#include "calibrate/sample_records.h"

#include <cstring>

#include "fusion/contexts/corpus_precompute.h"
#include "support/engine_fixture.h"

namespace blend {
namespace {

std::shared_ptr<ChunkRecord> record(uint8_t id, size_t bytes) {
  auto out = std::make_shared<ChunkRecord>();
  out->meta.id[0] = id;
  out->data = std::move(*AlignedBuffer::allocate(bytes));
  return out;
}
Sha256 id_of(uint8_t id) { return record(id, 8)->meta.id; }

TEST(RecentRecords, TheLeastRecentlyUsedLeavesFirst) {
  RecentRecords kept(3000);
  for (uint8_t id = 1; id <= 3; ++id) kept.put(record(id, 1000));
  EXPECT_NE(kept.find(id_of(1)), nullptr);
  kept.put(record(4, 1000));
  EXPECT_EQ(kept.find(id_of(2)), nullptr);
  for (const uint8_t id : {1, 3, 4}) EXPECT_NE(kept.find(id_of(id)), nullptr) << int{id};
  kept.put(record(5, 2500));
  for (const uint8_t id : {1, 3, 4}) EXPECT_EQ(kept.find(id_of(id)), nullptr) << int{id};
  EXPECT_NE(kept.find(id_of(5)), nullptr);
}

TEST(RecentRecords, WhatIsTooLargeDisplacesNothing) {
  RecentRecords kept(1000);
  kept.put(record(1, 1000));
  kept.put(record(2, 1001));
  EXPECT_EQ(kept.find(id_of(2)), nullptr);
  EXPECT_NE(kept.find(id_of(1)), nullptr);
}

class SampleRecordsTest : public test::EngineTest {
 protected:
  static constexpr uint32_t kContexts = 2;

  void make_texts(int n, size_t own, size_t n_shared) {
    const std::vector<int32_t> shared = tokens(n_shared, 10);
    for (int i = 0; i < n; ++i) {
      texts_.push_back(tokens(own, 20 + i));
      texts_.back().insert(texts_.back().end(), shared.begin(), shared.end());
    }
    for (const auto& text : texts_) samples_.push_back({Segment{SegmentKind::chunk, text, {}}});
  }
  // The records of `blend precompute`.
  void precompute(MemoryStore& stored) {
    SimilarChunks index;
    CorpusKey key;
    key.dtype = DType::f32;
    key.head = head_;
    CorpusOptions options;
    options.n_contexts = kContexts;
    std::vector<CorpusText> corpus;
    for (const std::vector<int32_t>& text : texts_) corpus.push_back({text, {}});
    ASSERT_TRUE(CorpusPrecompute(*model_, stored, index, key, options)
                    .run(corpus, [](size_t, const CorpusRecord&) { return 0; }, {})
                    .is_ok());
  }

  std::vector<int32_t> head_ = {5, 6, 7, 8};
  std::vector<std::vector<int32_t>> texts_;
  std::vector<Sample> samples_;
};

// Of the same texts after the same head: the records of `blend precompute`. That of the first text
// is the same to the bit; the others' passages have left their drafts by then.
TEST_F(SampleRecordsTest, AreThoseOfACorpus) {
  make_texts(5, 70, 40);
  MemoryStore stored;
  precompute(stored);

  auto records = SampleRecords::create(*model_, samples_, kContexts);
  ASSERT_TRUE(records.is_ok()) << records.status().message();
  for (int round = 0; round < 2; ++round) {  // then with what is kept
    for (const std::vector<int32_t>& text : texts_) {
      auto made = (*records)->record_of(text, 0, head_, DType::f32, {});
      ASSERT_TRUE(made.is_ok()) << made.status().message();
      ASSERT_NE(*made, nullptr);
      const auto wanted = stored.find((*made)->meta.id);
      ASSERT_NE(wanted, nullptr);
      EXPECT_GT(wanted->meta.contexts.size(), kContexts) << "short ones stand together";
      EXPECT_EQ((*made)->meta.contexts, wanted->meta.contexts);
      EXPECT_FALSE((*made)->meta.draft);
      ASSERT_EQ((*made)->data.bytes(), wanted->data.bytes());
      if (text != texts_[0]) continue;
      EXPECT_EQ(std::memcmp((*made)->data.data(), wanted->data.data(), wanted->data.bytes()), 0);
    }
  }
  // After another head they are others.
  auto other = (*records)->record_of(texts_[0], 0, tokens(4, 2), DType::f32, {});
  ASSERT_TRUE(other.is_ok()) << other.status().message();
  EXPECT_EQ(stored.find((*other)->meta.id), nullptr);
}

// Where much text precedes them, they are of clusters, and the same to the bit, whatever is asked
// for first.
TEST_F(SampleRecordsTest, AfterMuchTextTheyAreThoseOfTheirCluster) {
  test::RandomModelSpec spec;
  spec.context = 2100;
  model_ = load(spec);
  make_texts(9, 120, 80);
  MemoryStore stored;
  precompute(stored);
  auto records = SampleRecords::create(*model_, samples_, kContexts);
  ASSERT_TRUE(records.is_ok()) << records.status().message();
  for (const size_t i : {2, 0, 8, 1}) {
    auto made = (*records)->record_of(texts_[i], 4 + kClusterFrom, head_, DType::f32, {});
    ASSERT_TRUE(made.is_ok()) << made.status().message();
    const auto wanted = stored.find((*made)->meta.id);
    ASSERT_NE(wanted, nullptr);
    EXPECT_GE(wanted->meta.contexts.size(), kLeastClusterChunks - 1) << "not of a cluster";
    EXPECT_EQ((*made)->meta.contexts, wanted->meta.contexts);
    ASSERT_EQ((*made)->data.bytes(), wanted->data.bytes());
    EXPECT_EQ(std::memcmp((*made)->data.data(), wanted->data.data(), wanted->data.bytes()), 0);
    auto near = (*records)->record_of(texts_[i], 3 + kClusterFrom, head_, DType::f32, {});
    ASSERT_TRUE(near.is_ok()) << near.status().message();
    EXPECT_NE((*near)->meta.id, wanted->meta.id);
  }
}

}  // namespace
}  // namespace blend

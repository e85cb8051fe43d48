#include "engine/chunk_prefill.h"

#include <cmath>

#include "engine/precompute.h"
#include "support/engine_fixture.h"

namespace blend {
namespace {

using test::EngineTest;

using Record = std::shared_ptr<const ChunkRecord>;

class ChunkPrefillTest : public EngineTest {
 protected:
  ChunkMeta describe(std::span<const int32_t> head, std::span<const int32_t> of,
                     RecordKind kind = RecordKind::plain) {
    return describe_chunk(*model_, DType::f32, head, "", of, kind);
  }
  Record plain(const std::vector<int32_t>& before, const std::vector<int32_t>& of) {
    auto record = precompute_chunk(*model_, before, describe(before, of), {});
    EXPECT_TRUE(record.is_ok()) << record.status().message();
    return *record;
  }
  static std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  // Row `row` of K (or V) of a layer.
  static const float* row_of(const ChunkRecord& r, uint32_t layer, bool v, size_t row) {
    const std::byte* plane = v ? r.v(layer) : r.k(layer);
    return reinterpret_cast<const float*>(plane) + row * r.meta.shape.kv_dim;
  }
  // The largest difference of a's rows from those of b from `skip` on.
  static float difference(const ChunkRecord& a, const ChunkRecord& b, size_t skip = 0) {
    float most = 0;
    for (uint32_t layer = 0; layer < a.meta.shape.n_layers; ++layer) {
      for (const bool v : {false, true}) {
        for (size_t i = 0; i < a.meta.tokens.size(); ++i) {
          const float* x = row_of(a, layer, v, i);
          const float* y = row_of(b, layer, v, i + skip);
          for (uint32_t k = 0; k < a.meta.shape.kv_dim; ++k) {
            most = std::max(most, std::abs(x[k] - y[k]));
          }
        }
      }
    }
    return most;
  }
  static float mean_difference(const ChunkRecord& mean, const std::vector<Record>& of) {
    float most = 0;
    for (uint32_t layer = 0; layer < mean.meta.shape.n_layers; ++layer) {
      for (const bool v : {false, true}) {
        for (size_t i = 0; i < mean.meta.tokens.size(); ++i) {
          for (uint32_t k = 0; k < mean.meta.shape.kv_dim; ++k) {
            double sum = 0;
            for (const Record& r : of) sum += static_cast<double>(row_of(*r, layer, v, i)[k]);
            const double want = sum / static_cast<double>(of.size());
            const double is = static_cast<double>(row_of(mean, layer, v, i)[k]);
            most = std::max(most, static_cast<float>(std::abs(is - want)));
          }
        }
      }
    }
    return most;
  }

  void SetUp() override {
    EngineTest::SetUp();
    head_ = tokens(5, 1);
    chunk_ = tokens(17, 2);
    passage_ = tokens(13, 3);
    other_ = tokens(21, 4);
  }
  std::vector<int32_t> head_, chunk_, passage_, other_;
};

TEST_F(ChunkPrefillTest, ARecordAfterAHeadHasTheRowsOfOnePrefill) {
  const Record all = plain({}, joined(head_, chunk_));
  EXPECT_LT(difference(*plain(head_, chunk_), *all, head_.size()), 1e-4f);
  EXPECT_GT(difference(*plain({}, chunk_), *all, head_.size()), 1e-2f) << "the head matters";
}

TEST_F(ChunkPrefillTest, AContextualRecordIsTheMeanOverItsPassages) {
  const ContextPassage passages[] = {{passage_}, {other_}};
  auto mean = precompute_chunk(*model_, head_, describe(head_, chunk_), {}, passages);
  ASSERT_TRUE(mean.is_ok()) << mean.status().message();
  const Record first = plain(joined(head_, passage_), chunk_);
  const Record second = plain(joined(head_, other_), chunk_);
  EXPECT_LT(mean_difference(**mean, {first, second}), 1e-4f);
  EXPECT_GT(difference(**mean, *first), 1e-3f) << "not the first passage's alone";
  EXPECT_GT(difference(**mean, *plain(head_, chunk_)), 1e-3f) << "the passages matter";
  ASSERT_EQ((*mean)->meta.impact.size(), chunk_.size());
  for (const RowImpact& row : (*mean)->meta.impact) {
    EXPECT_GE(row.inside, 0.0f);
    EXPECT_LE(row.inside, 1.0f);
  }
}

// In a sequence a chunk is as in a prompt: after the chunks before it.
TEST_F(ChunkPrefillTest, ARecordOfSequencesIsTheMeanOverThem) {
  ChunkPrefill prefill(*model_, head_);
  ChunkJob jobs[] = {{describe(head_, chunk_), {}},
                     {describe(head_, other_), {}},
                     {describe(head_, passage_), {}}};
  const ChunkPrefill::Sequence sequences[] = {{0, 1, 2}, {2, 0}, {1}};
  auto records = prefill.run_in_sequences(jobs, sequences, {});
  ASSERT_TRUE(records.is_ok()) << records.status().message();
  const Record chunk = plain(head_, chunk_), after = plain(joined(head_, passage_), chunk_);
  EXPECT_LT(mean_difference(*(*records)[0], {chunk, after}), 1e-4f);
  EXPECT_GT(difference(*(*records)[0], *chunk), 1e-3f);
  const Record other = plain(head_, other_), second = plain(joined(head_, chunk_), other_);
  EXPECT_LT(mean_difference(*(*records)[1], {other, second}), 1e-4f);
  const Record passage = plain(head_, passage_);
  const Record third = plain(joined(joined(head_, chunk_), other_), passage_);
  EXPECT_LT(mean_difference(*(*records)[2], {passage, third}), 1e-4f);
  for (const auto& record : *records) {
    ASSERT_EQ(record->meta.impact.size(), record->meta.tokens.size());
    for (const RowImpact& row : record->meta.impact) {
      EXPECT_GE(row.inside, 0.0f);
      EXPECT_LE(row.inside, 1.0f);
    }
  }
}

// Products take some hundred rows: a sequence goes through a layer in parts.
TEST_F(ChunkPrefillTest, ASequenceMayBeLongerThanABlock) {
  test::RandomModelSpec spec;
  spec.context = 1024;
  model_ = load(spec);
  std::vector<ChunkJob> jobs;
  std::vector<int32_t> before = head_;
  ChunkPrefill::Sequence all;
  const size_t most = model_->backend().traits().block_rows;
  size_t rows = 0;
  for (size_t i = 0; rows <= most + 100; ++i) {
    const auto text = tokens(90 + 20 * i, 30 + i);
    jobs.push_back({describe(head_, text), {}});
    all.push_back(i);
    rows += text.size();
  }
  ASSERT_LE(head_.size() + rows, model_->context_length());
  std::vector<std::vector<int32_t>> texts;
  for (const ChunkJob& job : jobs) texts.push_back(job.meta.tokens);
  auto records = ChunkPrefill(*model_, head_).run_in_sequences(jobs, {&all, 1}, {});
  ASSERT_TRUE(records.is_ok()) << records.status().message();
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_LT(difference(*(*records)[i], *plain(before, texts[i])), 1e-4f) << i;
    before = joined(before, texts[i]);
  }
}

// Layers that do not attend go on from the chunk before too.
TEST_F(ChunkPrefillTest, ASequenceOfAHybridIsOneText) {
  for (const char* family : {"lfm2", "qwen35", "granite4_h"}) {
    SCOPED_TRACE(family);
    model_ = load(test::random_family(family));
    ASSERT_NE(model_, nullptr);
    ChunkJob jobs[] = {{describe(head_, chunk_), {}}, {describe(head_, other_), {}}};
    const ChunkPrefill::Sequence both = {0, 1};
    auto records = ChunkPrefill(*model_, head_).run_in_sequences(jobs, {&both, 1}, {});
    ASSERT_TRUE(records.is_ok()) << records.status().message();
    ChunkJob after[] = {{describe(head_, other_), {}}};
    const ContextPassage passages[] = {{chunk_}};
    after[0].passages = passages;
    auto computed = ChunkPrefill(*model_, head_).run(after, {});
    ASSERT_TRUE(computed.is_ok()) << computed.status().message();
    const ChunkRecord &a = *(*records)[1], &b = *(*computed)[0];
    ASSERT_EQ(a.data.bytes(), b.data.bytes());
    const auto* x = reinterpret_cast<const float*>(a.data.data());
    const auto* y = reinterpret_cast<const float*>(b.data.data());
    for (size_t i = 0; i < a.data.bytes() / sizeof(float); ++i) ASSERT_NEAR(x[i], y[i], 1e-4f) << i;
  }
}

TEST_F(ChunkPrefillTest, AChunkInNoSequenceIsAnError) {
  ChunkJob jobs[] = {{describe(head_, chunk_), {}, "chunk 7"}, {describe(head_, other_), {}}};
  const ChunkPrefill::Sequence one = {1};
  const auto records = ChunkPrefill(*model_, head_).run_in_sequences(jobs, {&one, 1}, {});
  EXPECT_EQ(records.status().code(), BLEND_E_INVALID_ARGUMENT);
  EXPECT_NE(records.status().message().find("chunk 7"), std::string::npos);
}

TEST_F(ChunkPrefillTest, AStoredPassageIsAsGoodAsAComputedOne) {
  const Record stored = plain(head_, passage_);
  const auto source = make_memory_source(stored);
  const ContextPassage loaded[] = {{passage_, {source.get()}}, {other_}};
  const ContextPassage computed[] = {{passage_}, {other_}};
  auto a = precompute_chunk(*model_, head_, describe(head_, chunk_), {}, loaded);
  auto b = precompute_chunk(*model_, head_, describe(head_, chunk_), {}, computed);
  ASSERT_TRUE(a.is_ok()) << a.status().message();
  ASSERT_TRUE(b.is_ok());
  EXPECT_LT(difference(**a, **b), 1e-4f);
}

// The head's rows stay from chunk to chunk, also when a longer one needs more room.
TEST_F(ChunkPrefillTest, ChunksOneAfterTheOtherAreAsEachByItself) {
  ChunkPrefill prefill(*model_, head_);
  const auto run = [&](const std::vector<int32_t>& chunk,
                       std::span<const ContextPassage> passages) {
    ChunkJob job{describe(head_, chunk), passages};
    auto records = prefill.run({&job, 1}, {});
    EXPECT_TRUE(records.is_ok()) << records.status().message();
    return (*records)[0];
  };
  for (const auto& chunk : {chunk_, other_, passage_, tokens(3, 9), other_}) {
    EXPECT_LT(difference(*run(chunk, {}), *plain(head_, chunk)), 1e-4f);
    const ContextPassage passages[] = {{passage_}};
    EXPECT_LT(difference(*run(chunk, passages), *plain(joined(head_, passage_), chunk)), 1e-4f);
  }
}

// What is prefilled together is what each is by itself, to the bit where products are of more rows
// than few_rows() takes; and what it attends to outside and inside the chunk too.
TEST_F(ChunkPrefillTest, ChunksTogetherAreAsEachByItself) {
  const std::vector<int32_t> longer = tokens(40, 5), again = tokens(30, 6),
                             long_ago = tokens(50, 7);
  const Record stored = plain(head_, long_ago);
  const auto source = make_memory_source(stored);
  const ContextPassage two[] = {{longer}, {long_ago, {source.get()}}};
  const ContextPassage one[] = {{long_ago, {source.get()}}};
  const std::vector<std::pair<std::vector<int32_t>, std::span<const ContextPassage>>> wanted = {
      {longer, {}}, {again, two}, {longer, one}, {again, {}}, {again, one}};
  std::vector<ChunkJob> jobs;
  size_t rows = 0;
  for (const auto& [chunk, passages] : wanted) {
    jobs.push_back({describe(head_, chunk), passages});
    rows += jobs.back().n_rows();
  }
  EXPECT_EQ(rows, 40u + (40 + 30) + 30 + 40 + 30 + 30);
  ChunkPrefill prefill(*model_, head_);
  uint64_t before = 0;
  auto together = prefill.run(jobs, {nullptr, [&](uint64_t done, uint64_t total) {
                                       EXPECT_LE(before, done);
                                       EXPECT_LE(done, total);
                                       before = done;
                                       return 0;
                                     }});
  ASSERT_TRUE(together.is_ok()) << together.status().message();
  ASSERT_EQ(together->size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto& [chunk, passages] = wanted[i];
    auto alone = precompute_chunk(*model_, head_, describe(head_, chunk), {}, passages);
    ASSERT_TRUE(alone.is_ok()) << alone.status().message();
    const ChunkRecord& record = *(*together)[i];
    EXPECT_EQ(difference(record, **alone), 0.0f) << i;
    EXPECT_EQ(record.meta.id, (*alone)->meta.id);
    ASSERT_EQ(record.meta.impact.size(), (*alone)->meta.impact.size());
    for (size_t row = 0; row < record.meta.impact.size(); ++row) {
      EXPECT_EQ(record.meta.impact[row].outside, (*alone)->meta.impact[row].outside);
      EXPECT_EQ(record.meta.impact[row].inside, (*alone)->meta.impact[row].inside);
    }
  }
}

// More rows than go through the layers at once; the passes of a chunk are not all in one group.
TEST_F(ChunkPrefillTest, ManyRowsAreSeveralGroups) {
  const std::vector<int32_t> text = tokens(40, 5);
  std::vector<std::vector<int32_t>> passages;
  for (uint32_t i = 0; i < 4; ++i) passages.push_back(tokens(60, 10 + i));
  const std::vector<ContextPassage> after(passages.begin(), passages.end());
  std::vector<ChunkJob> jobs;
  for (uint32_t i = 0; i < 3; ++i) jobs.push_back({describe(head_, tokens(30 + i, 20 + i)), after});
  ASSERT_GT(3 * jobs[0].n_rows(), 2 * model_->backend().traits().block_rows);
  ChunkPrefill prefill(*model_, head_);
  auto together = prefill.run(jobs, {});
  ASSERT_TRUE(together.is_ok()) << together.status().message();
  for (uint32_t i = 0; i < 3; ++i) {
    auto alone =
        precompute_chunk(*model_, head_, describe(head_, tokens(30 + i, 20 + i)), {}, after);
    ASSERT_TRUE(alone.is_ok());
    EXPECT_EQ(difference(*(*together)[i], **alone), 0.0f) << i;
  }
}

TEST_F(ChunkPrefillTest, TheChunkThatFailsIsNamed) {
  ChunkPrefill prefill(*model_, head_);
  const std::vector<int32_t> most = tokens(model_->context_length() - head_.size() + 1, 5);
  std::vector<ChunkJob> jobs;
  jobs.push_back({describe(head_, chunk_), {}, "chunk 7"});
  jobs.push_back({describe(head_, most), {}, "chunk 8"});
  const Status refused = prefill.run(jobs, {}).status();
  EXPECT_EQ(refused.code(), BLEND_E_CONTEXT_LENGTH);
  EXPECT_EQ(refused.message().find("chunk 8: the chunk has"), 0u) << refused.message();
}

TEST_F(ChunkPrefillTest, WhatDoesNotFitIsRefused) {
  const auto context = static_cast<size_t>(model_->context_length());
  const std::vector<int32_t> most = tokens(context - head_.size(), 5);
  EXPECT_TRUE(precompute_chunk(*model_, head_, describe(head_, most), {}).is_ok());
  const std::vector<int32_t> more = tokens(context - head_.size() + 1, 5);
  EXPECT_EQ(precompute_chunk(*model_, head_, describe(head_, more), {}).status().code(),
            BLEND_E_CONTEXT_LENGTH);
}

TEST_F(ChunkPrefillTest, IsCancelledBetweenLayers) {
  CancelToken cancel;
  uint64_t calls = 0;
  const Watch watch{&cancel, [&](uint64_t, uint64_t) {
                      if (++calls == 2) cancel.request();
                      return 0;
                    }};
  const ContextPassage passages[] = {{passage_}, {other_}};
  auto record = precompute_chunk(*model_, head_, describe(head_, chunk_), watch, passages);
  EXPECT_EQ(record.status().code(), BLEND_E_CANCELLED);
  EXPECT_EQ(calls, 2u);
}

}  // namespace
}  // namespace blend

#include "fusion/contexts/corpus_precompute.h"

#include <cstring>

#include "engine/precompute.h"
#include "fusion/contexts/passages.h"
#include "support/engine_fixture.h"
#include "support/fake_store.h"

namespace blend {
namespace {

using test::EngineTest;
using test::FakeStore;
using test::RandomModelSpec;

class CorpusPrecomputeTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    key_.dtype = DType::f32;
    key_.head = tokens(4, 1);
    options_.n_contexts = 2;
    options_.min_similarity = 0.25;  // those of the other topic are no context
    // Texts of two topics: those of one share most of their tokens.
    for (int topic = 0; topic < 2; ++topic) {
      const std::vector<int32_t> shared = tokens(40, 10 + topic);
      for (int i = 0; i < 3; ++i) {
        std::vector<int32_t> text = tokens(12, 20 + 3 * topic + i);
        text.insert(text.end(), shared.begin(), shared.end());
        texts_.push_back(text);
      }
    }
  }

  // So that not all records of a kind are prefilled together.
  void lengthen_texts() {
    for (std::vector<int32_t>& text : texts_) {
      const std::vector<int32_t> own = text;
      for (int i = 0; i < 2; ++i) text.insert(text.end(), own.begin(), own.end());
    }
  }
  Status run(std::vector<CorpusRecord>* out = nullptr) {
    std::vector<CorpusText> list;
    for (const auto& text : texts_) list.push_back({text, {}});
    CorpusPrecompute precompute(*model_, store_, *index_, key_, options_);
    return precompute.run(list,
                          [&](size_t, const CorpusRecord& record) {
                            if (out != nullptr) out->push_back(record);
                            return 0;
                          },
                          {});
  }
  Sha256 id_of(size_t text, RecordKind kind) {
    return chunk_id(model_->fingerprint(), key_.dtype, key_.head, key_.tenant, texts_[text], kind);
  }
  ChunkMeta stored(const Sha256& id) {
    auto snapshot = store_.snapshot();
    auto source = (*snapshot)->open(id);
    EXPECT_TRUE(source.is_ok()) << source.status().message();
    return source.is_ok() ? (*source)->meta() : ChunkMeta{};
  }

  FakeStore store_;
  std::shared_ptr<SimilarChunks> index_ = std::make_shared<SimilarChunks>();
  CorpusKey key_;
  CorpusOptions options_;
  std::vector<std::vector<int32_t>> texts_;
};

TEST_F(CorpusPrecomputeTest, EachChunkIsStoredInTheContextOfTheMostSimilar) {
  std::vector<CorpusRecord> records;
  ASSERT_TRUE(run(&records).is_ok());
  ASSERT_EQ(records.size(), 6u);
  EXPECT_EQ(store_.puts, 18) << "a head record, a draft and a contextual one each";
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(records[i].id, id_of(i, RecordKind::contextual));
    EXPECT_FALSE(records[i].existed);
    const ChunkMeta meta = stored(records[i].id);
    EXPECT_FALSE(meta.draft);
    ASSERT_EQ(meta.contexts.size(), 2u);
    for (const Sha256& context : meta.contexts) {
      bool same_topic = false;
      for (size_t j = i / 3 * 3; j < i / 3 * 3 + 3; ++j) {
        same_topic = same_topic || (j != i && context == id_of(j, RecordKind::plain));
      }
      EXPECT_TRUE(same_topic) << "chunk " << i;
    }
  }
}

TEST_F(CorpusPrecomputeTest, ASecondRunComputesNothing) {
  ASSERT_TRUE(run().is_ok());
  std::vector<CorpusRecord> records;
  ASSERT_TRUE(run(&records).is_ok());
  EXPECT_EQ(store_.puts, 18);
  for (const CorpusRecord& record : records) EXPECT_TRUE(record.existed);
}

// Chunks that a stopped run has stored stay, and the next one gives the same records.
TEST_F(CorpusPrecomputeTest, AStoppedRunGoesOnWhereItEnded) {
  lengthen_texts();
  std::vector<CorpusText> list;
  for (const auto& text : texts_) list.push_back({text, {}});
  CorpusPrecompute first(*model_, store_, *index_, key_, options_);
  const Status stopped =
      first.run(list, [](size_t text, const CorpusRecord&) { return text == 2 ? 7 : 0; }, {});
  EXPECT_EQ(stopped.code(), BLEND_E_CALLBACK);
  EXPECT_EQ(stopped.detail(), 7);
  const int before = store_.puts;
  EXPECT_LT(before, 18);
  EXPECT_TRUE(stored(id_of(5, RecordKind::contextual)).draft);
  index_ = std::make_shared<SimilarChunks>();  // another process
  ASSERT_TRUE(run().is_ok());
  EXPECT_EQ(store_.puts, 18) << "no draft is made twice";
  for (size_t i = 0; i < 6; ++i) {
    const ChunkMeta meta = stored(id_of(i, RecordKind::contextual));
    EXPECT_FALSE(meta.draft) << i;
    EXPECT_EQ(meta.contexts.size(), 2u) << i;
  }
}

// Similar texts are also prefilled together: these records are of the orders that clusters_of() and
// orders_of() say.
TEST_F(CorpusPrecomputeTest, TextsHaveRecordsOfTheirClusters) {
  texts_.clear();
  RandomModelSpec spec;
  spec.context = 2100;
  model_ = load(spec);
  const std::vector<int32_t> shared = tokens(80, 10);
  for (int i = 0; i < 12; ++i) {
    std::vector<int32_t> text = tokens(120, 20 + i);
    text.insert(text.end(), shared.begin(), shared.end());
    texts_.push_back(text);
  }
  texts_.push_back(texts_[2]);  // twice
  options_.min_similarity = 0;
  options_.n_contexts = 3;
  std::vector<CorpusRecord> records;
  ASSERT_TRUE(run(&records).is_ok());
  ASSERT_EQ(records.size(), 13u);
  EXPECT_EQ(store_.puts, 48) << "heads, drafts, clusters, contextual ones";
  std::vector<ClusterText> texts;
  for (size_t i = 0; i < 12; ++i) texts.push_back({id_of(i, RecordKind::plain), texts_[i]});
  ChunkPrefill prefill(*model_, key_.head);
  const size_t room = model_->context_length() - key_.head.size();
  auto clusters = clusters_of(texts, *index_, {0.0f, room}, {});
  ASSERT_TRUE(clusters.is_ok());
  ASSERT_FALSE(clusters->empty());
  size_t n = 0;
  for (const Cluster& cluster : *clusters) {
    std::vector<ChunkJob> jobs;
    for (const auto* part : {&cluster.chunks, &cluster.companions}) {
      for (const size_t i : *part) {
        jobs.push_back(
            {describe_chunk(*model_, key_.dtype, key_.head, "", texts_[i], RecordKind::clustered),
             {}});
      }
    }
    auto wanted = prefill.run_in_sequences(jobs, orders_of(jobs.size(), 3), {});
    ASSERT_TRUE(wanted.is_ok()) << wanted.status().message();
    for (size_t j = 0; j < cluster.chunks.size(); ++j, ++n) {
      const size_t i = cluster.chunks[j];
      EXPECT_EQ(records[i].id, id_of(i, RecordKind::contextual));
      EXPECT_EQ(records[i].cluster_id, id_of(i, RecordKind::clustered));
      const auto is = store_.chunks.at(records[i].cluster_id);
      EXPECT_EQ(std::memcmp((*wanted)[j]->data.data(), is->data.data(), is->data.bytes()), 0) << i;
      auto nearest = nearest_in(cluster, i, texts, *index_, kMostContexts);
      ASSERT_TRUE(nearest.is_ok());
      ASSERT_EQ(is->meta.contexts.size(), nearest->size());
      EXPECT_EQ(is->meta.contexts[0], texts[(*nearest)[0]].id);
    }
  }
  EXPECT_EQ(n, 12u);
  EXPECT_EQ(records[12].id, records[2].id);
  // Made again, they are as they were: nothing is computed.
  options_.refresh = true;
  records.clear();
  ASSERT_TRUE(run(&records).is_ok());
  EXPECT_EQ(store_.puts, 48);
  for (const CorpusRecord& record : records) EXPECT_TRUE(record.existed);
  // Without them nothing else is missing.
  store_.chunks.erase(records[1].cluster_id);
  options_.refresh = options_.clusters = false;
  ASSERT_TRUE(run().is_ok());
  EXPECT_EQ(store_.puts, 48);
}

// A record is the mean of prefills after passages as they are after the head, and as the drafts
// have them.
TEST_F(CorpusPrecomputeTest, PassagesAreReadFromDraftsToo) {
  texts_.clear();
  const std::vector<int32_t> shared = tokens(60, 10);
  for (int i = 0; i < 3; ++i) {  // nearly as long as the passages of a prefill
    std::vector<int32_t> text = tokens(130, 20 + i);
    text.insert(text.end(), shared.begin(), shared.end());
    texts_.push_back(text);
  }
  options_.min_similarity = 0;
  ASSERT_TRUE(run().is_ok());
  const ChunkMeta meta = stored(id_of(0, RecordKind::contextual));
  ASSERT_EQ(meta.contexts.size(), 2u);
  // What the first text's record was made from: no other had replaced its draft then.
  std::vector<std::unique_ptr<ChunkSource>> sources;
  std::vector<ContextPasses::Part> parts;
  auto snapshot = store_.snapshot();
  for (const Sha256& id : meta.contexts) {
    sources.push_back(std::move(*(*snapshot)->open(id)));
    parts.push_back({sources.back()->meta().tokens, sources.back().get()});
  }
  const ContextPasses after_head = ContextPasses::of(parts, 1000, 2);
  const std::vector<int32_t>& second = sources[1]->meta().tokens;
  const auto place = std::find(texts_.begin(), texts_.end(), second) - texts_.begin();
  const Sha256 draft_id = id_of(static_cast<size_t>(place), RecordKind::contextual);
  ASSERT_TRUE(store_.drafts.contains(draft_id));
  const auto draft = make_memory_source(store_.drafts.at(draft_id));
  EXPECT_EQ(draft->meta().contexts.size(), 2u) << "both in one prefill";
  parts[1].in_context = draft.get();
  const ContextPasses passes = ContextPasses::of(parts, 1000, 2);
  const auto is = store_.chunks.at(id_of(0, RecordKind::contextual));
  auto made = precompute_chunk(*model_, key_.head, meta, {}, passes.passages());
  auto other = precompute_chunk(*model_, key_.head, meta, {}, after_head.passages());
  ASSERT_TRUE(made.is_ok() && other.is_ok());
  const auto same = [&](const ChunkRecord& x) {
    return std::memcmp(x.data.data(), is->data.data(), is->data.bytes()) == 0;
  };
  EXPECT_TRUE(same(**made));
  EXPECT_FALSE(same(**other)) << "the draft makes no difference";
}

// Another process makes the last record while drafts are written.
TEST_F(CorpusPrecomputeTest, ADraftReplacesNoFinishedRecord) {
  class Shared : public FakeStore {
   public:
    Status put_async(std::shared_ptr<const ChunkRecord> record) override {
      if (record->meta.draft && finished != nullptr) chunks[finished->meta.id] = finished;
      return FakeStore::put_async(std::move(record));
    }
    std::shared_ptr<const ChunkRecord> finished;
  };
  lengthen_texts();
  ASSERT_TRUE(run().is_ok());
  Shared store;
  store.finished = store_.chunks.at(id_of(5, RecordKind::contextual));
  std::vector<CorpusText> list;
  for (const auto& text : texts_) list.push_back({text, {}});
  SimilarChunks index;
  ASSERT_TRUE(CorpusPrecompute(*model_, store, index, key_, options_).run(list, {}, {}).is_ok());
  EXPECT_EQ(store.drafts.size(), 5u);
  EXPECT_EQ(store.chunks.at(id_of(5, RecordKind::contextual)), store.finished);
}

// A host may name passages for several prefills: a draft takes those of one.
TEST_F(CorpusPrecomputeTest, ADraftIsAfterThePassagesOfOnePrefill) {
  std::vector<std::vector<int32_t>> texts;
  for (int i = 0; i < 4; ++i) texts.push_back(tokens(120, 30 + i));
  const std::vector<std::span<const int32_t>> passages(texts.begin(), texts.end());
  PassageKey key{key_.dtype, key_.head, "", 20};
  auto record = StoredPassages::open(*model_, nullptr, key, passages);
  ASSERT_TRUE(record.is_ok());
  EXPECT_EQ(record->ids().size(), 4u);
  key.draft = true;
  auto draft = StoredPassages::open(*model_, nullptr, key, passages);
  ASSERT_TRUE(draft.is_ok());
  EXPECT_EQ(draft->ids().size(), 2u);
  ASSERT_EQ(draft->passages().size(), 1u);
  EXPECT_EQ(draft->passages()[0].tokens.size(), 240u);
}

// After a predecessor two prefills are made, and each needs the fewer passages the longer that is.
TEST_F(CorpusPrecomputeTest, APredecessorLeavesOutPassagesThatNoPrefillNeeds) {
  std::vector<std::vector<int32_t>> texts;
  for (int i = 0; i < 6; ++i) texts.push_back(tokens(80, 30 + i));
  const std::vector<std::span<const int32_t>> passages(texts.begin(), texts.end());
  const auto n_taken = [&](size_t n_predecessor) {
    const std::vector<int32_t> predecessor = tokens(n_predecessor, 50);
    PassageKey key{key_.dtype, key_.head, "", 20};
    key.predecessor = predecessor;
    auto record = StoredPassages::open(*model_, nullptr, key, passages);
    EXPECT_TRUE(record.is_ok());
    return record.is_ok() ? record->ids().size() : 0;
  };
  EXPECT_EQ(n_taken(10), 5u);  // 2 * 182 tokens
  EXPECT_EQ(n_taken(112), 2u);
  EXPECT_EQ(n_taken(113), 2u);
  EXPECT_EQ(n_taken(191), 2u) << "one for each";
  EXPECT_EQ(n_taken(kPrecededTokens), 0u);
}

TEST_F(CorpusPrecomputeTest, ATextThatIsNewAloneNeedsNoDraft) {
  ASSERT_TRUE(run().is_ok());
  std::vector<int32_t> text = texts_[0];
  std::copy_n(tokens(8, 40).begin(), 8, text.begin());
  texts_.push_back(text);
  ASSERT_TRUE(run().is_ok());
  EXPECT_EQ(store_.puts, 18 + 2);
}

TEST_F(CorpusPrecomputeTest, RefreshMakesAgainWhatHasOtherNeighborsNow) {
  ASSERT_TRUE(run().is_ok());
  const ChunkMeta before = stored(id_of(0, RecordKind::contextual));
  std::vector<int32_t> nearer = texts_[0];
  std::copy_n(tokens(8, 40).begin(), 8, nearer.begin());
  texts_.push_back(nearer);
  ASSERT_TRUE(run().is_ok());
  EXPECT_EQ(stored(id_of(0, RecordKind::contextual)).contexts, before.contexts)
      << "unasked nothing changes";
  options_.refresh = true;
  std::vector<CorpusRecord> records;
  ASSERT_TRUE(run(&records).is_ok());
  EXPECT_FALSE(records[0].existed);
  EXPECT_EQ(stored(id_of(0, RecordKind::contextual)).contexts[0], id_of(6, RecordKind::plain));
  EXPECT_TRUE(records[5].existed) << "the other topic has the neighbors it had";
}

// Short chunks have more company, which stands in the same prefills.
TEST_F(CorpusPrecomputeTest, ShortChunksAreAfterSeveralAtOnce) {
  options_.n_contexts = 1;
  options_.min_similarity = 0;
  std::vector<CorpusRecord> records;
  ASSERT_TRUE(run(&records).is_ok());
  EXPECT_EQ(records[0].n_contexts, 4u);  // enough tokens
  const ChunkMeta meta = stored(records[0].id);
  ASSERT_EQ(meta.contexts.size(), 4u);
  std::vector<std::unique_ptr<ChunkSource>> sources;
  std::vector<ContextPasses::Part> parts;
  auto snapshot = store_.snapshot();
  for (const Sha256& id : meta.contexts) {
    auto source = (*snapshot)->open(id);
    ASSERT_TRUE(source.is_ok());
    sources.push_back(std::move(*source));
    parts.push_back({sources.back()->meta().tokens, sources.back().get()});
  }
  const ContextPasses passes = ContextPasses::of(parts, 1000, 1);
  ASSERT_EQ(passes.passages().size(), 1u);
  EXPECT_EQ(passes.passages()[0].tokens.size(), 4u * 52);
  ChunkMeta same = meta;
  auto expected = precompute_chunk(*model_, key_.head, same, {}, passes.passages());
  ASSERT_TRUE(expected.is_ok());
  auto is = (*snapshot)->open(records[0].id);
  ASSERT_TRUE(is.is_ok());
  auto layer = AlignedBuffer::allocate(meta.shape.layer_bytes(0));
  ASSERT_TRUE(layer.is_ok());
  for (uint32_t i = 0; i < meta.shape.n_layers; ++i) {
    ASSERT_TRUE((*is)->read_layer(i, layer->data()).is_ok());
    EXPECT_EQ(std::memcmp(layer->data(), (*expected)->k(i), meta.shape.layer_bytes(0)), 0) << i;
  }
}

TEST_F(CorpusPrecomputeTest, AChunkWithoutOthersHasTheHeadRecordAlone) {
  texts_.resize(1);
  std::vector<CorpusRecord> records;
  ASSERT_TRUE(run(&records).is_ok());
  EXPECT_EQ(records[0].id, id_of(0, RecordKind::plain));
  EXPECT_EQ(records[0].n_contexts, 0u);
  EXPECT_EQ(store_.puts, 1);
}

TEST_F(CorpusPrecomputeTest, ChunksThatAreTooUnlikeAreNoContext) {
  options_.min_similarity = 0.89;
  std::vector<CorpusRecord> records;
  ASSERT_TRUE(run(&records).is_ok());
  for (const CorpusRecord& record : records) EXPECT_EQ(record.n_contexts, 0u);
  EXPECT_EQ(store_.puts, 6);
}

TEST_F(CorpusPrecomputeTest, TheIndexOfAStoreHasItsHeadRecordsOnly) {
  ASSERT_TRUE(run().is_ok());
  std::vector<ChunkMeta> all;
  for (size_t i = 0; i < texts_.size(); ++i) {
    all.push_back(stored(id_of(i, RecordKind::plain)));
    all.push_back(stored(id_of(i, RecordKind::contextual)));
  }
  const std::vector<int32_t> other_head = tokens(4, 99);
  all.push_back(describe_chunk(*model_, DType::f32, other_head, "", texts_[0]));
  Corpora corpora;
  int walks = 0;
  const auto for_each = [&](const std::function<void(const ChunkMeta&)>& visit) {
    ++walks;
    for (const ChunkMeta& meta : all) visit(meta);
    return Status::ok();
  };
  auto index = corpora.index_of(*model_, key_, for_each);
  ASSERT_TRUE(index.is_ok());
  EXPECT_EQ((*index)->n_chunks(), 6u);
  EXPECT_EQ(*corpora.index_of(*model_, key_, for_each), *index) << "built once";
  EXPECT_EQ(walks, 1);
  key_.tenant = "other";
  EXPECT_EQ((*corpora.index_of(*model_, key_, for_each))->n_chunks(), 0u);
}

}  // namespace
}  // namespace blend

#include "fusion/prompt/prompt.h"

#include "engine/context_passes.h"
#include "engine/precompute.h"
#include "support/engine_fixture.h"
#include "support/fake_store.h"
#include "support/resolved.h"

namespace blend {
namespace {

using test::EngineTest;
using test::FakeStore;

class PromptTest : public EngineTest {
 protected:
  Segment chunk(std::vector<int32_t> t) { return {SegmentKind::chunk, std::move(t), {}}; }
  Segment text(std::vector<int32_t> t) { return {SegmentKind::text, std::move(t), {}}; }
  Segment prefix(std::vector<int32_t> t) { return {SegmentKind::prefix, std::move(t), {}}; }
  Segment question(std::vector<int32_t> t) { return {SegmentKind::question, std::move(t), {}}; }

  Result<Prompt> build(const std::vector<Segment>& segments) {
    builder_ = std::make_unique<PromptBuilder>(*model_, &store_, true, DType::f32, options_,
                                               test::resolved(options_, model_->config().n_layers));
    return builder_->build(segments, {}, {});
  }

  void put_behind(const std::vector<int32_t>& before, const std::vector<int32_t>& of) {
    const ChunkMeta meta = describe_chunk(*model_, DType::f32, before, "", of);
    ASSERT_TRUE(store_.put_async(*precompute_chunk(*model_, before, meta, {})).is_ok());
  }

  FakeStore store_;
  FuseOptions options_;
  std::unique_ptr<PromptBuilder> builder_;
};

TEST_F(PromptTest, RowsStandInPromptOrder) {
  auto prompt = build({prefix(tokens(3, 1)), chunk(tokens(5, 2)), text({}), chunk(tokens(1, 3)),
                       question(tokens(4, 4))});
  ASSERT_TRUE(prompt.is_ok()) << prompt.status().message();
  EXPECT_EQ(prompt->n_rows(), 13u);
  const uint32_t first[] = {0, 3, 8, 8, 9};
  const uint32_t rows[] = {3, 5, 0, 1, 4};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(prompt->segments[i].first_row, first[i]);
    EXPECT_EQ(prompt->segments[i].n_rows, rows[i]);
  }
  EXPECT_EQ(prompt->n_misses, 3u);
  EXPECT_EQ(store_.puts, 3);
}

TEST_F(PromptTest, WhatWasMissingIsFoundTheNextTime) {
  const std::vector<Segment> segments{chunk(tokens(5, 2)), chunk(tokens(6, 3)),
                                      question(tokens(4, 4))};
  ASSERT_TRUE(build(segments).is_ok());
  auto prompt = build(segments);
  ASSERT_TRUE(prompt.is_ok());
  EXPECT_EQ(prompt->n_hits, 2u);
  EXPECT_EQ(prompt->n_misses, 0u);
  EXPECT_EQ(prompt->segments[1].source, Source::store);
}

TEST_F(PromptTest, ARepeatedMissingChunkIsComputedOnce) {
  auto prompt = build({chunk(tokens(5, 2)), chunk(tokens(5, 2)), question(tokens(4, 4))});
  ASSERT_TRUE(prompt.is_ok());
  EXPECT_EQ(store_.puts, 1);
  EXPECT_TRUE(prompt->segments[0].exact);
  EXPECT_FALSE(prompt->segments[1].exact);
}

TEST_F(PromptTest, AChunkIsExactOnlyBehindItsOwnChunkPrefix) {
  const std::vector<int32_t> lead = tokens(2, 9);
  options_.chunk_prefix = lead;
  // Right after the prefix: exact. Further on, or after other tokens: not.
  auto prompt =
      build({text(lead), chunk(tokens(5, 2)), chunk(tokens(6, 3)), question(tokens(2, 4))});
  ASSERT_TRUE(prompt.is_ok());
  EXPECT_TRUE(prompt->segments[1].exact);
  EXPECT_FALSE(prompt->segments[2].exact);
  prompt = build({text(tokens(2, 10)), chunk(tokens(5, 2)), question(tokens(2, 4))});
  ASSERT_TRUE(prompt.is_ok());
  EXPECT_FALSE(prompt->segments[1].exact);
  prompt = build({chunk(tokens(5, 2)), question(tokens(2, 4))});
  ASSERT_TRUE(prompt.is_ok());
  EXPECT_FALSE(prompt->segments[0].exact);
}

TEST_F(PromptTest, PrefixSegmentsAreExactAndBoundToWhatPrecedesThem) {
  auto prompt = build({prefix(tokens(3, 1)), prefix(tokens(4, 2)), question(tokens(2, 4))});
  ASSERT_TRUE(prompt.is_ok());
  EXPECT_TRUE(prompt->segments[0].exact);
  EXPECT_TRUE(prompt->segments[1].exact);
  // The second after another first is another chunk.
  prompt = build({prefix(tokens(3, 7)), prefix(tokens(4, 2)), question(tokens(2, 4))});
  ASSERT_TRUE(prompt.is_ok());
  EXPECT_EQ(prompt->n_misses, 2u);
}

// A prompt asks everything of its one snapshot: another one may have to wait for that to end.
TEST_F(PromptTest, OneSnapshotAnswersForAWholePrompt) {
  const std::vector<int32_t> before = tokens(1, 8);
  const std::vector<Segment> segments{text(before), chunk(tokens(5, 2)), chunk(tokens(6, 3)),
                                      question(tokens(2, 4))};
  ASSERT_TRUE(build(segments).is_ok());
  put_behind(before, tokens(5, 2));
  store_.one_snapshot = true;
  auto prompt = build(segments);
  ASSERT_TRUE(prompt.is_ok()) << prompt.status().message();
  EXPECT_EQ(prompt->n_hits, 2u);
  EXPECT_TRUE(prompt->segments[1].exact);
  EXPECT_EQ(store_.snapshots, 1);
}

// The first chunk is exact where it is stored after just what precedes it, by its tokens and by
// the id of its other record; a later one is not looked up so.
TEST_F(PromptTest, TheFirstChunkIsFoundBehindWhatPrecedesIt) {
  const std::vector<int32_t> before = tokens(1, 8);
  const std::vector<Segment> segments{text(before), chunk(tokens(5, 2)), chunk(tokens(6, 3)),
                                      question(tokens(2, 4))};
  auto prompt = build(segments);
  ASSERT_TRUE(prompt.is_ok());
  EXPECT_FALSE(prompt->segments[1].exact);
  const Sha256 plain = prompt->segments[1].id;
  for (const uint64_t seed : {2u, 3u}) put_behind(before, tokens(seed == 2 ? 5 : 6, seed));
  prompt = build(segments);
  ASSERT_TRUE(prompt.is_ok());
  EXPECT_TRUE(prompt->segments[1].exact);
  EXPECT_NE(prompt->segments[1].id, plain) << "the account has the record that was used";
  EXPECT_EQ(prompt->n_hits, 2u);
  EXPECT_FALSE(prompt->segments[2].exact) << "another chunk stands before it";
  EXPECT_EQ(prompt->segments[2].chunk->meta().n_prefix_tokens, 0u);

  prompt = build({text(before), {SegmentKind::chunk, {}, plain}, question(tokens(2, 4))});
  ASSERT_TRUE(prompt.is_ok());
  EXPECT_TRUE(prompt->segments[1].exact);
  prompt = build({text(tokens(1, 9)), chunk(tokens(5, 2)), question(tokens(2, 4))});
  ASSERT_TRUE(prompt.is_ok());
  EXPECT_FALSE(prompt->segments[1].exact) << "after something else";
  EXPECT_EQ(prompt->segments[1].id, plain);
}

// A later chunk is found after the chunk before it, by its tokens and by the id of its other
// record: nearer to full prefill, not exact, unless that is all that precedes it.
TEST_F(PromptTest, ADeferredChunkIsFoundBehindTheChunkBeforeIt) {
  const std::vector<int32_t> a = tokens(5, 2), b = tokens(6, 3);
  auto prompt = build({text(tokens(1, 8)), chunk(a), chunk(b), question(tokens(2, 4))});
  ASSERT_TRUE(prompt.is_ok());
  const Sha256 plain = prompt->segments[2].id;
  put_behind(a, b);
  const std::vector<Segment> given[] = {
      {text(tokens(1, 8)), chunk(a), chunk(b)},
      {text(tokens(1, 8)), chunk(a), {SegmentKind::chunk, {}, plain}}};
  for (const std::vector<Segment>& segments : given) {
    prompt = build(segments);
    ASSERT_TRUE(prompt.is_ok());
    EXPECT_NE(prompt->segments[2].id, plain);
    EXPECT_EQ(prompt->segments[2].chunk->meta().n_prefix_tokens, a.size());
    EXPECT_FALSE(prompt->segments[2].exact);
    EXPECT_EQ(prompt->n_hits, 2u);
  }
  prompt = build({chunk(a), chunk(b)});
  ASSERT_TRUE(prompt.is_ok());
  EXPECT_TRUE(prompt->segments[1].exact) << "nothing else precedes it";
  const std::vector<Segment> others[] = {{chunk(a), text(tokens(1, 8)), chunk(b)},
                                         {chunk(a), chunk(tokens(5, 7)), chunk(b)},
                                         {text(a), chunk(tokens(5, 7)), chunk(b)}};
  for (const std::vector<Segment>& segments : others) {
    prompt = build(segments);
    ASSERT_TRUE(prompt.is_ok());
    EXPECT_EQ(prompt->segments[2].id, plain) << "another neighbor";
  }
}

// After BOS alone, found or missing, it is left to be stored so too; after anything longer it is
// not, or one chunk would have a record for every prompt.
TEST_F(PromptTest, AFirstChunkIsLeftToBeStoredBehindBos) {
  options_.on_miss = OnMiss::compute_store;
  const std::vector<int32_t> bos{model_->tokenizer().bos()};
  const std::vector<Segment> segments{prefix(bos), chunk(tokens(5, 2)), question(tokens(2, 4))};
  auto prompt = build(segments);
  ASSERT_TRUE(prompt.is_ok());
  ASSERT_EQ(prompt->later.size(), 3u) << "BOS, the chunk alone, the chunk after BOS";
  EXPECT_EQ(prompt->later[2].prefix, bos);
  for (DeferredChunk& later : prompt->later) {
    ASSERT_TRUE(
        store_.put_async(*precompute_chunk(*model_, later.prefix, std::move(later.meta), {}))
            .is_ok());
  }
  prompt = build(segments);
  ASSERT_TRUE(prompt.is_ok());
  EXPECT_TRUE(prompt->segments[1].exact);
  EXPECT_TRUE(prompt->later.empty()) << "there is nothing left to do";
  prompt = build({prefix(bos), prefix(tokens(2, 7)), chunk(tokens(5, 2)), question(tokens(2, 4))});
  ASSERT_TRUE(prompt.is_ok());
  EXPECT_EQ(prompt->later.size(), 1u) << "the second prefix alone";
}

TEST_F(PromptTest, TenantsDoNotShareChunks) {
  const std::vector<Segment> segments{chunk(tokens(5, 2)), question(tokens(4, 4))};
  options_.tenant = "a";
  ASSERT_TRUE(build(segments).is_ok());
  options_.tenant = "b";
  auto prompt = build(segments);
  ASSERT_TRUE(prompt.is_ok());
  EXPECT_EQ(prompt->n_misses, 1u);
}

TEST_F(PromptTest, MissesMayFailOrBeComputedInline) {
  const std::vector<Segment> segments{chunk(tokens(5, 2)), question(tokens(4, 4))};
  options_.on_miss = OnMiss::fail;
  EXPECT_EQ(build(segments).status().code(), BLEND_E_NOT_FOUND);
  options_.on_miss = OnMiss::compute;
  auto prompt = build(segments);
  ASSERT_TRUE(prompt.is_ok());
  EXPECT_EQ(prompt->segments[0].source, Source::computed);
  EXPECT_FALSE(prompt->segments[0].reused());
  EXPECT_EQ(store_.puts, 0);
}

TEST_F(PromptTest, AStoreThatCannotTakeAChunkIsAnEventNotAnError) {
  store_.put_status = {BLEND_E_FULL, "the quota is used up"};
  ASSERT_TRUE(build({chunk(tokens(5, 2)), question(tokens(4, 4))}).is_ok());
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_NE(log_[0].find("quota"), std::string::npos);
}

TEST_F(PromptTest, AChunkByItsIdGivesItsTokens) {
  auto prompt = build({chunk(tokens(5, 2)), question(tokens(4, 4))});
  ASSERT_TRUE(prompt.is_ok());
  const Sha256 id = prompt->segments[0].id;
  prompt = build({{SegmentKind::chunk, {}, id}, question(tokens(4, 4))});
  ASSERT_TRUE(prompt.is_ok()) << prompt.status().message();
  EXPECT_EQ(std::vector<int32_t>(prompt->tokens.begin(), prompt->tokens.begin() + 5), tokens(5, 2));
  EXPECT_EQ(prompt->n_hits, 1u);

  prompt = build({{SegmentKind::chunk, tokens(5, 77), id}, question(tokens(4, 4))});
  EXPECT_EQ(prompt.status().code(), BLEND_E_MISMATCH);
  Sha256 unknown = id;
  unknown[0] ^= 1;
  prompt = build({{SegmentKind::chunk, {}, unknown}, question(tokens(4, 4))});
  EXPECT_EQ(prompt.status().code(), BLEND_E_NOT_FOUND);
}

TEST_F(PromptTest, AChunkOfAnotherModelIsRefused) {
  auto record = std::make_shared<ChunkRecord>();
  record->meta = describe_chunk(*model_, DType::f32, {}, "", tokens(5, 2));
  record->meta.fingerprint[3] ^= 1;
  store_.chunks[record->meta.id] = record;
  EXPECT_EQ(build({{SegmentKind::chunk, {}, record->meta.id}}).status().code(), BLEND_E_MISMATCH);
}

// The aim of an attacker who could make two token lists with one id.
TEST_F(PromptTest, AHitWithOtherTokensIsAMiss) {
  ChunkMeta meta = describe_chunk(*model_, DType::f32, {}, "", tokens(5, 2));
  auto other =
      precompute_chunk(*model_, {}, describe_chunk(*model_, DType::f32, {}, "", tokens(5, 3)), {});
  ASSERT_TRUE(other.is_ok());
  auto forged = std::make_shared<ChunkRecord>();
  forged->meta = (*other)->meta;
  forged->meta.id = meta.id;
  store_.chunks[meta.id] = forged;
  auto prompt = build({chunk(tokens(5, 2)), question(tokens(4, 4))});
  ASSERT_TRUE(prompt.is_ok());
  EXPECT_EQ(prompt->segments[0].source, Source::precomputed);
  EXPECT_EQ(store_.damaged, 1);
}

TEST_F(PromptTest, BadSegmentsAreNamed) {
  const auto expect = [&](const std::vector<Segment>& segments, int32_t code, const char* words) {
    const Status s = build(segments).status();
    EXPECT_EQ(s.code(), code) << s.message();
    EXPECT_NE(s.message().find(words), std::string::npos) << s.message();
  };
  expect({}, BLEND_E_INVALID_ARGUMENT, "no tokens");
  expect({text({})}, BLEND_E_INVALID_ARGUMENT, "no tokens");
  expect({chunk({})}, BLEND_E_INVALID_ARGUMENT, "segment 0 (chunk)");
  expect({question(tokens(2, 1)), text(tokens(2, 1))}, BLEND_E_INVALID_ARGUMENT,
         "must be the last");
  expect({text(tokens(2, 1)), prefix(tokens(2, 1))}, BLEND_E_INVALID_ARGUMENT,
         "segment 1 (prefix)");
  expect({text({5}), text({-1})}, BLEND_E_INVALID_ARGUMENT, "segment 1 (text): token 0 is -1");
  expect({text({5, 320})}, BLEND_E_INVALID_ARGUMENT, "token 1 is 320");
  expect({text(tokens(300, 1)), text(tokens(300, 1))}, BLEND_E_CONTEXT_LENGTH, "600");
  options_.chunk_prefix = {99999};
  expect({text({5})}, BLEND_E_INVALID_ARGUMENT, "chunk_prefix");
}

// ---- Which record of a chunk is taken

class RecordChoiceTest : public PromptTest {
 protected:
  void SetUp() override {
    PromptTest::SetUp();
    head_ = tokens(3, 1);
    first_ = tokens(12, 2);
    chunk_ = tokens(14, 3);
    passage_ = tokens(12, 4);
    gap_ = tokens(2, 6);
    options_.chunk_prefix = head_;
  }
  void put(const std::vector<int32_t>& before, RecordKind kind = RecordKind::plain) {
    ChunkMeta meta = describe_chunk(*model_, DType::f32, before, "", chunk_, kind);
    const ContextPassage passages[] = {{passage_}};
    const bool contextual = kind != RecordKind::plain;
    if (contextual) meta.contexts.push_back(Sha256{1});
    auto record =
        precompute_chunk(*model_, before, meta, {}, std::span(passages).first(contextual ? 1 : 0));
    ASSERT_TRUE(store_.put_async(*record).is_ok());
  }
  // Use of chunk_ after first_ and a text between.
  RecordUse use() {
    auto prompt =
        build({prefix(head_), chunk(first_), text(gap_), chunk(chunk_), question(tokens(3, 5))});
    EXPECT_TRUE(prompt.is_ok()) << prompt.status().message();
    later_ = prompt.is_ok() ? std::move(prompt->later) : std::vector<DeferredChunk>();
    return prompt.is_ok() ? prompt->segments[3].record : RecordUse::none;
  }
  std::vector<int32_t> predecessor() const {
    std::vector<int32_t> out = head_;
    out.insert(out.end(), first_.begin(), first_.end());
    out.insert(out.end(), gap_.begin(), gap_.end());
    return out;
  }

  std::vector<int32_t> head_, first_, gap_, chunk_, passage_;
  std::vector<DeferredChunk> later_;
};

TEST_F(RecordChoiceTest, TheNearestToFullPrefillIsTaken) {
  put({});
  EXPECT_EQ(use(), RecordUse::head) << "one that was made alone is a miss";
  EXPECT_EQ(store_.puts, 4);
  put(head_, RecordKind::contextual);
  EXPECT_EQ(use(), RecordUse::contextual);
  put(predecessor());
  EXPECT_EQ(use(), RecordUse::exact) << "nothing but head and predecessor precedes it";
}

TEST_F(RecordChoiceTest, APredecessorsRecordComesBeforeAContextualOne) {
  put(head_, RecordKind::contextual);
  put(predecessor());
  auto prompt = build({prefix(head_), chunk(passage_), chunk(first_), text(gap_), chunk(chunk_),
                       question(tokens(3, 5))});
  ASSERT_TRUE(prompt.is_ok());
  EXPECT_EQ(prompt->segments[4].record, RecordUse::predecessor);
  EXPECT_FALSE(prompt->segments[4].exact);
}

// One that was prefilled after more than the predecessor is nearer, except where nothing more
// precedes the chunk.
TEST_F(RecordChoiceTest, APredecessorsRecordThatHasSeenMoreComesFirst) {
  put(predecessor(), RecordKind::preceded);
  const auto opened = [&](const std::vector<Segment>& before) {
    std::vector<Segment> segments = before;
    segments.insert(segments.end(), {chunk(first_), text(gap_), chunk(chunk_)});
    auto prompt = build(segments);
    EXPECT_TRUE(prompt.is_ok()) << prompt.status().message();
    return std::move(prompt->segments.back());
  };
  const std::vector<Segment> far = {prefix(head_), chunk(passage_)}, near = {prefix(head_)};
  const Sha256 has_seen_more =
      describe_chunk(*model_, DType::f32, predecessor(), "", chunk_, RecordKind::preceded).id;
  EXPECT_EQ(opened(far).record, RecordUse::predecessor);
  EXPECT_EQ(opened(near).record, RecordUse::predecessor);
  EXPECT_EQ(opened(near).id, has_seen_more) << "there is no other";
  put(predecessor());
  EXPECT_EQ(opened(far).id, has_seen_more);
  EXPECT_EQ(opened(near).record, RecordUse::exact);
}

// The two kinds of records in context serve different places.
TEST_F(RecordChoiceTest, AfterMuchTextTheRecordOfAClusterIsTaken) {
  test::RandomModelSpec spec;
  spec.context = 600;
  model_ = load(spec);
  const auto id_of = [&](RecordKind kind) {
    return describe_chunk(*model_, DType::f32, head_, "", chunk_, kind).id;
  };
  // The record that is used after n tokens between the head and the chunk.
  const auto id_after = [&](size_t n) {
    auto prompt = build({prefix(head_), chunk(first_), text(tokens(n - first_.size(), 7)),
                         chunk(chunk_), question(tokens(3, 5))});
    EXPECT_TRUE(prompt.is_ok()) << prompt.status().message();
    return prompt->segments[3].id;
  };
  put(head_, RecordKind::clustered);
  EXPECT_EQ(id_after(kClusterFrom - 1), id_of(RecordKind::clustered)) << "there is no other";
  put(head_, RecordKind::contextual);
  EXPECT_EQ(id_after(kClusterFrom - 1), id_of(RecordKind::contextual));
  EXPECT_EQ(id_after(kClusterFrom), id_of(RecordKind::clustered));
  store_.chunks.erase(id_of(RecordKind::clustered));
  EXPECT_EQ(id_after(kClusterFrom), id_of(RecordKind::contextual)) << "nor here";
}

// Among many short chunks the one before it is little of what a chunk attends to.
TEST_F(RecordChoiceTest, InALongPromptOfShortChunksAContextComesFirst) {
  options_.after_head = true;
  options_.on_miss = OnMiss::compute_store;
  put(predecessor());
  const auto use_after = [&](size_t n) {
    std::vector<Segment> segments = {prefix(head_)};
    for (size_t i = 0; i < n; ++i) segments.push_back(chunk(tokens(12, 50 + i)));
    segments.insert(segments.end(),
                    {chunk(first_), text(gap_), chunk(chunk_), question(tokens(3, 5))});
    auto prompt = build(segments);
    EXPECT_TRUE(prompt.is_ok()) << prompt.status().message();
    later_ = std::move(prompt->later);
    return prompt->segments[n + 3].record;
  };
  EXPECT_EQ(use_after(8), RecordUse::predecessor) << "there is no other";
  put(head_, RecordKind::contextual);
  EXPECT_EQ(use_after(2), RecordUse::predecessor) << "a third of what precedes it";
  EXPECT_EQ(use_after(8), RecordUse::contextual) << "a ninth";
  const Sha256 after = describe_chunk(*model_, DType::f32, predecessor(), "", chunk_).id;
  for (const DeferredChunk& chunk : later_)
    EXPECT_NE(chunk.meta.id, after) << "nobody would take it";
}

// Where the predecessor is short, its record is prefilled after other chunks of the prompt too:
// those before it, the nearest first, then those after the chunk, until they are enough.
TEST_F(RecordChoiceTest, AShortPredecessorsRecordIsMadeAfterMoreOfThePrompt) {
  test::RandomModelSpec spec;
  spec.context = 1000;
  model_ = load(spec);
  options_.on_miss = OnMiss::compute_store;
  options_.after_head = true;
  put(head_);
  const std::vector<int32_t> a = tokens(40, 7), b = tokens(150, 8), after = tokens(170, 9),
                             too_many = tokens(30, 10);
  const auto left = [&](const std::vector<int32_t>& last) -> DeferredChunk {
    auto prompt =
        build({prefix(head_), chunk(a), chunk(b), text(gap_), chunk(passage_), chunk(last),
               text(gap_), chunk(chunk_), chunk(after), chunk(too_many), question(tokens(3, 5))});
    EXPECT_TRUE(prompt.is_ok()) << prompt.status().message();
    for (DeferredChunk& chunk : prompt->later) {
      if (chunk.meta.tokens == chunk_ && chunk.when_seen_twice) return std::move(chunk);
    }
    ADD_FAILURE() << "no record after the predecessor is left";
    return {};
  };
  const auto id_after = [&](const std::vector<int32_t>& before, RecordKind kind) {
    return describe_chunk(*model_, DType::f32, before, "", chunk_, kind).id;
  };
  const DeferredChunk made = left(first_);
  const std::vector<int32_t> whole = predecessor();
  EXPECT_EQ(made.meta.id, id_after(whole, RecordKind::preceded));
  EXPECT_EQ(made.prefix, head_);
  EXPECT_EQ(
      made.predecessor,
      std::vector<int32_t>(whole.begin() + static_cast<ptrdiff_t>(head_.size()), whole.end()));
  EXPECT_EQ(made.contexts, (std::vector<std::vector<int32_t>>{passage_, b, a, after}));

  put(whole);  // one that has seen the predecessor alone is still worse
  EXPECT_EQ(left(first_).meta.id, made.meta.id);

  const std::vector<int32_t> long_one = tokens(kPrecededTokens, 11);
  const DeferredChunk plain = left(long_one);
  std::vector<int32_t> before = head_;
  before.insert(before.end(), long_one.begin(), long_one.end());
  before.insert(before.end(), gap_.begin(), gap_.end());
  EXPECT_EQ(plain.meta.id, id_after(before, RecordKind::plain));
  EXPECT_EQ(plain.prefix, before);
  EXPECT_TRUE(plain.contexts.empty());
}

TEST_F(RecordChoiceTest, OneThatWasMadeAloneServesWhereNothingMayBeComputed) {
  options_.on_miss = OnMiss::fail;
  options_.after_head = true;
  put({});
  auto prompt = build({prefix(head_), chunk(chunk_), question(tokens(3, 5))});
  EXPECT_EQ(prompt.status().code(), BLEND_E_NOT_FOUND) << "the prefix is missing";
  prompt = build({text(head_), chunk(chunk_), question(tokens(3, 5))});
  ASSERT_TRUE(prompt.is_ok()) << prompt.status().message();
  EXPECT_EQ(prompt->segments[1].record, RecordUse::alone);
}

TEST_F(RecordChoiceTest, UseLeavesNearerRecordsToBeMade) {
  options_.on_miss = OnMiss::compute_store;
  options_.after_head = true;
  put(head_);
  EXPECT_EQ(use(), RecordUse::head);
  const auto find = [&](const Sha256& id) -> const DeferredChunk* {
    for (const DeferredChunk& chunk : later_) {
      if (chunk.meta.id == id) return &chunk;
    }
    return nullptr;
  };
  const auto id = [&](std::span<const int32_t> before, RecordKind kind) {
    return chunk_id(model_->fingerprint(), DType::f32, before, "", chunk_, kind);
  };
  const DeferredChunk* after = find(id(predecessor(), RecordKind::plain));
  ASSERT_NE(after, nullptr);
  EXPECT_TRUE(after->when_seen_twice);
  EXPECT_FALSE(after->is_miss);
  const DeferredChunk* in_context = find(id(head_, RecordKind::contextual));
  ASSERT_NE(in_context, nullptr);
  ASSERT_EQ(in_context->contexts.size(), 1u);
  EXPECT_EQ(in_context->contexts[0], first_);
  put(predecessor());
  use();
  EXPECT_EQ(find(id(predecessor(), RecordKind::plain)), nullptr) << "it is there";
}

}  // namespace
}  // namespace blend
